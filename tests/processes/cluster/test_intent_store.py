"""Claims about extproc/processes/cluster/intent_store.py: an engine that was lost, or a core
that knows nothing yet, never ends what operators asked for."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from extproc.processes.cluster.engine import Beat, EngineError, View
from extproc.processes.cluster.intent_store import READ_AGAIN_S, IntentStore


class KeptEngine:
    """The part of an engine that keeps entries."""

    def __init__(self, **kept: str) -> None:
        self.eager_s = 0.05
        self.kept = dict(kept)
        self.is_down = False
        self.reads = self.writes = 0

    async def intents(self) -> Mapping[str, str]:
        self._check()
        self.reads += 1
        return dict(self.kept)

    async def set_intents(self, member_id: str, changes: Mapping[str, str | None]) -> None:
        self._check()
        self.writes += 1
        for address, text in changes.items():
            self.kept.pop(address, None)
            if text is not None:
                self.kept[address] = text

    def _check(self) -> None:
        if self.is_down:
            raise EngineError("it is down")

    async def beat(self, beat: Beat) -> View:
        raise NotImplementedError

    async def resign(self, member_id: str) -> None:
        raise NotImplementedError

    async def leave(self, member_id: str) -> None:
        raise NotImplementedError

    async def aclose(self) -> None:
        raise NotImplementedError


async def test_nothing_is_written_before_the_core_has_said_all() -> None:
    engine, store = KeptEngine(a="1", b="1"), IntentStore()
    store.begin()
    await store.sync(engine, "me", 0.0)
    news = [store.is_news]
    assert store.entries() == {"a": "1", "b": "1"}
    news.append(store.is_news)
    assert news == [True, False]
    store.said({"a": "1"}, begins=True, ends=False)
    await store.sync(engine, "me", 1.0)
    assert engine.kept == {"a": "1", "b": "1"}
    store.said({"c": "1"}, begins=False, ends=True)
    await store.sync(engine, "me", 2.0)
    assert engine.kept == {"a": "1", "c": "1"}
    await store.sync(engine, "me", 3.0)
    assert (engine.reads, engine.writes) == (1, 1)


async def test_a_core_that_could_not_get_the_entries_does_not_end_them() -> None:
    engine, store = KeptEngine(a="1"), IntentStore()
    store.begin()
    engine.is_down = True
    with pytest.raises(EngineError):
        await store.sync(engine, "me", 0.0)
    assert not store.is_loaded
    store.said({"b": "1"}, begins=True, ends=True)
    engine.is_down = False
    await store.sync(engine, "me", 1.0)
    assert engine.kept == {"a": "1"}
    assert store.is_news
    assert store.entries() == {"a": "1"}
    store.said({"a": "1", "b": "1"}, begins=True, ends=True)
    await store.sync(engine, "me", 2.0)
    assert engine.kept == {"a": "1", "b": "1"}


async def test_the_cores_word_goes_before_what_an_engine_comes_back_with() -> None:
    engine, store = KeptEngine(), IntentStore()
    store.begin()
    await store.sync(engine, "me", 0.0)
    store.said({"a": "1"}, begins=True, ends=True)
    await store.sync(engine, "me", 1.0)
    engine.is_down = True
    store.said({"a": None, "b": "2"}, begins=False, ends=True)
    with pytest.raises(EngineError):
        await store.sync(engine, "me", 2.0)
    store.lost()
    assert store.entries() == {"b": "2"}, "for a spare of this member"
    engine.is_down, engine.kept = False, {"c": "3"}
    await store.sync(engine, "me", 3.0)
    assert engine.kept == {"b": "2"}
    assert not store.is_news


async def test_an_engine_that_forgot_without_anybody_noticing_gets_everything_again() -> None:
    engine, store = KeptEngine(), IntentStore()
    store.begin()
    await store.sync(engine, "me", 0.0)
    store.said({"a": "1"}, begins=True, ends=True)
    await store.sync(engine, "me", 1.0)
    engine.kept.clear()
    await store.sync(engine, "me", READ_AGAIN_S)
    assert engine.kept == {}
    await store.sync(engine, "me", READ_AGAIN_S + 1.0)
    assert engine.kept == {"a": "1"}
