from __future__ import annotations

import re
import socket
from contextlib import ExitStack

import pytest

from extproc.demo import port as port_module
from extproc.demo.listen_addresses import (
    ListenAddress,
    ListenAddressError,
    clients_listen,
    connectable,
    listen_addresses,
    settle,
    url_of,
)
from extproc.demo.port import LOOPBACK, free_port, free_ports, listening_problem
from extproc.settings import load_settings

KEYS = ("envoy.listen", "envoy.admin", "listen.grpc", "listen.http", "listen.admin")


def places(**ports: int) -> list[str]:
    """Settle everything on free ports, but for the named keys."""
    flags = dict(zip(KEYS, free_ports(len(KEYS)), strict=True)) | {
        key.replace("_", "."): port for key, port in ports.items()
    }
    addresses = {key: f"{LOOPBACK}:{port}" for key, port in flags.items()}
    return settle(listen_addresses(load_settings(None, flags=addresses, environ={})))


def test_free_places_stay_and_port_0_becomes_a_free_port() -> None:
    assert places() == []
    [assignment] = places(listen_http=0)
    key, _, address = assignment.partition("=")
    assert key == "listen.http"
    assert int(address.removeprefix(f"{LOOPBACK}:")) > 0


def test_a_port_for_all_interfaces_is_free_on_each(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, other = free_ports(2)
    offered = [taken, other]
    monkeypatch.setattr(port_module, "_given", set())
    monkeypatch.setattr(port_module, "_any_port", lambda: offered.pop(0))
    with socket.create_server(("127.0.0.2", taken)):
        [assignment] = settle([ListenAddress(part="", key="key", host="0.0.0.0", port=0)])
    assert assignment == f"key=0.0.0.0:{other}"


@pytest.mark.parametrize(
    ("key", "remedy"),
    [("envoy_listen", "--port {other}"), ("listen_grpc", "--set listen.grpc=127.0.0.1:{other}")],
)
def test_a_taken_port_is_named_with_what_to_pass(key: str, remedy: str) -> None:
    port = free_port()
    with socket.create_server((LOOPBACK, port)), pytest.raises(ListenAddressError) as caught:
        places(**{key: port})
    assert f"port {port} " in str(caught.value)
    assert "already in use" in str(caught.value)
    # Another process may have a port beside it, which is named behind this one.
    advised = re.search(remedy.format(other=r"(\d+)"), str(caught.value))
    assert advised is not None and listening_problem(int(advised[1])) is None


def test_all_that_is_taken_is_reported_at_once_with_ports_that_are_free() -> None:
    """As when a second `coxswain up` is started beside the first: one more try is enough."""
    taken = free_port()
    near = taken + 10 if taken < 64_000 else taken - 10
    other = free_port()
    with ExitStack() as held:
        for port in (taken, near, other):
            if listening_problem(port) is None:
                held.enter_context(socket.create_server((LOOPBACK, port)))
        with pytest.raises(ListenAddressError) as caught:
            places(envoy_listen=taken, listen_grpc=other)
        told = str(caught.value)
        assert f"port {taken} for Envoy" in told and f"port {other} for the picker" in told
        words = told.split()
        advised = [words[words.index("--port") + 1], words[words.index("--set") + 1]]
        ports = {int(word.rpartition(":")[2]) for word in advised}
        assert len(ports) == 2 and not ports & {taken, near, other}
        assert [listening_problem(port) for port in ports] == [None, None]


def test_a_host_that_is_not_of_this_machine_needs_another_host() -> None:
    """No port would do there."""
    settings = load_settings(None, flags={"envoy.listen": "192.0.2.1:10000"}, environ={})
    with pytest.raises(ListenAddressError, match=r"pass --set envoy\.listen=127\.0\.0\.1:10000"):
        settle(listen_addresses(settings)[:1])


def test_one_port_for_two_parts_is_rejected() -> None:
    port = free_port()
    with pytest.raises(
        ListenAddressError, match=f"port {port} is used for both Envoy and the picker"
    ):
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


@pytest.mark.parametrize(
    ("set_to", "host", "port", "expected"),
    [
        (None, None, None, "127.0.0.1:10000"),
        (None, None, 8000, "127.0.0.1:8000"),
        (None, "0.0.0.0", None, "0.0.0.0:10000"),
        (None, "::", 8000, "[::]:8000"),
        (None, "[::1]", None, "[::1]:10000"),
        ("0.0.0.0:10000", None, None, "0.0.0.0:10000"),
        ("10.0.0.5:80", None, 8000, "10.0.0.5:8000"),
        ("10.0.0.5:80", "127.0.0.1", None, "127.0.0.1:80"),
    ],
)
def test_clients_reach_it_from_elsewhere_only_where_that_was_asked(
    set_to: str | None, host: str | None, port: int | None, expected: str
) -> None:
    """Loopback, unless a flag or the settings name an address, also the default one."""
    flags = {} if set_to is None else {"envoy.listen": set_to}
    settings = load_settings(None, flags=flags, environ={})
    assert clients_listen(settings, host, port) == f"envoy.listen={expected}"
