"""The supervisor's part in a cluster: asks the engine who leads, and says what follows from that.

    beat, each eighth of a lease -> this member leads: its core is permitted to decide until ...
                                 -> another one leads: this member's fronts follow it

The engine is asked by one task. While it does not answer, everything stays as it is.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from extproc.app.version import own_version
from extproc.core.processes import ClusterMember, ClusterReport
from extproc.processes.cluster.election import Election
from extproc.processes.cluster.engine import Engine, EngineError, Leader, Member
from extproc.processes.cluster.intent_store import IntentStore
from extproc.settings.cluster_section import ClusterSettings

BEATS_PER_LEASE: Final = 8

log = logging.getLogger("coxswain.cluster")


class ClusterPart:
    """Belongs to one event loop.

    `can_lead` says whether a core of this machine could decide now, `follows` whether a front of
    this machine hears a leader that decides; `fronts` are the names of its fronts. `changed` is
    called after each beat.
    """

    def __init__(
        self,
        settings: ClusterSettings,
        engine: Engine,
        *,
        can_lead: Callable[[], bool],
        follows: Callable[[], bool],
        fronts: Callable[[], tuple[str, ...]],
        changed: Callable[[], None],
    ) -> None:
        self.name = settings.member_name
        self.qualified = settings.front_name
        """The name of a front of this machine, as other machines know it."""
        self.election = Election(settings.lease_s, settings.without_engine == "stay")
        self.intents = IntentStore()
        """What operators asked for, while this member leads."""
        self.elections = 0
        """How often this member was elected."""
        self._member = Member(
            id=f"{self.name}/{os.urandom(6).hex()}",
            name=self.name,
            address=settings.advertise or "",
            version=own_version(),
        )
        self._engine = engine
        self._can_lead = can_lead
        self._follows = follows
        self._fronts = fronts
        self._changed = changed
        self._error = ""
        self._task: asyncio.Task[None] | None = None
        self._syncing: asyncio.Task[None] | None = None

    @property
    def id(self) -> str:
        return self._member.id

    @property
    def is_leading(self) -> bool:
        return self.election.is_leading

    def start(self) -> None:
        """Begin to ask the engine."""
        self._task = asyncio.create_task(self._run())

    def leader(self) -> Leader | None:
        """The leader to follow; None if it is this member, or unknown."""
        leader = self.election.leader
        return None if leader is None or leader.id == self.id else leader

    def others(self) -> tuple[Member, ...]:
        """The other members that lived at the last contact."""
        return tuple(each for each in self.election.members if each.id != self.id)

    def term(self) -> dict[str, Any]:
        """Of the present leader: what a front must know to follow it."""
        leader = self.election.leader
        if leader is None:
            return {}
        return {
            "leader": leader.id,
            "epoch": leader.epoch,
            "is_clean": leader.is_clean,
            "address": leader.address,
        }

    def lease_grant(self) -> dict[str, Any]:
        """For the core of this member, while it leads."""
        election = self.election
        return {
            "until": election.permitted_until,
            "followed_until": election.followed_until,
            "fronts": sorted(election.fronts_of_others(self.id, time.monotonic())),
        }

    def report(self) -> dict[str, Any]:
        """For operators."""
        leader, election = self.election.leader, self.election
        return ClusterReport(
            member=self.name,
            leader="" if leader is None else leader.name,
            is_leading=election.is_leading,
            epoch=election.epoch,
            elections=self.elections,
            is_in_touch=election.is_in_touch,
            engine_error=self._error,
            members=tuple(
                ClusterMember(
                    name=each.name,
                    address=each.address,
                    version=each.version,
                    fronts=len(each.fronts),
                    is_leading=leader is not None and each.id == leader.id,
                )
                for each in election.members
            ),
        ).as_json()

    async def resign(self) -> None:
        """Let another member lead, for good; our core has ended."""
        self.election.resign()
        with suppress(EngineError):
            await self._engine.resign(self.id)

    async def aclose(self) -> None:
        """Leave the cluster."""
        tasks = [each for each in (self._task, self._syncing) if each is not None]
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with suppress(EngineError):
            if self.election.is_leading:
                await self._engine.resign(self.id)
            await self._engine.leave(self.id)
        await self._engine.aclose()

    async def _run(self) -> None:
        while True:
            await self._beat()
            try:
                self._changed()
            except Exception:
                log.exception("handling the engine's answer failed")
            await asyncio.sleep(self._pause_s())

    async def _beat(self) -> None:
        election, was_leading = self.election, self.election.is_leading
        member = replace(self._member, fronts=self._fronts(), follows=self._follows())
        sent_at = time.monotonic()
        beat = election.beat(member, sent_at, can_lead=self._can_lead())
        try:
            view = await self._engine.beat(beat)
        except EngineError as error:
            if not self._error:
                log.error("the engine does not answer: %s", error)
            self._error = str(error)
            self.intents.lost()
            election.failed(sent_at)
            return
        if self._error:
            log.warning("the engine answers again")
            self._error = ""
        before = election.leader
        election.answered(beat, view, sent_at, time.monotonic())
        if election.is_leading and not was_leading:
            self.elections += 1
            log.warning("this member leads, epoch %d", election.epoch)
            self.intents.begin()
            await self._sync()  # its core is to know them before it decides
        elif election.leader not in (None, before) and not election.is_leading:
            assert election.leader is not None
            log.warning("%s leads, epoch %d", election.leader.name, election.epoch)
        elif election.is_leading and (self._syncing is None or self._syncing.done()):
            self._syncing = asyncio.create_task(self._sync())

    async def _sync(self) -> None:
        try:
            await self.intents.sync(self._engine, self.id, time.monotonic())
        except EngineError as error:
            self.intents.lost()
            log.warning("what operators asked for is not exchanged with the engine yet: %s", error)

    def _pause_s(self) -> float:
        if self.election.is_leading or self._follows():
            return self.election.lease_s / BEATS_PER_LEASE
        return self._engine.eager_s
