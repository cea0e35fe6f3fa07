"""Claims about scraper/discovery/discovered_endpoint.py."""

from __future__ import annotations

import pytest

from extproc.core.address import Address, AddressError
from extproc.security.secret_file import authorization_of
from scraper.discovery.discovered_endpoint import EndpointEntry, EndpointEntryError, discover

IP = "10.0.0.5"


def test_an_address_in_other_words_is_the_same_endpoint() -> None:
    """Two sources may write it differently."""
    entry = EndpointEntry(host="gpu", port=8080)
    assert discover(entry, "::ffff:10.0.0.5").spec.address == Address(IP, 8080)


def test_a_name_is_shown_and_spoken_to_and_an_ip_is_not() -> None:
    by_name = discover(EndpointEntry(host="gpu", port=8080), IP)
    assert by_name.spec.hostname == "gpu"
    assert by_name.target is not None and by_name.target.host_name == "gpu"
    by_ip = discover(EndpointEntry(host=IP, port=8080), IP)
    assert by_ip.spec.hostname == ""
    assert by_ip.target is not None and by_ip.target.host_name is None


def test_the_server_name_of_the_settings_wins_over_the_host() -> None:
    entry = EndpointEntry(host="gpu", port=8080, is_tls=True, server_name="llama.example")
    found = discover(entry, IP)
    assert found.spec.server_name == "llama.example"
    assert found.target is not None and found.target.host_name == "llama.example"


def test_envoy_verifies_a_name_only_under_tls() -> None:
    entry = EndpointEntry(host="gpu", port=8080, server_name="llama.example")
    assert discover(entry, IP).spec.server_name == ""


@pytest.mark.parametrize("is_injected", [False, True])
def test_envoy_gets_a_key_only_to_inject_it(is_injected: bool) -> None:
    """The scraper always has it."""
    entry = EndpointEntry(host=IP, port=8080, api_key="sesame", is_injected=is_injected)
    found = discover(entry, IP)
    assert found.target is not None and found.target.api_key == "sesame"
    assert found.spec.authorization == (authorization_of("sesame") if is_injected else "")


def test_without_a_key_there_is_nothing_to_inject() -> None:
    entry = EndpointEntry(host=IP, port=8080, is_injected=True)
    assert discover(entry, IP).spec.authorization == ""


@pytest.mark.parametrize("ip", ["gpu", "", "0.0.0.0", "224.0.0.1", "10.0.0.256"])
def test_what_is_no_address_of_a_server_is_rejected(ip: str) -> None:
    with pytest.raises(AddressError):
        discover(EndpointEntry(host="gpu", port=8080), ip)


def test_a_server_that_could_not_be_asked_is_rejected_without_its_key() -> None:
    entry = EndpointEntry(host="gpu", port=8080, server_name="my gpu", api_key="sesame")
    with pytest.raises(AddressError) as caught:
        discover(entry, IP)
    assert "my gpu" in str(caught.value) and "sesame" not in str(caught.value)


@pytest.mark.parametrize("key", ["", "two words", "b\u00e4r", "new\nline"])
def test_a_key_that_no_header_can_carry_names_the_endpoint_alone(key: str) -> None:
    with pytest.raises(EndpointEntryError) as caught:
        EndpointEntry(host="fd00::1", port=1, api_key=key)
    assert "[fd00::1]:1" in str(caught.value)
    assert not key or key not in str(caught.value)


def test_no_key_is_shown() -> None:
    entry = EndpointEntry(host="gpu", port=1, api_key="sesame")
    assert "sesame" not in f"{entry!r} {entry} {discover(entry, IP)!r}"
