"""Membership: the endpoints of the fleet and the sources that name them.

Several sources (the settings, a file, DNS, agents) may name the same address; it is one endpoint
while any of them does. An endpoint that no source names any more is removed, but remains until its
last lease has ended, so that Envoy still knows where its requests run.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from extproc.core.address import Address
from extproc.core.fleet.endpoint import Endpoint, EndpointSpec, Intent


@dataclass(frozen=True, slots=True)
class Member:
    """The part of an endpoint that Envoy must know."""

    address: Address
    hostname: str = ""  # with TLS, the name in its certificate
    is_draining: bool = False
    tls_profile: str = ""
    authorization: str = field(default="", repr=False)
    requires_pick: bool = False
    """Envoy must not choose it by itself, as it does while there is no picker."""


@dataclass(frozen=True, slots=True)
class Membership:
    """An immutable snapshot of the fleet; a later one has a larger `version`."""

    version: int
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectedEnvoy:
    """One Envoy that gets the fleet from us. `acknowledged_version` is that of the last membership
    that it applied, -1 before the first."""

    node_id: str
    acknowledged_version: int


class Fleet:
    """The endpoints by address. Synchronous; a change of membership is O(its size)."""

    def __init__(self) -> None:
        self._endpoints: dict[Address, Endpoint] = {}
        self._sources: dict[str, dict[Address, EndpointSpec]] = {}
        self.version = 0
        """Grows with each change of the members and of the operator's intents."""
        self._membership: Membership | None = None
        self._names: dict[Address, str] | None = None
        self._has_api: dict[str, bool] = {}
        self._far: tuple[Endpoint, ...] | None = None
        self._requires_pick = False

    def __len__(self) -> int:
        return len(self._endpoints)

    def __iter__(self) -> Iterator[Endpoint]:
        return iter(self._endpoints.values())

    def __contains__(self, address: Address) -> bool:
        return address in self._endpoints

    def get(self, address: Address) -> Endpoint | None:
        return self._endpoints.get(address)

    def name_of(self, address: Address) -> str:
        """How people know an endpoint: by its own name, if no other endpoint has it, else by its
        address. O(1), except for the first call after a change of the fleet, which is O(fleet)."""
        if self._names is None:
            count = Counter(endpoint.spec.name for endpoint in self._endpoints.values())
            self._names = {
                address: endpoint.spec.name
                for address, endpoint in self._endpoints.items()
                if endpoint.spec.name and count[endpoint.spec.name] == 1
            }
        name = self._names.get(address)
        return str(address) if name is None else name

    @property
    def far(self) -> tuple[Endpoint, ...]:
        """Those of higher tiers than the first, also while they are removed."""
        if self._far is None:
            self._far = tuple(one for one in self._endpoints.values() if one.spec.is_far)
        return self._far

    def has_api(self, name: str) -> bool:
        """Whether a server of the first tier has that API, or may have it, as it has not said so
        yet. O(1), except for the first call after a change, which is O(fleet)."""
        found = self._has_api.get(name)
        if found is None:
            members = [
                one
                for one in self._endpoints.values()
                if not one.is_removed and not one.spec.is_far
            ]
            found = not members or any(one.has_api(name) for one in members)
            self._has_api[name] = found
        return found

    def apis_changed(self) -> None:
        """A server has said which APIs it has."""
        self._has_api.clear()

    def full_name_of(self, address: Address) -> str:
        """Its name and its address, for the log."""
        endpoint = self._endpoints.get(address)
        name = "" if endpoint is None else endpoint.spec.name
        return f"{name} ({address})" if name else str(address)

    def sources_of(self, address: Address) -> list[str]:
        """The sources that name this address, sorted."""
        return sorted(name for name, specs in self._sources.items() if address in specs)

    def specs_of(self, source: str) -> Mapping[Address, EndpointSpec]:
        """The endpoints that one source names."""
        return self._sources.get(source, {})

    def set_members(self, source: str, specs: Iterable[EndpointSpec]) -> list[Address]:
        """Replace what `source` names; returns the addresses that were added, removed or changed.

        The first of two specs for one address applies, and so does the first source, with two
        exceptions: a spec with TLS precedes those without, and an agent's comes last.
        """
        named: dict[Address, EndpointSpec] = {}
        for spec in specs:
            named.setdefault(spec.address, spec)
        before = self._sources.get(source, {})
        if named:
            self._sources[source] = named
        else:
            self._sources.pop(source, None)
        changed = [address for address in (before | named) if self._settle(address)]
        if changed:
            self._changed()
        return changed

    def _settle(self, address: Address) -> bool:
        """Update one endpoint from what the sources name; returns whether it changed."""
        named = [specs[address] for specs in self._sources.values() if address in specs]
        if not named:  # its last source removed it
            self._endpoints[address].is_removed = True
            return True
        # TLS takes precedence, because any source could otherwise have traffic sent in plain text.
        # An agent comes last: it knows no key, and must not change the CA of what others name.
        spec = min(named, key=lambda each: (not each.tls_profile, each.is_reported))
        # No source can bring home what another one says is far away.
        far = max(named, key=lambda each: each.tier)
        spec = replace(spec, tier=far.tier, far_models=far.far_models)
        endpoint = self._endpoints.get(address)
        if endpoint is None:
            self._endpoints[address] = Endpoint(spec)
        elif endpoint.is_removed or endpoint.spec != spec:
            if spec.requires_envoy_support and spec != endpoint.spec:
                endpoint.is_routable = False
            if endpoint.is_removed:
                endpoint.named_again()
            endpoint.spec = spec
        else:
            return False
        return True

    def set_intent(self, address: Address, intent: Intent, now: float) -> None:
        """Set the operator's intent; raises `KeyError` for an unknown endpoint."""
        endpoint = self._endpoints[address]
        if endpoint.intent is not intent:
            endpoint.set_intent(intent, now)
            self._changed()

    def set_requires_pick(self, requires_pick: bool) -> bool:
        """Whether Envoy may choose no endpoint by itself; returns whether that changed. One
        endpoint whose specification says so has the same effect."""
        if requires_pick is self._requires_pick:
            return False
        self._requires_pick = requires_pick
        self._changed()
        return True

    def drop(self, address: Address) -> None:
        """Forget a removed endpoint whose leases have ended."""
        if not self._endpoints[address].is_removed:
            raise ValueError(f"{address} is still a member")
        del self._endpoints[address]
        self._changed()

    def membership(self) -> Membership:
        """The current snapshot, the same object until something changes."""
        if self._membership is None:
            endpoints = self._endpoints.values()
            # A request for one of several models must not meet any server of another one.
            requires_pick = self._requires_pick or any(e.spec.requires_pick for e in endpoints)
            members = tuple(
                Member(
                    endpoint.address,
                    endpoint.spec.server_name or endpoint.spec.hostname,
                    endpoint.is_removed or endpoint.intent is not Intent.ACTIVE,
                    endpoint.spec.tls_profile,
                    endpoint.spec.authorization,
                    requires_pick or endpoint.spec.is_far or bool(endpoint.spec.pool),
                )
                for endpoint in endpoints
            )
            self._membership = Membership(self.version, members)
        return self._membership

    def _changed(self) -> None:
        self.version += 1
        self._membership = None
        self._names = None
        self._far = None
        self._has_api.clear()


class PoolFleet(Fleet):
    """The endpoints of one pool, to read: what the names in a request for the pool may mean."""

    def __init__(self, fleet: Fleet, pool: str) -> None:
        super().__init__()
        self._fleet = fleet
        self._pool = pool

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __iter__(self) -> Iterator[Endpoint]:
        return (one for one in self._fleet if one.spec.pool == self._pool)

    def __contains__(self, address: Address) -> bool:
        return self.get(address) is not None

    def get(self, address: Address) -> Endpoint | None:
        endpoint = self._fleet.get(address)
        return endpoint if endpoint is not None and endpoint.spec.pool == self._pool else None

    @property
    def far(self) -> tuple[Endpoint, ...]:
        return tuple(one for one in self._fleet.far if one.spec.pool == self._pool)

    def has_api(self, name: str) -> bool:
        """O(fleet)."""
        members = [one for one in self if not one.is_removed and not one.spec.is_far]
        return not members or any(one.has_api(name) for one in members)
