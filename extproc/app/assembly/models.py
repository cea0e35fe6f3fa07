"""Machines: which models are wanted there, who loads them, and which machines sleep."""

import time
from collections.abc import Iterable

from extproc.admin.keepers import KeepersDependencies, KeepersService
from extproc.app.assembly.core import CoreAssembly
from extproc.app.assembly.fleet import FleetAssembly
from extproc.app.placement import Placement
from extproc.app.routers import Routers
from extproc.app.sleeping_machines import SleepingMachines
from extproc.settings import Settings


class ModelsAssembly:
    """`routers` is None where this picker loads no models on routers."""

    def __init__(self, core: CoreAssembly, fleet: FleetAssembly, settings: Settings) -> None:
        self.placement = Placement(
            core.dispatcher, self._want, time.monotonic, settings.swap.for_core()
        )
        self.keepers = KeepersService(
            KeepersDependencies(
                clock=time.monotonic,
                changed=self.placement.changed,
                forgotten=self.placement.forgotten,
                may_sleep=lambda name: name in core.dispatcher.options.machines,
            )
        )
        self.sleeping = SleepingMachines(
            core.dispatcher,
            time.monotonic,
            sleepers=self.placement.sleepers,
            slept=self.placement.slept,
        )
        self.routers: Routers | None = None
        if settings.swap.routers:
            self.routers = Routers(
                core.dispatcher,
                self.placement,
                target_of=fleet.sources.target,
                scrape=core.scraper.scrape_now,
                set_leaving=core.scraper.set_leaving,
                clock=time.monotonic,
                is_taken=lambda name: self.keepers.find(name) is not None,
            )
            core.of_routers = self.routers.take

    async def aclose(self) -> None:
        """End the calls to routers."""
        if self.routers is not None:
            await self.routers.aclose()

    def _want(
        self, machine: str, models: Iterable[str], retried: Iterable[str], pinned: Iterable[str]
    ) -> None:
        """What the placement wants of a machine: a router of ours, or one with a keeper. Called
        when a machine is known, after all of this is built."""
        if self.routers is None or not self.routers.want(machine, models, retried, pinned):
            self.keepers.want(machine, models, retried, pinned)
