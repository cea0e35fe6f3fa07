"""Claims about extproc/app/live_settings.py: what a reload takes over, and what it leaves."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from extproc.admin.dependencies import ReloadError
from extproc.app.live_settings import LiveSettings
from extproc.security import reading
from extproc.settings import Settings, SettingsError
from extproc.settings.problems import Problem


class Service:
    """Takes settings over, tells of these news, or rejects."""

    def __init__(self, *news: str) -> None:
        self.taken: list[Settings] = []
        self.news = news
        self.problem = ""

    async def apply(self, settings: Settings) -> Sequence[str]:
        news = await self.rehearse(settings)
        self.taken.append(settings)
        return news

    async def rehearse(self, _: Settings) -> Sequence[str]:
        if self.problem:
            raise SettingsError([Problem(where="", key="", message=self.problem)])
        return self.news

    async def reread(self) -> Sequence[str]:
        return self.news


def live(
    service: Service, load: Callable[[], Settings] | None = None, **present: Any
) -> LiveSettings:
    present_ones = Settings.model_validate(present)
    calls = (service.apply, service.rehearse, service.reread)
    return LiveSettings(present_ones, *calls, load, "coxswain.yaml")


def loads(**fresh: Any) -> Callable[[], Settings]:
    return lambda: Settings.model_validate(fresh)


async def test_what_is_hot_is_in_force_and_the_rest_is_named() -> None:
    """The settings in force are the old ones but for what could be taken over."""
    service = Service()
    fresh = loads(
        queue={"timeout_s": 30, "max_requests": 9},
        listen={"grpc": "127.0.0.1:7002"},
        scraper={"slow_interval_s": 5},
    )
    harness = live(service, fresh)
    reloaded = await harness.reload(is_dry_run=False)
    assert reloaded.applied == ("queue.max_requests", "queue.timeout_s")
    assert reloaded.needs_restart == ("listen.grpc", "scraper.slow_interval_s")
    assert service.taken == [harness.present]
    assert (harness.present.queue.timeout_s, harness.present.queue.max_requests) == (30, 9)
    assert harness.present.listen.grpc == Settings().listen.grpc
    again = await harness.reload(is_dry_run=False)
    assert again.applied == () and again.needs_restart == reloaded.needs_restart


async def test_a_dry_run_changes_nothing() -> None:
    service = Service()
    harness = live(service, loads(queue={"timeout_s": 30}))
    assert (await harness.reload(is_dry_run=True)).applied == ("queue.timeout_s",)
    assert service.taken == [] and harness.present == Settings()


async def test_a_dry_run_reads_what_the_settings_name() -> None:
    """It tells of new content of a file, and rejects what a reload would refuse."""
    service = Service("endpoints")
    harness = live(service, loads())
    assert (await harness.reload(is_dry_run=True)).applied == ("endpoints",)
    service.problem = "/etc/key cannot be read"
    with pytest.raises(ReloadError, match="cannot be read"):
        await harness.reload(is_dry_run=True)
    assert service.taken == []


async def test_what_is_left_out_goes_back_to_its_default() -> None:
    """A line that was deleted counts as well as one that was changed; so does a whole section."""
    fresh = loads(endpoints=[])
    harness = live(Service(), fresh, endpoints=["10.0.0.1:8080"], queue={"timeout_s": 5})
    assert (await harness.reload(is_dry_run=False)).applied == ("endpoints", "queue.timeout_s")
    assert harness.present == Settings()


async def test_a_mistake_leaves_the_old_ones() -> None:
    """Whether it is found while they are read, or while they are taken over."""

    def broken() -> Settings:
        problem = Problem(where="coxswain.yaml:3", key="queue.timeot_s", message="unknown key")
        raise SettingsError([problem])

    service = Service()
    with pytest.raises(ReloadError, match=r"coxswain.yaml:3"):
        await live(service, broken).reload(is_dry_run=False)
    assert service.taken == []
    harness = live(service, loads(queue={"timeout_s": 30}))
    service.problem = "endpoints: /etc/key cannot be read"
    with pytest.raises(ReloadError, match="cannot be read"):
        await harness.reload(is_dry_run=False)
    assert harness.present == Settings()


@pytest.mark.parametrize(
    ("present", "key"),
    [
        ({"endpoints": ["10.0.0.1:8080"]}, "endpoints"),
        ({"discovery": {"dns": ["dns://llama:8080"]}}, "discovery.dns"),
    ],
)
@pytest.mark.parametrize("is_dry_run", [False, True])
async def test_no_server_goes_without_a_word(
    present: dict[str, Any], key: str, is_dry_run: bool
) -> None:
    """A file that was cut before its servers is valid; it does not empty the fleet. Where it says
    that there are none, it does."""
    service = Service()
    reloads: list[None] = []
    harness = live(service, loads(queue={"timeout_s": 5}), **present)
    harness.on_reloaded = lambda: reloads.append(None)
    before = harness.present
    with pytest.raises(ReloadError, match=re.escape(f"write `{key}: []`")):
        await harness.reload(is_dry_run=is_dry_run)
    assert (harness.present, service.taken, reloads) == (before, [], [])
    section, _, rest = key.partition(".")
    said = {section: {rest: []} if rest else []}
    harness = live(service, loads(**said), **present)
    harness.on_reloaded = lambda: reloads.append(None)
    assert (await harness.reload(is_dry_run=is_dry_run)).applied == (key,)
    assert len(reloads) == len(service.taken) == (0 if is_dry_run else 1)


async def test_a_file_that_blocks_hangs_no_later_reload(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one of a server that is gone: that reload fails, and the next one reads again."""
    monkeypatch.setattr(reading, "READ_S", 0.05)
    is_back = threading.Event()
    reads = iter((is_back.wait, loads(queue={"timeout_s": 30})))

    def load() -> Settings:
        found = next(reads)()
        assert isinstance(found, Settings)
        return found

    harness = live(Service(), load)
    try:
        async with asyncio.timeout(60):
            with pytest.raises(ReloadError, match="file system does not answer"):
                await harness.reload(is_dry_run=False)
            assert (await harness.reload(is_dry_run=False)).applied == ("queue.timeout_s",)
    finally:
        is_back.set()


