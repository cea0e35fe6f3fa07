"""Lists of endpoints: literals at once, names when they resolve, keys attached to both."""

from __future__ import annotations

import asyncio

import pytest

from scraper.discovery.discovered_endpoint import EndpointEntry, EndpointEntryError
from scraper.discovery.static import StaticEndpoints, of_one_kind
from tests.fakes.publications import Publications


class Names:
    """A lookup whose names a test gives away one by one."""

    def __init__(self) -> None:
        self.known: dict[str, list[str]] = {}
        self.asked: list[str] = []

    async def __call__(self, host: str) -> list[str]:
        self.asked.append(host)
        await asyncio.sleep(0)
        if host not in self.known:
            raise OSError(-2, "Name or service not known")
        return self.known[host]

    async def were_asked(self, times: int) -> None:
        while len(self.asked) < times:  # noqa: ASYNC110  # the lookups tell nobody
            await asyncio.sleep(0.001)


def listed(told: Publications, names: Names) -> StaticEndpoints:
    return StaticEndpoints("settings", told, names, retry_s=0.005)


async def test_literals_are_published_at_once() -> None:
    told, names = Publications(), Names()
    source = listed(told, names)
    source.set(
        [EndpointEntry(host="10.0.0.1", port=1), EndpointEntry(host="fd00::1", port=2, slots=3)]
    )
    assert told.addresses == {"10.0.0.1:1", "[fd00::1]:2"} and told.is_complete
    assert told.one("[fd00::1]:2").spec.slots == 3
    assert names.asked == []
    await source.aclose()


async def test_a_name_that_stands_for_no_server(caplog: pytest.LogCaptureFixture) -> None:
    """As a blocking name server answers: told of, and the others are taken."""
    told, names = Publications(), Names()
    names.known["gpu"] = ["0.0.0.0", "10.0.0.2"]
    source = listed(told, names)
    source.set([EndpointEntry(host="gpu", port=2)])
    await told.are("10.0.0.2:2")
    assert [record.getMessage() for record in caplog.records] == [
        "settings: gpu: '0.0.0.0' is no address of a single server"
    ]
    await source.aclose()


async def test_a_server_that_nobody_could_ask(caplog: pytest.LogCaptureFixture) -> None:
    """Told of, and the others are taken."""
    told = Publications()
    source = listed(told, Names())
    wrong = EndpointEntry(host="10.0.0.1", port=1, server_name="my gpu", is_tls=True)
    source.set([wrong, EndpointEntry(host="10.0.0.2", port=2)])
    assert told.addresses == {"10.0.0.2:2"} and told.is_complete
    assert caplog.messages == ["settings: 10.0.0.1: 10.0.0.1:1: 'my gpu' is not a host name"]
    await source.aclose()


async def test_a_name_is_resolved_until_it_is_known_and_then_never_again() -> None:
    told, names = Publications(), Names()
    source = listed(told, names)
    source.set(
        [
            EndpointEntry(host="10.0.0.1", port=1),
            EndpointEntry(host="gpu", port=2, api_key="sesame"),
        ]
    )
    assert told.addresses == {"10.0.0.1:1"} and not told.is_complete
    await names.were_asked(3)
    names.known["gpu"] = ["10.0.0.2", "10.0.0.3"]
    await told.are("10.0.0.1:1", "10.0.0.2:2", "10.0.0.3:2")
    await told.were_complete()
    target = told.one("10.0.0.3:2").target
    assert target is not None and target.api_key == "sesame" and target.host_name == "gpu"
    count = len(names.asked)
    names.known.clear()
    source.set([EndpointEntry(host="gpu", port=9)])
    assert told.addresses == {"10.0.0.2:9", "10.0.0.3:9"} and len(names.asked) == count
    await source.aclose()


async def test_a_new_list_does_not_wait_for_the_names_of_the_old_one() -> None:
    told, names = Publications(), Names()
    source = listed(told, names)
    source.set([EndpointEntry(host="nowhere", port=1)])
    await asyncio.sleep(0)
    source.set([EndpointEntry(host="10.0.0.1", port=1)])
    assert told.addresses == {"10.0.0.1:1"} and told.is_complete
    await source.aclose()


async def test_an_unknown_name_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    told, names = Publications(), Names()
    source = listed(told, names)
    source.set([EndpointEntry(host="nowhere", port=1)])
    await names.were_asked(5)
    await source.aclose()
    assert len(caplog.records) == 1 and "nowhere cannot be resolved" in caplog.text


def test_a_key_that_no_header_can_carry_is_rejected_and_not_shown() -> None:
    with pytest.raises(EndpointEntryError) as caught:
        EndpointEntry(host="gpu", port=1, api_key="open sesame")
    assert "gpu:1" in str(caught.value) and "sesame" not in str(caught.value)


def test_a_name_with_both_kinds_of_addresses_counts_by_one() -> None:
    """Or a server that listens on both would have its slots given away twice."""
    assert of_one_kind(["fd00::1", "10.0.0.1", "10.0.0.2"]) == ["10.0.0.1", "10.0.0.2"]
    assert of_one_kind(["fd00::1", "fd00::2"]) == ["fd00::1", "fd00::2"]
    assert of_one_kind([]) == []
