"""Pools: parts of the fleet that share nothing, and which requests are for them."""

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, Field, PrivateAttr, model_validator
from pydantic_core import PydanticCustomError

from extproc.core.constraints import qualified
from extproc.core.objective import Objectives
from extproc.settings.bounds_section import BoundSettings
from extproc.settings.discovery_section import DnsSettings
from extproc.settings.endpoint_section import EndpointSettings, MachineSettings
from extproc.settings.kubernetes_section import KubernetesSettings
from extproc.settings.objective_section import ObjectiveSettings, Targets, objectives_for_core
from extproc.settings.section import Section
from extproc.settings.values import LIST, Whole

HEADER_NAME: Final = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]{1,100}")
EXPRESSION: Final = "xds.route_metadata.filter_metadata['{namespace}']['{key}']"
"""What Envoy is asked for a value of its route's metadata."""


def _host(text: str) -> str:
    plain = text.strip().lower()
    if not plain or not plain.isascii() or not plain.isprintable() or set(plain) & set(" /@"):
        raise PydanticCustomError("host", "write a host name, with its port if that matters")
    return plain


def _header_name(text: str) -> str:
    name = text.strip().lower()
    if HEADER_NAME.fullmatch(name) is None:
        raise PydanticCustomError("header", "this is not the name of a header")
    return name


Text = Annotated[str, Field(min_length=1, max_length=256)]
Key = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[A-Za-z0-9._/-]+$")]
PoolName = Annotated[
    str, Field(max_length=63, pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$")
]
"""No slash: the names of models and objectives follow one."""


class PoolHeaderSettings(Section):
    """The header of a request for a pool."""

    name: Annotated[str, AfterValidator(_header_name)]
    """The name of the header."""
    value: Text
    """Its whole value."""


class PoolMetadataSettings(Section):
    """The metadata of a request for a pool: of Envoy's route, or written by an earlier filter."""

    namespace: Key = "coxswain.pool"
    """The namespace of `filter_metadata`."""
    key: Key = "name"
    """The key there."""
    value: Text
    """Its value, a string."""

    @property
    def attribute(self) -> str:
        """The attribute by which Envoy sends what its route has there."""
        return EXPRESSION.format(namespace=self.namespace, key=self.key)


class PoolSettings(Section):
    """A part of the fleet with its own queue. Its endpoints have its name as `in_pool`. If several
    could claim a request, the port decides first, then the metadata, the header and the host."""

    default: bool = False
    """Whether requests that no pool claims are for this one, and endpoints and machines without
    `in_pool` belong to it."""
    port: Annotated[Whole, Field(ge=1, le=65_535)] | None = None
    """A further port beside that of listen.grpc: all requests about which Envoy asks there are for
    this pool. With `fronts`, a change needs a restart."""
    hosts: Annotated[tuple[Annotated[str, AfterValidator(_host)], ...], LIST] = ()
    """The values of `:authority` (the header Host) of its requests; without a port, any."""
    header: PoolHeaderSettings | None = None
    """The header of its requests. Clients can set it, unless Envoy does."""
    metadata: PoolMetadataSettings | None = None
    """The metadata of its requests."""
    models: dict[str, Targets] = Field(default={})
    """Other names for models, in place of `models` at the top."""
    objectives: dict[str, ObjectiveSettings] = Field(default={})
    """Objectives of this pool, in place of `objectives` at the top. Elsewhere they are named
    `chat/interactive`, with the pool first."""
    limits: BoundSettings | None = None
    """How many of its requests may run and wait at once."""
    _written: Mapping[str, ObjectiveSettings] = PrivateAttr(default={})

    @property
    def written(self) -> Mapping[str, ObjectiveSettings]:
        """Objectives of this pool that are not from the settings, which go before them."""
        return self._written

    def above(
        self, objectives: Mapping[str, ObjectiveSettings], models: Mapping[str, Targets]
    ) -> "PoolSettings":
        """The same with `written` objectives, and in place of its names for models `models`."""
        pool = self.model_copy(update={"models": dict(models)})
        pool._written = dict(objectives)  # noqa: SLF001 - a copy of its own kind
        return pool

    @model_validator(mode="after")
    def _check_claims(self) -> Self:
        if not (self.default or self.claims):
            raise PydanticCustomError(
                "pool",
                "no request would be for this pool: give it a port, hosts, a header or "
                "metadata, or make it the default",
            )
        return self

    @property
    def claims(self) -> list[tuple[Any, ...]]:
        """What makes a request one for this pool; no two pools may have the same."""
        found: list[tuple[Any, ...]] = [("host", each) for each in self.hosts]
        if self.port is not None:
            found.append(("port", self.port))
        if self.header is not None:
            found.append(("header", self.header.name, self.header.value))
        if self.metadata is not None:
            found.append(
                ("metadata", self.metadata.namespace, self.metadata.key, self.metadata.value)
            )
        return found


Pools = Mapping[str, PoolSettings]
Servers = EndpointSettings | DnsSettings | KubernetesSettings


def default_pool(pools: Pools) -> str:
    """The name of the default pool; empty without one."""
    return next((name for name, pool in pools.items() if pool.default), "")


def machine_pools(machines: Mapping[str, MachineSettings]) -> dict[str, str]:
    """The pools of machines with a keeper, by their names, of those that name one."""
    return {name: one.in_pool for name, one in machines.items() if one.in_pool is not None}


def objective_names(objectives: Iterable[str], pools: Pools) -> set[str]:
    """All names of objectives by which other settings know them."""
    return {
        *objectives,
        *(qualified(name, each) for name, pool in pools.items() for each in pool.objectives),
    }


def objectives_of_pool(
    name: str, pool: PoolSettings, others: Mapping[str, ObjectiveSettings]
) -> Objectives:
    """The objectives of a pool for the core, by the names that its requests have."""
    shared = objectives_for_core({} if pool.objectives else others, pool=name)
    own = objectives_for_core({**pool.written, **pool.objectives}, pool=name, is_own=True)
    return Objectives(
        by_name={
            **own.by_name,
            **shared.by_name,
            **{qualified(name, each): own.by_name[each] for each in own.by_name},
        },
        by_model={**own.by_model, **shared.by_model},
        default=own.default,
    )


def check_pools(pools: Pools) -> None:
    """Raise where two pools claim the same requests."""
    if sum(pool.default for pool in pools.values()) > 1:
        raise PydanticCustomError("together", "only one pool can be the default")
    taken: dict[tuple[Any, ...], str] = {}
    for name, pool in pools.items():
        for claim in pool.claims:
            if (other := taken.setdefault(claim, name)) != name:
                raise PydanticCustomError(
                    "together",
                    "{other} and {name} claim the same requests by {kind} {value}",
                    {"other": other, "name": name, "kind": claim[0], "value": str(claim[-1])},
                )


def misplaced(one: Servers, pools: Pools, default: str) -> str:
    """Why an endpoint, or those of a source, cannot be where the settings put it; else empty."""
    address = one.address
    if one.in_pool is not None and one.in_pool not in pools:
        return f"{address}: there is no pool of the name {one.in_pool}"
    if pools and one.in_pool is None and not default:
        return f"{address} needs in_pool, the name of its pool: no pool is the default"
    return ""
