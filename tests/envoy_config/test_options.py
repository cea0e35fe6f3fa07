"""Claims about extproc/envoy_config/options.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from extproc.core.request import HOLD_MARGIN_S
from extproc.envoy_config.options import (
    SYSTEM_CA,
    EnvoyOptions,
    HostPort,
    Mode,
    OptionsError,
    PickerTls,
    TlsProfile,
    envoy_options,
)
from extproc.settings import load_settings


def test_a_place_is_read_with_its_brackets_taken_off() -> None:
    assert HostPort.parse("[::1]:9002") == HostPort("::1", 9002)
    assert HostPort.parse("picker.internal:9002") == HostPort("picker.internal", 9002)


@pytest.mark.parametrize(
    "choices", [{"injects_keys": True}, {"tls_profiles": (TlsProfile(name="a"),)}]
)
def test_choices_that_contradict_each_other_are_rejected(choices: dict[str, Any]) -> None:
    with pytest.raises(OptionsError):
        EnvoyOptions(mode=Mode.ORIGINAL_DST, **choices)


def test_the_settings_defaults_are_the_options_defaults() -> None:
    """So the files in `envoy/` are what a picker without a settings file needs."""
    assert envoy_options(load_settings(None, environ={})) == EnvoyOptions()


def test_no_discovery_is_original_dst() -> None:
    settings = load_settings(None, environ={}, flags={"envoy.discovery": "false"})
    assert envoy_options(settings).mode is Mode.ORIGINAL_DST


@pytest.mark.parametrize(
    ("flags", "picker"),
    [
        ({"listen.grpc": "0.0.0.0:9102"}, HostPort("127.0.0.1", 9102)),
        ({"listen.grpc": "[::]:9102"}, HostPort("::1", 9102)),
        ({"listen.grpc": "10.0.0.7:9102"}, HostPort("10.0.0.7", 9102)),
        ({"listen.grpc": "0.0.0.0:9102", "envoy.picker": "pick:9002"}, HostPort("pick", 9002)),
    ],
)
def test_envoy_reaches_the_picker_where_it_listens_or_where_it_is_said_to_be(
    flags: dict[str, str], picker: HostPort
) -> None:
    settings = load_settings(None, environ={}, flags=flags)
    assert envoy_options(settings).picker == picker


@pytest.mark.parametrize(
    ("others", "pages"),
    [
        ("10.0.0.3:9002,10.0.0.4:9002", ("10.0.0.3", "10.0.0.4")),
        ("10.0.0.2:9012", ()),  # on the same host, where its pages have a port of their own
    ],
)
def test_the_pages_of_other_members_are_beside_their_data_plane(
    others: str, pages: tuple[str, ...]
) -> None:
    flags = {
        "cluster.name": "c",
        "cluster.valkey": "redis://v:6379",
        "cluster.advertise": "10.0.0.2:9004",
        "fronts": "2",
        "envoy.picker": "10.0.0.2:9002",
        "envoy.other_pickers": others,
    }
    options = envoy_options(load_settings(None, environ={}, flags=flags))
    assert options.status == HostPort("10.0.0.2", 9090)
    assert options.other_status == tuple(HostPort(host, 9090) for host in pages)


TLS = {"grpc_tls.cert_file": "/picker.pem", "grpc_tls.key_file": "/picker.key"}
MUTUAL = {**TLS, "grpc_tls.client_ca_file": "/envoys-ca.pem"}
SHOWN = {"envoy.picker_cert_file": "/envoy.pem", "envoy.picker_key_file": "/envoy.key"}


def test_how_envoy_speaks_tls_to_the_picker() -> None:
    options = envoy_options(load_settings(None, environ={}, flags={**MUTUAL, **SHOWN}))
    assert options.picker_tls == PickerTls(
        server_name="127.0.0.1", cert_file="/envoy.pem", key_file="/envoy.key"
    )
    assert envoy_options(load_settings(None, environ={}, flags=TLS)).picker_tls is not None


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (MUTUAL, "envoy.picker_cert_file"),
        (SHOWN, "requires grpc_tls"),
        ({"envoy.picker_ca_file": "/ca.pem"}, "requires grpc_tls"),
        ({"envoy.picker_server_name": "picker"}, "requires grpc_tls"),
        ({"listen.grpc": "127.0.0.1:0"}, "envoy.picker"),
        ({"listen.http": "127.0.0.1:0"}, "envoy.countdown: false"),
    ],
)
def test_a_configuration_by_which_envoy_could_not_reach_the_picker_is_none(
    flags: dict[str, str], told: str
) -> None:
    """The settings are good for all that: an Envoy may be configured elsewhere."""
    settings = load_settings(None, environ={}, flags=flags)
    with pytest.raises(OptionsError, match=told):
        envoy_options(settings)


def test_ports_that_only_a_start_determines_need_not_be_known() -> None:
    """Where Envoy is told another place, or does not ask there."""
    flags = {"listen.grpc": "127.0.0.1:0", "listen.http": "127.0.0.1:0", "envoy.countdown": "false"}
    settings = load_settings(None, environ={}, flags={**flags, "envoy.picker": "pick:9002"})
    assert envoy_options(settings).picker == HostPort("pick", 9002)


def test_every_source_of_the_settings_gives_envoy_what_it_needs(tmp_path: Path) -> None:
    """Servers in the list, by DNS and in the file, and CAs of those that may come."""
    key = tmp_path / "key"
    key.write_text("k")
    file = tmp_path / "fleet.yaml"
    file.write_text("endpoints: [{address: 'https://c.test:1', ca_file: /c.pem}]")
    flags: dict[str, object] = {
        "endpoints": [{"address": "https://a.test:1", "ca_file": "/a.pem"}],
        "discovery.dns": [
            {
                "name": "b.test",
                "port": 1,
                "tls": True,
                "ca_file": "/b.pem",
                "api_key_file": str(key),
                "inject_key": True,
            }
        ],
        "discovery.file": str(file),
        "envoy.server_ca_files": ["/a.pem", "/d.pem", "system"],
    }
    options = envoy_options(load_settings(None, environ={}, flags=flags))
    assert options.injects_keys
    known = [profile.ca_file for profile in options.tls_profiles]
    assert known == ["/a.pem", "/b.pem", "/c.pem", "/d.pem", SYSTEM_CA]
    assert {profile.server_name for profile in options.tls_profiles} == {None}


def test_with_fronts_the_message_timeout_includes_the_time_in_the_queue() -> None:
    flags = {"fronts": "2", "queue.timeout_s": "30"}
    options = envoy_options(load_settings(None, environ={}, flags=flags))
    assert options.has_fronts and options.message_timeout_s == 30 + HOLD_MARGIN_S
