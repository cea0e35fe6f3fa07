"""The core, and its sources of observations, keys and time."""

import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from extproc.app import options
from extproc.app.auditor import Auditor
from extproc.app.budget_days import BudgetDays
from extproc.app.core_timer import CoreTimer
from extproc.app.day_checks import DayChecks
from extproc.app.monitoring.bypasses import Bypasses
from extproc.app.monitoring.envoy_counters import EnvoyCounters
from extproc.app.monitoring.loop_lag import LoopLag
from extproc.app.security.client_keys import ClientKeys
from extproc.app.spill_days import SpillDays
from extproc.app.usage import Usage
from extproc.core.address import Address
from extproc.core.client_limits import ClientLimits
from extproc.core.exchange_registry import ExchangeRegistry
from extproc.core.observation import Observation
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.rules.active_rules import ActiveRules
from extproc.runners.probe import ScrapePriority
from extproc.settings import Settings
from extproc.stream.pending_streams import PendingStreams
from scraper.loop import Scraper


class CoreAssembly:
    """`usage` is None where usage is not counted, `rules` without rules of the operators."""

    def __init__(self, settings: Settings) -> None:
        self.dispatcher = Dispatcher(Random(), options.dispatcher_options(settings))
        self.pending_streams = PendingStreams()
        self.registry = ExchangeRegistry()
        self.limits = ClientLimits(settings.clients.limits_for_core())
        self.client_keys = ClientKeys(settings)
        self.client_keys.on_renewed = self._check_keys
        self.rules: ActiveRules | None = None
        self.timer = CoreTimer(self.dispatcher.advance)
        self.lag = LoopLag(time.monotonic, settings.envoy.message_timeout_s / 2)
        self.bypasses = Bypasses(time.monotonic, self.lag)
        self.envoy_counters = EnvoyCounters(settings.envoy.stats, time.monotonic)
        self.of_routers: Callable[[Observation], Observation] = _unchanged
        """What routers whose models are ours change about an observation, before it counts."""
        self.on_observed: Callable[[Observation], None] = _ignored
        """Called with each observation, for the metrics."""
        self.usage: Usage | None = None
        self.day_checks: tuple[DayChecks, ...] = ()
        self.spill = settings.spill
        self.scraper = Scraper(
            sink=self.observe,
            priority=self._priority,
            options=settings.scraper.for_scraper(loads_models=settings.swap.routers),
            lost_s=self.lag.lost_s,
            name_of=self.dispatcher.fleet.full_name_of,
            wants_counters=self._wants_counters,
        )
        usage = settings.usage
        if usage.path is not None:
            self.usage = Usage(
                Path(usage.path).expanduser(),
                usage.keep_days,
                self.dispatcher,
                self.registry,
                self.limits,
                self.scraper.scrape_now if usage.read_counters else None,
            )
            self.day_checks = (
                SpillDays(self.usage, self.dispatcher, lambda: self.spill),
                BudgetDays(self.usage, self.limits),
            )
        self.auditor = Auditor(
            self.dispatcher, self.registry, self.pending_streams, time.monotonic, self.limits
        )

    def start(self) -> None:
        """Begin to watch. Call it in the event loop."""
        self.client_keys.start()
        for checks in self.day_checks:
            checks.start()
        self.auditor.start()
        self.lag.start()
        self.bypasses.start()
        self.envoy_counters.start()

    async def aclose(self) -> None:
        """The last scrapes and checks."""
        for checks in self.day_checks:
            await checks.aclose()
        await self.scraper.aclose()
        await self.envoy_counters.aclose()
        self.auditor.stop()
        self.lag.stop()
        self.timer.stop()

    @property
    def running(self) -> int:
        """How many exchanges are not queued."""
        return len(self.registry) - len(self.dispatcher.queue)

    def use_rules(self, rules: ActiveRules | None) -> None:
        """Let these rules of the operators decide from now on."""
        self.rules = rules
        self.dispatcher.set_rules(rules, time.monotonic())

    def observe(self, observation: Observation) -> None:
        """Take what a scrape or an agent has seen."""
        observation = self.of_routers(observation)
        self.on_observed(observation)
        self.dispatcher.observe(observation, time.monotonic())
        if self.usage is not None:
            self.usage.observe(observation)

    def problems(self) -> tuple[str, ...]:
        """What Envoys, this process and the count of usage suffer from."""
        return (
            *self.bypasses.problems(),
            *self.envoy_counters.problems(),
            *self.lag.problems(),
            *(self.usage.problems() if self.usage is not None else ()),
            *(problem for checks in self.day_checks for problem in checks.problems()),
        )

    def source_problems(self) -> tuple[str, ...]:
        """What cannot be read: servers, keys, rules, the file of usage."""
        return (
            *self.scraper.problems,
            *self.client_keys.problems(),
            *(self.rules.problems() if self.rules is not None else ()),
            *(self.usage.file_problems() if self.usage is not None else ()),
        )

    def _check_keys(self) -> None:
        """A revoked key opens no more for who waits with it."""
        for exchange in list(self.registry):
            exchange.check_key(time.monotonic())

    def _wants_counters(self, address: Address) -> bool:
        return self.usage is not None and self.usage.wants_counters(address)

    def _priority(self, address: Address) -> ScrapePriority:
        if self.dispatcher.view.needs_frequent_scrapes(address):
            return ScrapePriority.HIGH
        return (
            ScrapePriority.STEADY
            if self.dispatcher.view.has_leases(address)
            else ScrapePriority.IDLE
        )


def _unchanged(observation: Observation) -> Observation:
    return observation


def _ignored(_: Observation) -> None:
    """The default of a callback."""
