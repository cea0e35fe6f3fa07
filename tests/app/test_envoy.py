"""Claims about extproc/app/envoy.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from extproc.app.envoy import envoy_options
from extproc.envoy_config.options import EnvoyOptions, HostPort, Mode
from extproc.envoy_config.trust import SYSTEM_CA
from extproc.settings import load_settings


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


def test_every_source_of_the_settings_tells_envoy_what_it_needs(tmp_path: Path) -> None:
    """Servers in the list, by DNS and in the file, and authorities of those that may come."""
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
