"""One llama-server as we know it: what was observed of it, and what the operator wants.

Health (observed):  loading <-> ready <-> degraded <-> asleep, any -> down, down -> any by one
good look. Intent (wanted): active, draining, disabled. A new endpoint is loading and active.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import assert_never

from extproc.core.address import Address
from extproc.core.fleet.health import SERVING, Health
from extproc.core.observation import Issue, ModelReading, Observation, ScrapeStatus, is_router


class Intent(Enum):
    ACTIVE = "active"
    DRAINING = "draining"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSpec:
    """How an endpoint was named: its address, a name for people, the host name it came from.

    `slots` is what to assume for a server that does not tell, None to believe the server.
    `tls_profile` names how Envoy speaks TLS to it, empty for in the clear; `server_name` is
    the name to find in its certificate, where the profile does not tell. `authorization` is
    what Envoy sends it as that header, empty for what the client sent.
    """

    address: Address
    name: str = ""
    hostname: str = ""
    slots: int | None = None
    tls_profile: str = ""
    server_name: str = ""
    authorization: str = field(default="", repr=False)
    is_reported: bool = False
    """An agent names it; what others say of the same address counts before."""

    @property
    def requires_envoy_support(self) -> bool:
        """It has to wait for word that Envoy is able to: one that does not know better would
        speak to it in the clear, or without its key."""
        return bool(self.tls_profile or self.authorization)


ASSUMED_SLOTS = 1
"""Slots of a server that serves but tells nobody how many: the only safe guess."""


class Endpoint:
    """Live state of one endpoint. Its slot numbers are the ledger's, not here."""

    __slots__ = (
        "adapter_ids",
        "consecutive_failures",
        "context_tokens",
        "ejection_issue",
        "envoy_issue",
        "has_reported",
        "health",
        "intent",
        "is_ejected",
        "is_fresh",
        "is_removed",
        "is_routable",
        "is_router",
        "models",
        "models_by_name",
        "observed_at",
        "observed_issues",
        "spec",
    )

    def __init__(self, spec: EndpointSpec) -> None:
        self.spec = spec
        self.health = Health.LOADING
        self.intent = Intent.ACTIVE
        self.is_removed = False
        """No source names it any more; it stays while its leases run."""
        self.is_routable = not spec.requires_envoy_support
        """Envoy knows it (endpoint discovery says when)."""
        self.envoy_issue: Issue | None = None
        """What about Envoy's configuration keeps requests away from it."""
        self.is_ejected = False
        """It failed requests and gets none for now: see `extproc.core.outliers`."""
        self.ejection_issue: Issue | None = None
        """Why it is or was ejected, until a trial request succeeds."""
        self.is_fresh = False
        """Its last observation is recent enough; otherwise it is a backup."""
        self.observed_issues: tuple[Issue, ...] = ()
        self.models: tuple[ModelReading, ...] = ()
        self.models_by_name: Mapping[str, ModelReading] = {}
        """Its models by name and alias."""
        self.is_router = False
        """It has several models, and reads in each request which one is meant."""
        self.adapter_ids: Mapping[str, int] = {}
        """The numbers that this server gives its adapters, by name."""
        self.has_reported = False
        """It told which models and adapters it has, as far as it ever will."""
        self.context_tokens: int | None = None
        self.observed_at: float | None = None
        self.consecutive_failures = 0

    @property
    def address(self) -> Address:
        return self.spec.address

    @property
    def issues(self) -> tuple[Issue, ...]:
        """Whatever an operator should mend."""
        if self.envoy_issue is None and self.ejection_issue is None:
            return self.observed_issues
        ours = (self.envoy_issue, self.ejection_issue)
        return (*(issue for issue in ours if issue is not None), *self.observed_issues)

    @property
    def is_serving(self) -> bool:
        """It answers requests, if only once its model is loaded again."""
        return self.health in SERVING

    @property
    def is_usable(self) -> bool:
        """As far as health, Envoy and operators are concerned."""
        return (
            self.health in SERVING
            and self.is_routable
            and not self.is_removed
            and self.intent is Intent.ACTIVE
        )

    @property
    def is_pickable(self) -> bool:
        """New leases may be opened here, as far as slots allow."""
        return not self.is_ejected and self.is_usable

    @property
    def is_first_choice(self) -> bool:
        """Fresh and awake; the others are backups, used when no first choice has a slot."""
        return self.is_fresh and self.health is not Health.ASLEEP

    def has_adapters(self, numbers: frozenset[int]) -> bool:
        """Whether it has an adapter for each of its own numbers."""
        return numbers <= frozenset(self.adapter_ids.values())

    def takes_name(self, said: str, model: str | None) -> bool:
        """Whether a request that is meant for `model` (None: any) may say `said` here: a plain
        server does not read it, to a router it must be another name of that model."""
        if not self.is_router:
            return True
        reading = self.models_by_name.get(said)
        return reading is not None and (model is None or reading is self.models_by_name.get(model))

    def observe(self, observation: Observation, failures_to_down: int) -> None:
        """Take in what a look told about health. Freshness is set apart: see `refresh`."""
        match observation.status:
            case ScrapeStatus.READY:
                self._answered(observation, Health.DEGRADED if observation.issues else Health.READY)
            case ScrapeStatus.ASLEEP:
                self._answered(observation, Health.ASLEEP)
            case ScrapeStatus.LOADING:
                self._answered(observation, Health.LOADING)
            case ScrapeStatus.UNREACHABLE:
                self.lose(observation.issues)
            case ScrapeStatus.FAILED:
                self.consecutive_failures += 1
                self.observed_issues = observation.issues
                if self.consecutive_failures >= failures_to_down:
                    self.health = Health.DOWN
            case _:
                assert_never(observation.status)

    def lose(self, issues: tuple[Issue, ...] = ()) -> None:
        """A connection to it was refused: it is down until one good look."""
        self.health = Health.DOWN
        self.observed_issues = issues

    def replaced(self) -> None:
        """Another process is there: it has its own adapters, by its own numbers."""
        self.adapter_ids = {}
        self.has_reported = False

    def _answered(self, observation: Observation, health: Health) -> None:
        self.health = health
        self.observed_issues = observation.issues
        if observation.models and observation.models != self.models:
            self.models = observation.models
            self.models_by_name = _by_name(observation.models)
            self.is_router = is_router(observation.models)
        if observation.adapters is not None:
            self.adapter_ids = {adapter.name: adapter.id for adapter in observation.adapters}
        if health is not Health.LOADING and not observation.awaits_adapters:
            self.has_reported = True
        self.context_tokens = observation.context_tokens or self.context_tokens
        self.consecutive_failures = 0

    def refresh(self, observed_at: float) -> None:
        """Its slot numbers were brought up to date."""
        self.observed_at = observed_at
        self.is_fresh = True


def _by_name(models: tuple[ModelReading, ...]) -> dict[str, ModelReading]:
    """Names win over aliases, and of two equal names the first one."""
    readings: dict[str, ModelReading] = {}
    for model in models:
        readings.setdefault(model.name, model)
    for model in models:
        for alias in model.aliases:
            readings.setdefault(alias, model)
    return readings
