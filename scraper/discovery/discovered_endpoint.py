"""What a source of endpoints says: an address, how people call it, how the scraper asks it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from extproc.core.address import Address, AddressError
from extproc.core.constraints import FIRST_TIER, NO_POOL
from extproc.core.fleet.endpoint import ContextSharing, EndpointSpec, WakeOptions
from extproc.core.price import FREE, Price
from extproc.runners.kind import RunnerKind
from extproc.runners.target import EndpointTarget, TargetError
from extproc.security.secret_file import authorization_of, is_sendable_key
from extproc.security.trust import Trust


class EndpointEntryError(ValueError):
    """A source of endpoints is invalid; `str(error)` says where and why, without any key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointEntry:
    """An endpoint as people write it: `host` is an IP address or a name that has some.

    Raises `EndpointEntryError` for a key that no HTTP header can carry.
    """

    host: str
    port: int
    name: str = ""
    slots: int | None = None
    kind: RunnerKind = RunnerKind.AUTO
    context: ContextSharing = ContextSharing.AUTO
    labels: tuple[tuple[str, str], ...] = ()
    tier: int = FIRST_TIER
    far_models: tuple[tuple[str, str], ...] = ()
    price: Price = FREE
    wake: WakeOptions | None = None
    pool: str = NO_POOL
    may_sleep: bool | None = None
    api_key: str | None = field(default=None, repr=False)
    is_injected: bool = False
    """Whether Envoy sends the key with each request to this server."""
    is_tls: bool = False
    ca_file: str | None = None
    ca_digest: str = ""
    server_name: str | None = None
    trust: Trust | None = None

    def __post_init__(self) -> None:
        if self.api_key is not None and not is_sendable_key(self.api_key):
            raise EndpointEntryError(f"{self}: the API key must be visible ASCII, without spaces")

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveredEndpoint:
    """One endpoint of a source. `target` is None if the picker must not scrape it."""

    spec: EndpointSpec
    target: EndpointTarget | None
    trust: Trust | None = None


Publish: TypeAlias = Callable[[str, Sequence[DiscoveredEndpoint], bool], None]
"""`publish(source, nominations, is_complete)`: all that `source` names now, replacing what it
named before. Not complete means that it knows of more endpoints whose addresses are not known yet.
Synchronous and soon."""


def discover(entry: EndpointEntry, ip: str) -> DiscoveredEndpoint:
    """The endpoint that a listing means, its host being `ip`; its key and slots go with it.

    Raises `AddressError` where `ip` is none, or where no server could be asked like this.
    """
    address = Address.of(ip, entry.port)
    hostname = "" if ip == entry.host else entry.host
    server_name = entry.server_name or hostname
    try:
        target = EndpointTarget(
            address=address,
            is_tls=entry.is_tls,
            ca_file=entry.ca_file,
            ca_digest=entry.ca_digest,
            host_name=server_name or None,
            api_key=entry.api_key,
            sends_key=entry.is_injected and bool(entry.api_key),
            slots=entry.slots,
            may_sleep=entry.may_sleep,
            kind=entry.kind,
        )
    except TargetError as error:
        raise AddressError(str(error)) from None
    return DiscoveredEndpoint(
        spec=EndpointSpec(
            address=address,
            name=entry.name,
            hostname=hostname,
            slots=entry.slots,
            context=entry.context,
            labels=entry.labels,
            tier=entry.tier,
            far_models=entry.far_models,
            price=entry.price,
            wake=entry.wake,
            pool=entry.pool,
            tls_profile=entry.trust.profile if entry.trust is not None else "",
            server_name=server_name if entry.is_tls else "",
            authorization=authorization_of(entry.api_key)
            if entry.is_injected and entry.api_key
            else "",
        ),
        target=target,
        trust=entry.trust,
    )