async def test_new_content_of_a_file_is_reported_although_no_setting_changed() -> None:
    service = Service("endpoints")
    reloaded = await live(service, loads()).reload(is_dry_run=False)
    assert reloaded.applied == ("endpoints",) and len(service.taken) == 1


async def test_one_that_was_started_without_settings_says_so() -> None:
    with pytest.raises(ReloadError, match="without settings"):
        await live(Service()).reload(is_dry_run=True)


async def test_two_reloads_go_one_after_the_other() -> None:
    """Two operators, or SIGHUP beside one: the first does not undo what the second brought."""
    values = iter((30.0, 40.0))
    overtaken = asyncio.Event()

    async def apply(settings: Settings) -> Sequence[str]:
        if settings.queue.timeout_s == 30.0:
            with suppress(TimeoutError):
                await asyncio.wait_for(overtaken.wait(), 0.2)
        else:
            overtaken.set()
        return ()

    def load() -> Settings:
        return Settings.model_validate({"queue": {"timeout_s": next(values)}})

    harness = LiveSettings(Settings(), apply, Service().rehearse, Service().reread, load)
    await asyncio.gather(*(harness.reload(is_dry_run=False) for _ in range(2)))
    assert harness.present.queue.timeout_s == 40.0


async def test_keys_that_were_read_again_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    """Where any is new; nobody asked for this reading, so nobody else could be told."""
    caplog.set_level(logging.INFO, "coxswain.settings")
    service = Service("endpoints")
    harness = live(service)
    await harness.refresh()
    service.news = ()
    await harness.refresh()
    assert caplog.messages == ["reloaded keys or certificates: endpoints"]
    assert service.taken == []


async def test_a_map_is_one_setting() -> None:
    """Names that operators chose come, go and change whole: models, objectives and limits."""
    service = Service()
    limits = {"keys_file": "keys", "limits": {"web": {"requests": 1}}}
    fresh = loads(
        models={"chat": {"small": 1}},
        objectives={"gold": {"models": ["chat"], "criticality": "critical"}},
        routing={"model_match": "strict", "path_prefix": "/llama"},
        clients=limits,
    )
    present = {"models": {"chat": "tiny", "old": "tiny"}, "clients": {"keys_file": "keys"}}
    harness = live(service, fresh, **present)
    reloaded = await harness.reload(is_dry_run=False)
    assert reloaded.applied == ("clients.limits", "models", "objectives", "routing.model_match")
    assert reloaded.needs_restart == ("routing.path_prefix",)
    in_force = harness.present
    assert in_force.models == {"chat": {"small": 1.0}}
    assert in_force.objectives["gold"].criticality == "critical"
    assert in_force.clients.limits["web"].requests == 1
    assert in_force.routing.path_prefix == ""


async def test_what_is_valid_only_with_a_restart_changes_nothing() -> None:
    """Limits of tokens need the count of usage, which begins at a start."""
    limits = {"web": {"tokens_per_minute": 9}}
    fresh = loads(clients={"keys_file": "keys", "limits": limits}, usage={"path": "usage.db"})
    service = Service()
    harness = live(service, fresh, clients={"keys_file": "keys"})
    with pytest.raises(ReloadError, match=r"clients\.limits cannot change without usage\.path"):
        await harness.reload(is_dry_run=False)
    assert service.taken == [] and not harness.present.clients.limits


async def test_what_came_of_a_reload_is_told() -> None:
    """Of a dry run nothing is."""
    service = Service()
    settings = live(service, loads(queue={"timeout_s": 30}, listen={"grpc": "127.0.0.1:1"}))
    told: list[tuple[str, str]] = []
    settings.on_reload_ended = lambda kind, text: told.append((kind, text))
    await settings.reload(is_dry_run=True)
    assert not told
    await settings.reload(is_dry_run=False)
    service.problem = "a file is missing"
    with pytest.raises(ReloadError):
        await settings.reload(is_dry_run=True)
    with pytest.raises(ReloadError):
        await settings.reload(is_dry_run=False)
    assert told == [
        (
            "reloaded",
            "the settings were reloaded; changed: queue.timeout_s; need a restart: listen.grpc",
        ),
        ("reload-rejected", "the settings are unchanged: a file is missing"),
    ]
    await live(Service(), Settings).reload(is_dry_run=False)
