"""Claims about extproc/app/discovery/entries.py: from the settings to what discovery takes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from extproc.app.discovery.entries import entries_of, names_of, read_endpoints, secret_files
from extproc.core.fleet.endpoint import WakeOptions
from extproc.settings import Settings, SettingsError
from scraper.discovery.discovered_endpoint import EndpointEntryError, discover
from tests.fakes.authority import Authority

KEY = "sk-secret"


def settings(**content: object) -> Settings:
    return Settings.model_validate(content)


def test_an_endpoint_with_everything(tmp_path: Path) -> None:
    """Its key and its CAs are read; the key is in no text about it."""
    key, ca = tmp_path / "key", Authority(tmp_path).ca
    key.write_text(f"{KEY}\n")
    (entry,) = entries_of(
        settings(
            endpoints=[
                {
                    "address": "https://gpu.example:8443",
                    "name": "gpu-1",
                    "slots": 4,
                    "may_sleep": True,
                    "api_key_file": str(key),
                    "inject_key": True,
                    "ca_file": str(ca),
                    "server_name": "inner.example",
                }
            ]
        ).endpoints
    )
    assert (entry.host, entry.port, entry.name) == ("gpu.example", 8443, "gpu-1")
    assert (entry.slots, entry.may_sleep) == (4, True)
    assert (entry.api_key, entry.is_injected, entry.is_tls) == (KEY, True, True)
    assert (entry.ca_file, entry.server_name) == (str(ca), "inner.example")
    assert entry.trust is not None
    assert KEY not in repr(entry)


def test_a_plain_endpoint_asks_for_nothing() -> None:
    """No key, no TLS, no file is read."""
    (entry,) = entries_of(settings(endpoints=["10.0.0.5:8080"]).endpoints)
    assert str(entry) == "10.0.0.5:8080"
    assert (entry.api_key, entry.is_tls, entry.ca_file, entry.ca_digest) == (
        *(None, False),
        *(None, ""),
    )


def test_names_are_services_where_they_are_srv() -> None:
    """A name of hosts brings its port, a name of services none."""
    hosts, services = names_of(
        settings(discovery={"dns": ["dns://llama:8080", "srv://_llama._tcp.example"]}).discovery.dns
    )
    assert (hosts.is_service, hosts.entry.host, hosts.entry.port) == (False, "llama", 8080)
    assert (services.is_service, services.entry.port) == (True, 0)


def test_other_cas_at_the_same_place_are_others(tmp_path: Path) -> None:
    """The digest tells, so that a certificate that was replaced is noticed."""
    ca = Authority(tmp_path, "ca").ca
    endpoints = settings(endpoints=[{"address": "https://a:1", "ca_file": str(ca)}]).endpoints
    (before,) = entries_of(endpoints)
    (unchanged,) = entries_of(endpoints)
    Authority(tmp_path, "ca")
    (after,) = entries_of(endpoints)
    assert before == unchanged
    assert before.ca_digest != after.ca_digest


def _missing(path: Path) -> None:
    pass


def _no_certificates(path: Path) -> None:
    path.write_text("nothing of the kind")


def _enormous(path: Path) -> None:
    certificate = Authority(path.parent).ca.read_bytes()
    path.write_bytes(certificate + b"\n" * 5 * 1024 * 1024)


@pytest.mark.parametrize("make", [_missing, _no_certificates, _enormous, Path.mkdir, os.mkfifo])
def test_cas_that_are_none(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """The endpoint and the file are named; a pipe nobody writes to is not waited for."""
    ca = tmp_path / "ca.pem"
    make(ca)
    endpoints = settings(endpoints=[{"address": "https://a:1", "ca_file": str(ca)}]).endpoints
    with pytest.raises(SettingsError) as caught:
        entries_of(endpoints)
    (problem,) = caught.value.problems
    assert problem.key == "ca_file" and "a:1" in problem.where
    assert problem.message.startswith(f"{ca}: ")


def test_a_key_that_no_header_can_carry_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says what is wrong with it, and not what it is."""
    monkeypatch.setenv("GPU_KEY", "sk secret")
    endpoints = settings(endpoints=[{"address": "a:1", "api_key_env": "GPU_KEY"}]).endpoints
    with pytest.raises(SettingsError) as caught:
        entries_of(endpoints)
    assert "visible ASCII" in str(caught.value) and "secret" not in str(caught.value)


def test_an_endpoints_file_reports_its_secrets_also_when_one_is_missing(tmp_path: Path) -> None:
    """So that the key's coming is noticed, though the file itself does not change."""
    noted: list[set[Path]] = []
    key = tmp_path / "key"
    content = f"endpoints: [{{address: 'a:1', api_key_file: '{key}'}}]".encode()
    with pytest.raises(EndpointEntryError, match=str(key)):
        read_endpoints(content, "fleet.yaml", noted.append)
    key.write_text(KEY)
    (entry,) = read_endpoints(content, "fleet.yaml", noted.append)
    assert entry.api_key == KEY
    assert noted == [{key}, {key}]


def test_a_broken_endpoints_file_names_all_its_mistakes() -> None:
    """In one message, each with its line."""
    content = b"endpoints:\n  - {address: 'a:1', slot: 2}\n  - {address: 'b'}\n"
    with pytest.raises(EndpointEntryError) as caught:
        read_endpoints(content, "fleet.yaml", lambda files: None)
    assert "fleet.yaml:2" in str(caught.value) and "fleet.yaml:3" in str(caught.value)


def test_secret_files_of_many() -> None:
    """Keys and CAs, with the home folder put in."""
    endpoints = settings(
        endpoints=[
            {"address": "https://a:1", "ca_file": "~/ca.pem", "api_key_file": "/keys/a"},
            {"address": "b:1"},
        ]
    ).endpoints
    assert secret_files(endpoints) == {Path.home() / "ca.pem", Path("/keys/a")}


def test_how_a_machine_is_woken_reaches_the_core() -> None:
    """The MAC address in one form, the port of the broadcast apart from it."""
    wake = {"mac": "02-00-00-00-00-0A", "broadcast": "10.0.0.255:7", "sleep_command": ["off"]}
    (entry,) = entries_of(settings(endpoints=[{"address": "10.0.0.5:1", "wake": wake}]).endpoints)
    options = WakeOptions(
        mac="02:00:00:00:00:0a", broadcast=("10.0.0.255", 7), sleep_command=("off",)
    )
    assert entry.wake == discover(entry, "10.0.0.5").spec.wake == options
