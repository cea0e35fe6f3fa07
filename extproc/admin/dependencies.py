"""The dependencies of the admin service, and the base of its calls."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from extproc.admin.keepers import KeepersService
from extproc.core.address import Address
from extproc.core.exchange_registry import ExchangeRegistry, ExchangeSnapshot, KnownExchange
from extproc.core.fleet.membership import ConnectedEnvoy
from extproc.core.placement.machine import KeptMachine
from extproc.core.placement.placer import Placer
from extproc.core.processes import Processes
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.core.views.explain import DryRunRequest, Explanation
from extproc.pb.coxswain.v1.admin_pb2_grpc import AdminServicer
from extproc.records.fleet_events import FleetEvent
from extproc.records.neighbours import Neighbours
from extproc.records.request_record import RequestRecord
from extproc.records.selection import Selection
from extproc.usage.store import UsageRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloaded:
    """The changed settings, by their dotted keys: in effect now, or after a restart."""

    applied: tuple[str, ...] = ()
    needs_restart: tuple[str, ...] = ()


class ReloadError(ValueError):
    """The new settings are invalid and the old ones stay; `str(error)` has each error."""


class SettingsAccess(Protocol):
    """The settings, as the admin service may show and renew them."""

    @property
    def file(self) -> str:
        """Their file; empty without one."""

    def describe(self) -> Mapping[str, object]:
        """All settings in effect, for JSON, without secrets."""

    async def reload(self, is_dry_run: bool) -> Reloaded:
        """Reload them and apply what can be applied; raises `ReloadError` and changes nothing."""


ADDED: Final = "admin"
"""The source, in the fleet, of the endpoints that operators added."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEndpoint:
    """An endpoint that an operator adds. `host` is the host in its address.

    It says where its key is, not what it is. Empty texts, 0 slots and None mean: not given.
    """

    address: Address
    host: str
    is_tls: bool = False
    name: str = ""
    slots: int = 0
    ca_file: str = ""
    server_name: str = ""
    api_key_env: str = ""
    api_key_file: str = ""
    inject_key: bool = False
    may_sleep: bool | None = None
    kind: str = ""
    pool: str = ""


class NewEndpointError(ValueError):
    """The new endpoint is rejected; `str(error)` says what to change."""


class AdminEndpoints(Protocol):
    """The endpoints that operators added; their source in the fleet is `ADDED`."""

    async def add(self, arrival: NewEndpoint) -> None:
        """Add it; raises `NewEndpointError` and changes nothing."""

    def remove(self, address: Address) -> None:
        """Remove it; an unknown one is no error."""


ReadUsage = Callable[[float, Collection[str], int], Awaitable[Sequence[UsageRow]]]


class PlacementAccess(Protocol):
    """Which models are wanted on which machine. The calls raise `PlacementError`."""

    @property
    def machines(self) -> Mapping[str, KeptMachine]:
        """The machines with a keeper and the routers, by name."""

    @property
    def placer(self) -> Placer:
        """What is wanted and pinned."""

    def load(self, machine: KeptMachine, model: str, *, is_pinned: bool) -> None:
        """Load a model, whatever has to leave for it except pinned ones."""

    def unload(self, machine: KeptMachine, model: str) -> None:
        """Unload it until it is asked for."""

    def unpin(self, machine: KeptMachine, model: str) -> None:
        """Let it go when others need its memory."""

    def last_change(self, machine: KeptMachine, model: str, now: float) -> str:
        """The last decision about it, as a sentence."""


class RecordsAccess(Protocol):
    """Ended requests. `find`, `select` and `beside` read a file and may raise `OSError`."""

    @property
    def instance(self) -> str:
        """Distinguishes the process whose numbers these are."""

    @property
    def total(self) -> int:
        """The number of the newest one."""

    async def find(self, id_: str) -> list[RequestRecord]:
        """Those with this exchange id or request id, newest first."""

    async def select(
        self, selection: Selection, since_s: float, limit: int, after: int
    ) -> tuple[list[RequestRecord], int]:
        """The newest `limit` that ended in the last `since_s` seconds (0: ever), with numbers above
        `after`, oldest first; and how many there are."""

    async def beside(self, record: RequestRecord) -> Neighbours | None:
        """The others at its server meanwhile; None if it was at none."""

    def live(self, exchange: KnownExchange, snapshot: ExchangeSnapshot) -> RequestRecord:
        """A running or queued request as it is now."""


class EventsAccess(Protocol):
    """What happened to the fleet."""

    @property
    def instance(self) -> str:
        """Distinguishes the process whose numbers these are."""

    @property
    def last(self) -> int:
        """The number of the newest event."""

    def after(self, number: int) -> Iterable[FleetEvent]:
        """Those with higher numbers, oldest first."""

    def unix_offset_s(self) -> float:
        """What the clock of Unix time is ahead of theirs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminDependencies:
    """`clock` is the core's. `address_rejection` says why a caller at an IP address may not add an
    address, empty if it may. `obstacles` are why no request can be served, none if one can.
    `problems` are the sources in the settings that cannot be read, `outcomes` the numbers of
    requests by outcome since the start, and `bypassed` that of those that Envoy sent to a server
    without the picker. `takes_actions` says whether the pages act for who has the operators' token.
    `read_usage` returns the usage since a Unix time, grouped by fields of its key, up to a number
    of rows; it may raise `UsageError`, and is None where usage is not counted.
    `processes` are those of `fronts`, None without. `records` and `events` are None where they are
    not kept."""

    dispatcher: Dispatcher
    registry: ExchangeRegistry
    clock: Callable[[], float]
    settings: SettingsAccess
    added: AdminEndpoints
    explain: Callable[[DryRunRequest], Explanation]
    envoys: Callable[[], Sequence[ConnectedEnvoy]]
    address_rejection: Callable[[Address, str], str]
    obstacles: Callable[[], tuple[str, ...]]
    problems: Callable[[], Sequence[str]]
    outcomes: Callable[[], Mapping[str, int]]
    bypassed: Callable[[], int]
    takes_actions: Callable[[], bool]
    version: str
    started_at: float
    keepers: KeepersService
    placement: PlacementAccess
    read_usage: ReadUsage | None = None
    processes: Callable[[], Processes] | None = None
    records: RecordsAccess | None = None
    events: EventsAccess | None = None

    @property
    def machines(self) -> Mapping[str, KeptMachine]:
        """Those with a keeper, and the routers, by name."""
        return {**self.placement.machines, **self.keepers.machines}


class AdminCalls(AdminServicer):
    """Calls of one subject, with the dependencies of all."""

    def __init__(self, dependencies: AdminDependencies) -> None:
        self._dependencies = dependencies
        self._dispatcher = dependencies.dispatcher
