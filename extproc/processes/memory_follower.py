"""Keeps a member that stands by listening to what the leader of another machine learns."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final, cast

from extproc.pb.coxswain.cluster.v1 import link_pb2 as pb
from extproc.processes.fronts.frames import Frame
from extproc.processes.fronts.handshake import HandshakeError
from extproc.processes.fronts.link import Link
from extproc.processes.leader_connection import connect_with_leader
from extproc.processes.learned_frames import hash_seed, learned_codec
from extproc.processes.memory_feed import Memory
from extproc.settings import SettingsError
from extproc.settings.cluster_section import ClusterSettings

RETRY_S: Final = 2.0
CHECK_S: Final = 1.0
SILENT_S: Final = 10.0
"""A leader says something four times a second."""

log = logging.getLogger("coxswain.cluster")


class MemoryFollower:
    """The owner of its link; belongs to one event loop.

    `use_seed` is called with the seed of the leader's hashes if this process has another one: it
    cannot use what is said about prompts.
    """

    def __init__(
        self, cluster: ClusterSettings, memory: Memory, use_seed: Callable[[int], None]
    ) -> None:
        self._cluster = cluster
        self._memory = memory
        self._use_seed = use_seed
        self._loop = asyncio.get_running_loop()
        self._term: dict[str, Any] = {}
        self._task: asyncio.Task[None] | None = None

    def follow(self, term: dict[str, Any]) -> None:
        """Listen to this leader; what the one before has said is kept until it says more."""
        if term == self._term:
            return
        self._term = term
        if self._task is not None:
            self._task.cancel()
        self._task = self._loop.create_task(self._run(term))

    async def stop(self) -> None:
        """Listen to nobody."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, term: dict[str, Any]) -> None:
        error = ""
        while True:
            link = Link(self, self._loop, str(term["leader"]), learned_codec())
            try:
                await connect_with_leader(
                    self._cluster,
                    term,
                    pb.Greeting.PURPOSE_LEARN,
                    lambda link=link: cast("asyncio.Protocol", link),  # type: ignore[misc]
                )
                error = ""
                await self._while_it_speaks(link)
            except (OSError, HandshakeError, SettingsError, TimeoutError) as found:
                if str(found) != error:
                    log.info("what the leader learns cannot be heard: %s", found)
                error = str(found)
            finally:
                link.close()
            await asyncio.sleep(RETRY_S)

    async def _while_it_speaks(self, link: Link) -> None:
        while link.is_open and link.silent_s() < SILENT_S:  # noqa: ASYNC110 - silence is no event
            await asyncio.sleep(CHECK_S)

    # The owner of the link

    def heard(self, link: Link, batch: list[Frame]) -> None:
        self._memory.heard(link, batch)
        seed, _ = hash_seed()
        if self._memory.core_seed not in (0, seed):
            self._use_seed(self._memory.core_seed)

    def lost(self, link: Link) -> None:
        """It is connected again."""
