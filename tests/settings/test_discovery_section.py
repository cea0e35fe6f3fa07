"""Where endpoints come from: short forms, and mistakes that are named."""

from __future__ import annotations

from typing import Any

import pytest

from extproc.settings import DnsSettings, SettingsError, load_settings
from extproc.settings.discovery_section import DiscoverySettings


def test_short_forms_of_names() -> None:
    settings = DiscoverySettings(dns=["dns://llama:8080", "srv://_llama._tcp.example.com"])  # type: ignore[arg-type]  # short forms
    assert settings.dns == (
        DnsSettings(name="llama", port=8080),
        DnsSettings(name="_llama._tcp.example.com", type="srv"),
    )


def test_the_environment_names_names() -> None:
    settings = load_settings(environ={"COXSWAIN_DISCOVERY__DNS": "dns://a:1,srv://b"})
    assert [name.address for name in settings.discovery.dns] == ["a:1", "b"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("llama:8080", "write dns://name:port, or srv://name"),
        ({"name": "llama"}, "type a needs a port"),
        ({"name": "llama", "type": "srv", "port": 1}, "SRV records contain the port"),
        ("dns://10.0.0.1:8080", "this is an IP address; list it under `endpoints`"),
        ({"name": "a", "port": 1, "api_key_env": "A", "api_key_file": "b"}, "not both"),
    ],
)
def test_mistakes_are_named(value: Any, text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(flags={"discovery.dns": [value]}, environ={})
    assert text in str(caught.value)


def test_a_name_server_is_an_ip_address() -> None:
    with pytest.raises(SettingsError):
        load_settings(flags={"discovery.nameservers": ["dns.example.com:53"]}, environ={})
    load_settings(flags={"discovery.nameservers": ["[fd00::1]:53", "10.0.0.1:53"]}, environ={})
