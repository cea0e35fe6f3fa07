"""The settings themselves: names, types, defaults and what each one means.

A `Settings` built in code reads no file and no environment; `load_settings` does.
"""

from typing import Annotated, Self

from pydantic import ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from extproc.core.constraints import FIRST_TIER
from extproc.core.request import HOLD_MARGIN_S
from extproc.settings.bounds_section import BoundsSettings
from extproc.settings.cluster_section import ClusterSettings
from extproc.settings.discovery_section import DiscoverySettings
from extproc.settings.endpoint_section import (
    EndpointSettings,
    MachineSettings,
    named_twice,
    woken_differently,
)
from extproc.settings.envoy_section import EnvoySettings
from extproc.settings.listen_section import DashboardSettings, ListenSettings
from extproc.settings.logging_section import (
    LogSettings,
    RecordsSettings,
    StatsdSettings,
    UsageSettings,
)
from extproc.settings.objective_section import ObjectiveSettings, Targets
from extproc.settings.pool_section import (
    PoolName,
    PoolSettings,
    Servers,
    check_pools,
    default_pool,
    misplaced,
    objective_names,
)
from extproc.settings.routing_section import (
    OutlierSettings,
    PickerSettings,
    QueueSettings,
    RoutingSettings,
    SwapSettings,
)
from extproc.settings.scale_section import KedaSettings, ScaleSettings
from extproc.settings.scraper_section import LedgerSettings, ScraperSettings
from extproc.settings.section import Section
from extproc.settings.security_section import (
    AdminSettings,
    AdminTlsSettings,
    AgentsSettings,
    ClientsSettings,
    GrpcTlsSettings,
)
from extproc.settings.spill_section import SpillSettings
from extproc.settings.values import (
    EMPTY_SECTION,
    LIST,
    MAP,
    FrontCount,
    Reloadable,
    Seconds,
)


