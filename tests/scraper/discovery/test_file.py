"""The endpoints file: however it is replaced it is followed, and a broken one changes nothing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from extproc.security import reading
from scraper.discovery.discovered_endpoint import EndpointEntry, EndpointEntryError
from scraper.discovery.file import MAX_BYTES, EndpointsFile, Take
from scraper.discovery.static import StaticEndpoints
from tests.fakes.picker import until
from tests.fakes.publications import Publications

STAY = "; keeping its previous 1 endpoints"


def parse(content: bytes) -> list[EndpointEntry]:
    """One `ip:port` a line."""
    entries = []
    for number, line in enumerate(content.decode().split(), start=1):
        host, colon, port = line.partition(":")
        if not colon:
            raise EndpointEntryError(f"line {number}: there is no port")
        entries.append(EndpointEntry(host=host, port=int(port)))
    return entries


def taking(told: Publications) -> Take:
    return StaticEndpoints("file", told).set


@asynccontextmanager
async def watching(path: Path) -> AsyncIterator[tuple[EndpointsFile, Publications]]:
    told = Publications()
    file = EndpointsFile(path, parse, taking(told), interval_s=0.005)
    file.start()
    try:
        yield file, told
    finally:
        await file.aclose()


async def test_it_is_read_at_once_and_after_each_change(tmp_path: Path) -> None:
    path = tmp_path / "endpoints"
    path.write_text("10.0.0.1:1")
    async with watching(path) as (_, told):
        await told.are("10.0.0.1:1")
        path.write_text("10.0.0.1:1 10.0.0.2:2")
        await told.are("10.0.0.1:1", "10.0.0.2:2")
        path.write_text("")
        await told.are()


async def test_one_that_blocks_is_a_problem_until_it_is_a_file_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe whose writer writes nothing; the endpoints stay."""
    monkeypatch.setattr(reading, "READ_S", 0.05)
    path = tmp_path / "endpoints"
    path.write_text("10.0.0.1:1")
    async with watching(path) as (file, told):
        await told.are("10.0.0.1:1")
        path.unlink()
        os.mkfifo(path)
        end = os.open(path, os.O_RDWR)
        try:
            await until(lambda: "does not answer" in file.problem)
            assert file.problem.endswith(STAY)
            path.unlink()
            path.write_text("10.0.0.2:1")
            await told.are("10.0.0.2:1")
        finally:
            os.close(end)


