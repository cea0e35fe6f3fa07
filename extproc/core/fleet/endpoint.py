"""One llama-server: its specification, what was observed of it, and the operator's intent.

`Endpoint.observe` makes the transitions of its health (`health.py`). Intent: active, draining,
disabled. A new endpoint is loading and active.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, assert_never

from extproc.core.address import Address
from extproc.core.constraints import FIRST_TIER, NO_POOL
from extproc.core.fleet.health import SERVING, UNREACHED, Health, HealthOptions
from extproc.core.observation import Issue, ModelReading, Observation, ScrapeStatus
from extproc.core.price import FREE, Price


class ContextSharing(Enum):
    """Whether the slots of a server share one context, as the operator says."""

    AUTO = "auto"  # it is found out
    SHARED = "shared"
    PER_SLOT = "per_slot"  # each slot has its own


class ContextSource(Enum):
    """How it is known that slots share their context."""

    SETTING = "setting"
    ARGUMENTS = "arguments"  # of its process, or as its router shows them
    OVERFLOW = "overflow"  # its requests ended because it was full
    GUESS = "guess"  # it has as many slots as a server that was started without a number of them


class SharedContext(NamedTuple):
    """The size of a context that several slots share, and how that is known.

    If it is only guessed, it is taken to be shared: to wait without need is better than to lose
    answers. A context that was not shared has soon held more than one slot may hold, as idle slots
    keep their tokens, and counts as what it was seen to hold then.
    """

    tokens: int
    source: ContextSource


class Intent(Enum):
    ACTIVE = "active"
    DRAINING = "draining"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeOptions:
    """How the machine of an endpoint is woken and put to sleep. Endpoints with one `mac` are on one
    machine. Without a `sleep_command` it is only woken. `timeout_s` is how long it may take to
    answer a scrape before it counts as lost."""

    mac: str
    broadcast: tuple[str, int] = ("255.255.255.255", 9)
    after_idle_s: float = 900.0
    sleep_command: tuple[str, ...] = ()
    timeout_s: float = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSpec:
    """The specification of an endpoint: address, display name, and the host name of the address.

    `slots` overrides the reported number; None uses that one. `tls_profile` names how Envoy
    speaks TLS to it, empty for plain text; `server_name` is the name that its certificate must
    hold, if the profile does not define it. `authorization` is the value of that header that Envoy
    sends to it, empty for the client's own.
    """

    address: Address
    name: str = ""
    hostname: str = ""
    slots: int | None = None
    tls_profile: str = ""
    server_name: str = ""
    authorization: str = field(default="", repr=False)
    is_reported: bool = False
    """An agent reports it; other sources for the same address take precedence."""
    kept_models: int = 0
    """The number of models on its machine, if that has a keeper."""
    context: ContextSharing = ContextSharing.AUTO
    labels: tuple[tuple[str, str], ...] = ()
    """What rules may know it by: names and values."""
    tier: int = FIRST_TIER
    """Only requests that may spill get to an endpoint of a higher tier."""
    far_models: tuple[tuple[str, str], ...] = ()
    """Of a higher tier: its own names of models, by the names that our requests have. Empty if it
    has the same names."""
    price: Price = FREE
    wake: WakeOptions | None = None
    """How its machine is woken; None for one that is always on."""
    pool: str = NO_POOL
    """Only requests for its pool get to it."""

    @property
    def requires_pick(self) -> bool:
        """It is one of several models: a request that nobody picked it for may be for another."""
        return self.kept_models > 1

    @property
    def is_far(self) -> bool:
        """Whether it is of a higher tier than the first."""
        return self.tier > FIRST_TIER

    @property
    def requires_envoy_support(self) -> bool:
        """Whether it needs an acknowledgement by Envoy: without its TLS profile or key Envoy
        would send requests in plain text, or without the key."""
        return bool(self.tls_profile or self.authorization)


REPLACED_WHILE_DRAINED = Issue(
    code="replaced-while-drained",
    message="another server answers here since an operator drained or disabled the endpoint; it "
    "gets no requests",
    remedy="if it should serve, run `coxswain endpoints activate`",
)
PAUSED = Issue(
    code="paused",
    message="it answered 429, so it gets no requests for as long as it asked",
    remedy="lower its slots setting, or raise the limit of its provider",
)
AUTOMATIC_SLOTS = 4
"""The number of slots of a llama-server that was started without one."""
TOGETHER_S = 2.0
"""The requests that one overflow ends are reported within this time."""
ASSUMED_SLOTS = 1
"""The number of slots of a server that serves and does not report it: the only safe guess."""


class Endpoint:
    """Live state of one endpoint. The ledger holds its slots."""

    def __init__(self, spec: EndpointSpec) -> None:
        self.spec = spec
        self.health = Health.LOADING
        self.intent = Intent.ACTIVE
        self.intent_since: float | None = None
        """When an operator drained or disabled it; None while it is active."""
        self.intent_issue: Issue | None = None
        """That its server was replaced since then."""
        self.is_keeper_off = False
        """It is of a keeper whose machine sleeps, or is about to."""
        self.is_going_off = False
        """Its machine is being put to sleep: it gets no new requests."""
        self.is_waking = False
        """Its machine is being woken."""
        self.wake_issue: Issue | None = None
        """That its machine does not go to sleep; with `is_lost` that it does not wake, or is on
        without its server."""
        self.is_lost = False
        self.is_machine_on = False
        """Whether the last scrape showed that its machine is on, whatever its server does."""
        self.is_removed = False
        """No source names it any more; it remains while it has leases."""
        self.is_routable = not spec.requires_envoy_support
        """Whether Envoy has it in its configuration, according to endpoint discovery."""
        self.envoy_issue: Issue | None = None
        """The problem in Envoy's configuration that keeps requests away from it."""
        self.is_ejected = False
        """Whether it failed requests and gets none for now: see `extproc.core.outliers`."""
        self.paused_until: float | None = None
        """Until when it asked for no more requests; None if it did not."""
        self.ejection_issue: Issue | None = None
        """Why it is or was ejected, until a trial request succeeds."""
        self.is_fresh = False
        """Whether its last observation is recent enough; otherwise it is a backup."""
        self.observed_issues: tuple[Issue, ...] = ()
        self.reported_models: tuple[ModelReading, ...] = ()
        """Its models, also those that are closed to new requests."""
        self.models: tuple[ModelReading, ...] = ()
        """Its models that may get requests."""
        self.models_by_name: Mapping[str, ModelReading] = {}
        """Its models by name and alias."""
        self.is_router = False
        """Whether it has several models and selects one by the name in each request."""
        self.adapter_ids: Mapping[str, int] = {}
        """The numbers of its adapters on this server, by name."""
        self.has_reported = False
        """Whether it has reported its models and adapters, as far as it ever will."""
        self.runner = ""
        """The kind of its server, for people; empty if it is not known."""
        self.apis: frozenset[str] | None = None
        """The APIs that it has besides the one that all have; None if that is not known."""
        self.context_tokens: int | None = None
        self.reported_shared_tokens: int | None = None
        """The context that its slots share, 0 if none; None while nothing says it."""
        self.most_held_tokens = 0
        """The most that all of its slots were seen to hold together, idle ones too."""
        self.overflowed_at: float | None = None
        """When its requests last ended because their shared context was full."""
        self.overflows = 0
        """How often they did."""
        self.observed_at: float | None = None
        self.consecutive_failures = 0

    @property
    def address(self) -> Address:
        return self.spec.address

    @property
    def issues(self) -> tuple[Issue, ...]:
        """The problems that an operator should fix."""
        ours = (
            self.envoy_issue,
            self.ejection_issue,
            None if self.paused_until is None else PAUSED,
            self.intent_issue,
            self.wake_issue,
            self.context_issue,
        )
        if not any(ours):
            return self.observed_issues
        return (*(issue for issue in ours if issue is not None), *self.observed_issues)

    def is_context_split(self, model: str) -> bool:
        """Whether each slot certainly has a context of its own, of a router those of that model."""
        if self.spec.context is not ContextSharing.AUTO:
            return self.spec.context is ContextSharing.PER_SLOT
        reading = self.models_by_name.get(model)
        reported = self.reported_shared_tokens if reading is None else reading.shared_tokens
        return reported == 0

    @property
    def context_issue(self) -> Issue | None:
        """That requests were lost there because their shared context was full."""
        if not self.overflows:
            return None
        times = "once" if self.overflows == 1 else f"{self.overflows} times"
        return Issue(
            code="context-overflow",
            message=f"its slots share one context, which was full ({times}): "
            "llama-server then ends all of its requests with 500",
            remedy="send it no requests but through Coxswain, or give each slot its own context: "
            "start it with -np 4 --no-kv-unified and 4 times the -c, or with a larger -c",
        )

    def overflowed(self, now: float) -> bool:
        """One of its requests ended because its shared context was full. Returns whether that is
        new: all that run end at once."""
        is_new = self.overflowed_at is None or now - self.overflowed_at > TOGETHER_S
        self.overflowed_at = now
        self.overflows += is_new
        return is_new

    @property
    def offer(self) -> tuple[frozenset[str], frozenset[str], int | None]:
        """What eligibility depends on: the names of its models and adapters, and its context."""
        return frozenset(self.models_by_name), frozenset(self.adapter_ids), self.context_tokens

    def shared_context(self, reading: ModelReading | None, slots: int) -> SharedContext | None:
        """The context that this number of slots share, of a router those of one of its models;
        None if they share none. Whatever nobody says is guessed: see `SharedContext`."""
        reported = self.reported_shared_tokens if reading is None else reading.shared_tokens
        own = self.context_tokens or 0
        match self.spec.context:
            case ContextSharing.PER_SLOT:
                return None
            case ContextSharing.SHARED:
                tokens, source = reported or own, ContextSource.SETTING
            case ContextSharing.AUTO if reported is not None:
                tokens, source = reported, ContextSource.ARGUMENTS
            case ContextSharing.AUTO:
                if slots != AUTOMATIC_SLOTS and not self.overflows:
                    return None
                tokens = max(own, self.most_held_tokens) if own else 0
                source = ContextSource.OVERFLOW if self.overflows else ContextSource.GUESS
            case _:
                assert_never(self.spec.context)
        return SharedContext(tokens, source) if tokens and slots > 1 else None

    @property
    def is_serving(self) -> bool:
        """Whether it responds to requests, possibly after it has loaded its model again."""
        return self.health in SERVING

    @property
    def is_usable(self) -> bool:
        """Whether health, Envoy and the operator permit requests."""
        return (
            self.health in SERVING
            and self.is_routable
            and not self.is_removed
            and self.intent is Intent.ACTIVE
        )

    @property
    def is_pickable(self) -> bool:
        """Whether new leases may be opened here, if slots are free."""
        return (
            not self.is_ejected
            and self.paused_until is None
            and not self.is_going_off
            and self.is_usable
        )

    @property
    def is_answering(self) -> bool:
        """Whether the last scrapes were answered, also while it loads its model."""
        return self.health not in UNREACHED

    @property
    def is_wakeable(self) -> bool:
        """Whether its machine is off, and woken for requests."""
        return self.health is Health.OFF and self.intent is Intent.ACTIVE and not self.is_removed

    @property
    def is_waited_for(self) -> bool:
        """Whether requests may wait for its machine: it is off, or is being put to sleep, after
        which it is woken for them."""
        return self.is_wakeable or (self.is_going_off and self.is_usable)

    @property
    def is_first_choice(self) -> bool:
        """Whether it is fresh and awake; backups are used if no first choice has a slot."""
        return self.is_fresh and self.health is not Health.ASLEEP

    def has_api(self, name: str) -> bool:
        """Whether it serves the paths of that API; assumed where that is not known."""
        return not name or self.apis is None or name in self.apis

    def has_adapters(self, numbers: frozenset[int]) -> bool:
        """Whether it has an adapter for each of these numbers."""
        return numbers <= frozenset(self.adapter_ids.values())

    def takes_name(self, name: str, model: str | None) -> bool:
        """Whether a request for `model` (None: any) may carry `name` here: a plain server ignores
        the name, for a router it must be another name of that model."""
        if not self.is_router:
            return True
        reading = self.models_by_name.get(name)
        return reading is not None and (model is None or reading is self.models_by_name.get(model))

    def observe(self, observation: Observation, options: HealthOptions) -> None:
        """Apply the health of an observation. Freshness is separate: see `refresh`."""
        self.is_machine_on = observation.is_machine_on
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
                is_over = options.is_down(self.consecutive_failures)
                if is_over or self.is_going_off or self.health is Health.OFF:
                    self.lose(observation.issues)
                else:
                    self.observed_issues = observation.issues
            case _:
                assert_never(observation.status)

    def lose(self, issues: tuple[Issue, ...] = ()) -> None:
        """A connection to it was refused: it is down, or its machine off, until one good scrape."""
        may_be_off = self.spec.wake is not None or self.is_keeper_off
        is_off = may_be_off and not self.is_lost
        self.health = Health.OFF if is_off else Health.DOWN
        self.observed_issues = () if is_off else issues

    def set_keeper_off(self, is_off: bool) -> None:
        """Whether the machine of its keeper sleeps, or is about to."""
        self.is_keeper_off = is_off
        if not self.is_answering:
            self.lose(self.observed_issues)

    def set_wake_issue(self, issue: Issue | None, *, is_lost: bool = False) -> None:
        """Its machine does not go to sleep; or (`is_lost`) it does not wake or is on without its
        server, and is treated as one that cannot be woken; None if none of it is so any more."""
        self.wake_issue, self.is_lost = issue, is_lost
        if self.health is Health.OFF and is_lost:
            self.health = Health.DOWN

    def set_intent(self, intent: Intent, now: float) -> None:
        """Set the operator's intent."""
        self.intent = intent
        self.intent_since = None if intent is Intent.ACTIVE else now
        self.intent_issue = None

    def named_again(self) -> None:
        """A source names it again after it was removed: perhaps for another server."""
        self.is_removed = False
        self._check_intent()

    def replaced(self) -> None:
        """A new process runs there, with its own adapters and numbers."""
        self.adapter_ids = {}
        self.has_reported = False
        self.reported_shared_tokens = None
        self.most_held_tokens = 0
        self.overflowed_at, self.overflows = None, 0
        self._check_intent()

    def _check_intent(self) -> None:
        """The operator's intent was for another server, and still applies."""
        if self.intent is not Intent.ACTIVE:
            self.intent_issue = REPLACED_WHILE_DRAINED

    def _answered(self, observation: Observation, health: Health) -> None:
        self.health = health
        self.observed_issues = observation.issues
        if observation.models and observation.models != self.reported_models:
            self.reported_models = observation.models
            self.models = tuple(one for one in observation.models if not one.is_closed)
            self.models_by_name = _by_name(self.models)
            self.is_router = observation.has_model_pools
        if observation.apis is not None:
            self.runner, self.apis = observation.runner, observation.apis
        if observation.adapters is not None:
            self.adapter_ids = {adapter.name: adapter.id for adapter in observation.adapters}
        if health is not Health.LOADING and not observation.awaits_adapters:
            self.has_reported = True
        self.context_tokens = observation.context_tokens or self.context_tokens
        if observation.shared_tokens is not None:
            self.reported_shared_tokens = observation.shared_tokens
        self.most_held_tokens = max(self.most_held_tokens, observation.held_tokens)
        self.consecutive_failures = 0

    def refresh(self, observed_at: float) -> None:
        """Its slots were updated by an observation."""
        self.observed_at = observed_at
        self.is_fresh = True


def _by_name(models: tuple[ModelReading, ...]) -> dict[str, ModelReading]:
    """Names take precedence over aliases, and the first of two equal names over the second."""
    readings: dict[str, ModelReading] = {}
    for model in models:
        readings.setdefault(model.name, model)
    for model in models:
        for alias in model.aliases:
            readings.setdefault(alias, model)
    return readings