class Settings(Section):
    """All settings of Coxswain."""

    model_config = ConfigDict(title="Coxswain settings")

    endpoints: Annotated[Reloadable[tuple[EndpointSettings, ...]], LIST] = ()
    """The llama-servers: host:port each, or sections with the keys below. More can be added
    later."""
    discovery: Annotated[DiscoverySettings, EMPTY_SECTION] = DiscoverySettings()
    machines: Annotated[Reloadable[dict[str, MachineSettings]], MAP] = Field(default={})
    """The machines with a keeper that may sleep or are in a pool, by the keeper's --name, each with
    the keys below."""
    fronts: FrontCount = 0
    """The number of front processes, which hold Envoy's connections for one core process that
    decides (docs/cluster.md); `auto` is one less than the processors, 0 is one process for
    everything."""
    cluster: Annotated[ClusterSettings, EMPTY_SECTION] = ClusterSettings()
    listen: Annotated[ListenSettings, EMPTY_SECTION] = ListenSettings()
    queue: Annotated[QueueSettings, EMPTY_SECTION] = QueueSettings()
    ledger: Annotated[LedgerSettings, EMPTY_SECTION] = LedgerSettings()
    scraper: Annotated[ScraperSettings, EMPTY_SECTION] = ScraperSettings()
    routing: Annotated[RoutingSettings, EMPTY_SECTION] = RoutingSettings()
    picker: Annotated[PickerSettings, EMPTY_SECTION] = PickerSettings()
    swap: Annotated[SwapSettings, EMPTY_SECTION] = SwapSettings()
    scale: Annotated[ScaleSettings, EMPTY_SECTION] = ScaleSettings()
    keda: Annotated[KedaSettings, EMPTY_SECTION] = KedaSettings()
    outlier_detection: Annotated[OutlierSettings, EMPTY_SECTION] = OutlierSettings()
    envoy: Annotated[EnvoySettings, EMPTY_SECTION] = EnvoySettings()
    log: Annotated[LogSettings, EMPTY_SECTION] = LogSettings()
    dashboard: Annotated[DashboardSettings, EMPTY_SECTION] = DashboardSettings()
    statsd: Annotated[StatsdSettings, EMPTY_SECTION] = StatsdSettings()
    admin: Annotated[AdminSettings, EMPTY_SECTION] = AdminSettings()
    agents: Annotated[AgentsSettings, EMPTY_SECTION] = AgentsSettings()
    grpc_tls: Annotated[GrpcTlsSettings, EMPTY_SECTION] = GrpcTlsSettings()
    admin_tls: Annotated[AdminTlsSettings, EMPTY_SECTION] = AdminTlsSettings()
    clients: Annotated[ClientsSettings, EMPTY_SECTION] = ClientsSettings()
    usage: Annotated[UsageSettings, EMPTY_SECTION] = UsageSettings()
    records: Annotated[RecordsSettings, EMPTY_SECTION] = RecordsSettings()
    models: Annotated[Reloadable[dict[str, Targets]], MAP] = Field(default={})
    """Other names for models: `chat: tiny`, or a split by weight: `chat: {tiny: 90, small: 10}`
    (docs/routing.md)."""
    objectives: Annotated[Reloadable[dict[str, ObjectiveSettings]], MAP] = Field(default={})
    """The services that share the fleet, by name, each with the keys below."""
    bounds: Annotated[BoundsSettings, EMPTY_SECTION] = BoundsSettings()
    pools: Annotated[Reloadable[dict[PoolName, PoolSettings]], MAP] = Field(default={})
    """Parts of the fleet, by name, each with the keys below. See docs/pools.md."""
    spill: Annotated[SpillSettings, EMPTY_SECTION] = SpillSettings()
    response_headers: Reloadable[bool] = True
    """Whether responses have the headers x-coxswain-endpoint, x-coxswain-queue-ms,
    x-coxswain-attempts, and, if spilled, x-coxswain-tier."""
    drain_timeout_s: Reloadable[Seconds] = 30.0
    """How many seconds running requests may still take after SIGTERM."""

    @field_validator("endpoints")
    @classmethod
    def _check_endpoints(cls, value: tuple[EndpointSettings, ...]) -> tuple[EndpointSettings, ...]:
        if problem := named_twice(value) or woken_differently(value):
            raise PydanticCustomError("together", "{problem}", {"problem": problem})
        return value

    @field_validator("objectives")
    @classmethod
    def _check_objectives(cls, value: dict[str, ObjectiveSettings]) -> dict[str, ObjectiveSettings]:
        taken: dict[str, str] = {}
        for name, objective in value.items():
            for model in objective.models:
                if (other := taken.setdefault(model, name)) != name:
                    raise PydanticCustomError(
                        "together",
                        "{other} and {name} both have the model {model}; remove it from one of "
                        "them",
                        {"other": other, "name": name, "model": model},
                    )
        return value

    @field_validator("pools")
    @classmethod
    def _check_pools(cls, value: dict[str, PoolSettings]) -> dict[str, PoolSettings]:
        check_pools(value)
        return value

    @model_validator(mode="after")
    def _check_places(self) -> Self:
        default = default_pool(self.pools)
        servers: tuple[Servers, ...] = (
            *self.endpoints,
            *self.discovery.dns,
            *self.discovery.kubernetes,
        )
        for one in servers:
            if problem := misplaced(one, self.pools, default):
                raise PydanticCustomError("together", "{problem}", {"problem": problem})
        for name, machine in self.machines.items():
            if machine.in_pool is not None and machine.in_pool not in self.pools:
                raise PydanticCustomError(
                    "together",
                    "machines.{name}: there is no pool of the name {pool}",
                    {"name": name, "pool": machine.in_pool},
                )
        if self.pools and self.scale.command:
            raise PydanticCustomError("together", "scale.command cannot be used with pools")
        return self

    @model_validator(mode="after")
    def _check_waits(self) -> Self:
        if self.queue.timeout_s + HOLD_MARGIN_S > self.envoy.max_message_timeout_s:
            raise PydanticCustomError(
                "order",
                "queue.timeout_s must be at least {margin} s shorter than "
                "envoy.max_message_timeout_s; otherwise Envoy gives up on queued requests",
                {"margin": f"{HOLD_MARGIN_S:g}"},
            )
        return self

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        known = objective_names(self.objectives, self.pools)
        for name in self.bounds.objectives:
            if name not in known:
                raise PydanticCustomError(
                    "together",
                    "bounds.objectives.{name}: there is no objective of this name",
                    {"name": name},
                )
        bounds = self.bounds
        of_pools = {name: one.limits for name, one in self.pools.items() if one.limits is not None}
        for part in (bounds.objectives, bounds.models, bounds.paths, of_pools):
            for name, bound in part.items():
                if (bound.queue_timeout_s or 0.0) > self.queue.timeout_s:
                    raise PydanticCustomError(
                        "order",
                        "the queue_timeout_s of {name} in bounds must not exceed queue.timeout_s",
                        {"name": name},
                    )
        return self

    @model_validator(mode="after")
    def _check_spill(self) -> Self:
        spill = self.spill
        known = objective_names(self.objectives, self.pools)
        for name in spill.objectives:
            if name not in known:
                raise PydanticCustomError(
                    "together",
                    "spill.objectives: there is no objective of the name {name}",
                    {"name": name},
                )
        if spill.keys and self.clients.keys_file is None:
            raise PydanticCustomError(
                "together", "spill.keys needs clients.keys_file, which names the clients"
            )
        if spill.has_day_bound and self.usage.path is None:
            raise PydanticCustomError(
                "together",
                "max_requests_per_day and max_cost_per_day of spill need usage.path: a day's use "
                "is counted only with it",
            )
        if spill.max_cost_per_day is not None:
            self._check_prices()
        return self

    def _check_prices(self) -> None:
        for one in self.endpoints:
            if one.tier > FIRST_TIER and one.price is None:
                raise PydanticCustomError(
                    "together",
                    "spill.max_cost_per_day needs the price of {address}: requests to an endpoint "
                    "of tier 2 without one cost nothing, so they would never close the tier",
                    {"address": str(one.address)},
                )

    @model_validator(mode="after")
    def _check_batches(self) -> Self:
        clients = self.clients
        if self.envoy.batches and clients.keys_file is not None and clients.batches is None:
            raise PydanticCustomError(
                "together",
                "envoy.batches needs clients.batches where keys are checked: without the name of "
                "the client that sends their lines, no limit of the clients would hold for them",
            )
        return self

    @model_validator(mode="after")
    def _check_fronts(self) -> Self:
        if self.envoy.other_pickers and not self.cluster.name:
            raise PydanticCustomError(
                "together",
                "envoy.other_pickers needs cluster.name: pickers that are no cluster must not "
                "serve the same Envoy",
            )
        if self.cluster.name and not self.fronts:
            raise PydanticCustomError(
                "together", "a cluster needs fronts: add `fronts: 2`, or remove cluster.name"
            )
        return self

    @model_validator(mode="after")
    def _check_token_limits(self) -> Self:
        if self.usage.path is None:
            for name, limit in self.clients.limits.items():
                if limit.tokens_per_minute is not None:
                    raise PydanticCustomError(
                        "together",
                        "the limit tokens_per_minute of {name} needs usage.path: tokens are "
                        "counted only with it",
                        {"name": name},
                    )
                if limit.for_core().has_budget:
                    raise PydanticCustomError(
                        "together",
                        "the budgets of {name} need usage.path: tokens and cost are counted only "
                        "with it",
                        {"name": name},
                    )
        return self

    @model_validator(mode="after")
    def _check_permissions(self) -> Self:
        known = objective_names(self.objectives, self.pools)
        for name, limit in self.clients.limits.items():
            for objective in limit.objectives or ():
                if objective not in known:
                    raise PydanticCustomError(
                        "together",
                        "the objectives of {name}: there is no objective of the name {objective}",
                        {"name": name, "objective": objective},
                    )
            if limit.models is not None and self.routing.read_body == "never":
                raise PydanticCustomError(
                    "together",
                    "the models of {name} need bodies, which name the model: routing.read_body "
                    "must not be never",
                    {"name": name},
                )
        return self