async def test_a_rename_onto_it_is_a_change(tmp_path: Path) -> None:
    path = tmp_path / "endpoints"
    path.write_text("10.0.0.1:1")
    async with watching(path) as (_, told):
        await told.are("10.0.0.1:1")
        fresh = tmp_path / "fresh"
        fresh.write_text("10.0.0.2:1")
        os.utime(fresh, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
        fresh.replace(path)
        await told.are("10.0.0.2:1")


async def test_a_swapped_link_is_a_change(tmp_path: Path) -> None:
    """As Kubernetes updates a mounted ConfigMap: `file -> ..data/file`, `..data -> ..2024`."""
    for version in ("1", "2"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "endpoints").write_text(f"10.0.0.{version}:1")
    data, path = tmp_path / "..data", tmp_path / "endpoints"
    data.symlink_to("1")
    path.symlink_to("..data/endpoints")
    async with watching(path) as (_, told):
        await told.are("10.0.0.1:1")
        fresh = tmp_path / "..data_tmp"
        fresh.symlink_to("2")
        fresh.replace(data)
        await told.are("10.0.0.2:1")


async def test_a_broken_or_missing_file_changes_nothing_and_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "endpoints"
    path.write_text("10.0.0.1:1")
    async with watching(path) as (file, told):
        await told.are("10.0.0.1:1")
        path.write_text("10.0.0.1:1\nnonsense")
        await until_problem(file, "line 2: there is no port" + STAY)
        path.unlink()
        await until_problem(file, f"{path} cannot be read: no such file or directory{STAY}")
        path.write_bytes(b" " * (MAX_BYTES + 1))
        await until_problem(file, f"{path} is larger than 1 MiB{STAY}")
        assert told.count == 1
        path.write_text("10.0.0.3:1")
        await told.are("10.0.0.3:1")
        assert file.problem == ""
    errors = [r.getMessage() for r in caplog.records if r.levelname == "ERROR"]
    assert len(errors) == 3
    assert errors[0].endswith("there is no port; keeping its previous 1 endpoints")


async def test_a_file_that_comes_later_is_taken_when_it_comes(tmp_path: Path) -> None:
    path = tmp_path / "endpoints"
    async with watching(path) as (file, told):
        none = "this file has provided no endpoints yet"
        await until_problem(file, f"{path} cannot be read: no such file or directory; {none}")
        assert told.count == 0
        path.write_text("10.0.0.1:1")
        await told.are("10.0.0.1:1")


async def test_the_same_content_again_is_no_news(tmp_path: Path) -> None:
    path = tmp_path / "endpoints"
    path.write_text("10.0.0.1:1")
    async with watching(path) as (_, told):
        await told.are("10.0.0.1:1")
        path.write_text("10.0.0.1:1 ")
        await asyncio.sleep(0)
        path.write_text("10.0.0.2:1")
        await told.are("10.0.0.2:1")
        assert told.count == 2


class Turns:
    """The watcher's sleep: it goes on when the test lets it, and tells how long it would have."""

    def __init__(self) -> None:
        self._asked_s = 0.0
        self._asleep = asyncio.Event()
        self._turn = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self._asked_s = seconds
        self._asleep.set()
        await self._turn.wait()
        self._turn.clear()

    async def falls_asleep(self) -> None:
        """Wait until it did what it woke up for."""
        await self._asleep.wait()
        self._asleep.clear()

    async def seconds_until(self, is_so: Callable[[], bool]) -> float:
        """How long it sleeps from now on until this is so; at most ten seconds."""
        passed_s = 0.0
        while not is_so() and passed_s < 10:
            passed_s += self._asked_s
            self._turn.set()
            await self.falls_asleep()
        return passed_s


async def test_changes_apply_within_a_second_and_a_broken_file_keeps_the_last_good(
    tmp_path: Path,
) -> None:
    """By what it sleeps between its looks, so on a slow machine, too; right after a scrape is the
    worst moment for a change."""
    path = tmp_path / "endpoints"
    path.write_text("10.0.0.1:1")
    told, turns = Publications(), Turns()
    file = EndpointsFile(path, parse, taking(told), sleep=turns.sleep)
    file.start()
    await turns.falls_asleep()
    assert told.addresses == {"10.0.0.1:1"}
    good = "10.0.0.1:1 10.0.0.2:2"
    path.write_text(good)
    assert await turns.seconds_until(lambda: told.addresses == set(good.split())) <= 1
    path.write_text(f"{good} nonsense")
    assert await turns.seconds_until(lambda: "line 3" in file.problem) <= 1
    assert await turns.seconds_until(lambda: told.addresses != set(good.split())) >= 10
    path.write_text("10.0.0.3:1")
    assert await turns.seconds_until(lambda: told.addresses == {"10.0.0.3:1"}) <= 1
    assert file.problem == ""
    await file.aclose()


async def test_what_nobody_expected_of_a_file_is_reported_and_the_next_change_is_seen(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not a word of the file is in that line: it may hold a key."""

    def read(content: bytes) -> list[EndpointEntry]:
        if b"secret" in content:
            raise KeyError(content)
        return parse(content)

    path = tmp_path / "endpoints"
    path.write_text("10.0.0.1:1")
    told = Publications()
    file = EndpointsFile(path, read, taking(told), interval_s=0.005)
    file.start()
    await told.are("10.0.0.1:1")
    path.write_text("secret")
    await until_problem(file, f"{path} cannot be read: KeyError{STAY}")
    assert "secret" not in caplog.text
    path.write_text("10.0.0.2:1")
    await told.are("10.0.0.2:1")
    await file.aclose()


async def test_what_nobody_took_over_is_reported_and_the_next_change_is_seen(
    tmp_path: Path,
) -> None:
    path = tmp_path / "endpoints"
    path.write_text("10.0.0.1:1")
    told = Publications()
    listed = taking(told)

    def take(entries: Sequence[EndpointEntry]) -> None:
        if len(entries) == 2:
            raise RuntimeError("a fault")
        listed(entries)

    file = EndpointsFile(path, parse, take, interval_s=0.005)
    file.start()
    await told.are("10.0.0.1:1")
    path.write_text("10.0.0.1:1 10.0.0.2:2")
    await until_problem(file, f"{path} cannot be read: RuntimeError{STAY}")
    path.write_text("10.0.0.3:3")
    await told.are("10.0.0.3:3")
    assert file.problem == ""
    await file.aclose()


async def until_problem(file: EndpointsFile, text: str) -> None:
    while file.problem != text:  # noqa: ASYNC110  # it tells nobody
        await asyncio.sleep(0.001)
