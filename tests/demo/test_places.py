from __future__ import annotations

import socket

import pytest

from extproc.demo.places import PlaceError, connectable, places_of, settle, url_of
from extproc.demo.port import LOOPBACK, free_port, free_ports
from extproc.settings import load_settings

KEYS = ("envoy.listen", "envoy.admin", "listen.grpc", "listen.http", "listen.admin")


def places(**ports: int) -> list[str]:
    """Settle everything on free ports, but for the named keys."""
    flags = dict(zip(KEYS, free_ports(len(KEYS)), strict=True)) | {
        key.replace("_", "."): port for key, port in ports.items()
    }
    addresses = {key: f"{LOOPBACK}:{port}" for key, port in flags.items()}
    return settle(places_of(load_settings(None, flags=addresses, environ={})))


def test_free_places_stay_and_port_0_becomes_a_free_port() -> None:
    assert places() == []
    [assignment] = places(listen_http=0)
    key, _, address = assignment.partition("=")
    assert key == "listen.http"
    assert int(address.removeprefix(f"{LOOPBACK}:")) > 0


@pytest.mark.parametrize(
    ("key", "remedy"),
    [("envoy_listen", "--port {other}"), ("listen_grpc", "--set listen.grpc=127.0.0.1:{other}")],
)
def test_a_taken_port_is_named_with_what_to_pass(key: str, remedy: str) -> None:
    port = free_port()
    with socket.create_server((LOOPBACK, port)), pytest.raises(PlaceError) as caught:
        places(**{key: port})
    assert f"port {port} " in str(caught.value)
    assert "already in use" in str(caught.value)
    other = port + 10 if port < 65_000 else port - 10
    assert remedy.format(other=other) in str(caught.value)


def test_one_port_for_two_parts_is_refused() -> None:
    port = free_port()
    with pytest.raises(PlaceError, match=f"port {port} is wanted for Envoy and for the picker"):
        places(envoy_listen=port, listen_grpc=port)


@pytest.mark.parametrize(
    ("listens_at", "url"),
    [
        ("0.0.0.0:10000", "http://127.0.0.1:10000"),
        ("[::]:10000", "http://[::1]:10000"),
        ("10.0.0.5:80", "http://10.0.0.5:80"),
    ],
)
def test_a_listener_is_reached_at_an_address_that_can_be_typed(listens_at: str, url: str) -> None:
    assert url_of(listens_at) == url


def test_names_are_left_alone() -> None:
    assert connectable("localhost") == "localhost"
