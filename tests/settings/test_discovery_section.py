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


def test_pods_are_those_of_a_pool_a_selector_or_a_service() -> None:
    text = """[{"pool": "llama"}, {"selector": "app=llama", "ports": [8080, "8081"]},
        {"service": "llama", "namespace": "other", "ports": "http"}]"""
    settings = load_settings(environ={"COXSWAIN_DISCOVERY__KUBERNETES": text})
    found = settings.discovery.kubernetes
    assert [one.address for one in found] == [
        "pool llama",
        "selector app=llama",
        "service llama in other",
    ]
    assert [one.ports for one in found] == [(), ("8080", "8081"), ("http",)]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({}, "give one of pool, selector and service"),
        ({"pool": "a", "service": "b"}, "give one of pool, selector and service"),
        ({"pool": "a", "ports": [1]}, "an InferencePool has the ports"),
        ({"pool": "A"}, "lower-case letters"),
        ({"selector": "a=b"}, "selector needs ports"),
        ({"selector": "a=b", "ports": ["http"]}, "selector needs ports"),
        ({"selector": "a=b", "ports": [0]}, "write a port, 1 to 65535"),
        ({"selector": "a=b", "ports": [65536]}, "write a port, 1 to 65535"),
        ({"selector": "a=b", "ports": [True]}, "write a port, 1 to 65535"),
        ({"selector": "a=b", "ports": list(range(1, 10))}, "at most 8"),
        ({"service": "a", "tls": True}, "with tls give server_name"),
        ({"service": "a", "server_name": "b"}, "are for servers behind TLS"),
        ({"service": "a", "namespace": "a.b"}, "lower-case letters, digits and -"),
        ({"service": "a", "name": "b"}, "unknown"),
    ],
)
def test_mistakes_about_pods_are_named(value: Any, text: str) -> None:
    with pytest.raises(SettingsError, match=text):
        load_settings(flags={"discovery.kubernetes": [value]}, environ={})


def test_what_is_sheddable_is_not_critical() -> None:
    with pytest.raises(SettingsError, match="sheddable_priority must be below critical_priority"):
        load_settings(flags={"discovery.sheddable_priority": 1}, environ={})


def test_a_name_server_is_an_ip_address() -> None:
    with pytest.raises(SettingsError):
        load_settings(flags={"discovery.nameservers": ["dns.example.com:53"]}, environ={})
    load_settings(flags={"discovery.nameservers": ["[fd00::1]:53", "10.0.0.1:53"]}, environ={})
