"""The dependencies of the admin service, and the base of its calls."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from extproc.admin.keepers import KeepersService
from extproc.core.address import Address
from extproc.core.fleet.membership import ConnectedEnvoy
from extproc.core.placement.machine import KeptMachine
from extproc.core.placement.placer import Placer
from extproc.core.processes import Processes
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.core.scheduler.exchange_registry import ExchangeRegistry
from extproc.core.scheduler.explain import DryRunRequest, Explanation
from extproc.pb.coxswain.v1.admin_pb2_grpc import AdminServicer
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


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminDependencies:
    """`clock` is the core's. `address_rejection` says why a caller at an IP address may not add an
    address, empty if it may. `not_ready_reason` is empty if requests can be served. `problems` are
    the sources in the settings that cannot be read, `outcomes` the numbers of requests by outcome
    since the start. `read_usage` returns the usage since a Unix time, grouped by fields of its key,
    up to a number of rows; it may raise `UsageError`, and is None where usage is not counted.
    `processes` are those of `fronts`, None without."""

    dispatcher: Dispatcher
    registry: ExchangeRegistry
    clock: Callable[[], float]
    settings: SettingsAccess
    added: AdminEndpoints
    explain: Callable[[DryRunRequest], Explanation]
    envoys: Callable[[], Sequence[ConnectedEnvoy]]
    address_rejection: Callable[[Address, str], str]
    not_ready_reason: Callable[[], str]
    problems: Callable[[], Sequence[str]]
    outcomes: Callable[[], Mapping[str, int]]
    version: str
    started_at: float
    keepers: KeepersService
    placement: PlacementAccess
    read_usage: ReadUsage | None = None
    processes: Callable[[], Processes] | None = None


class AdminCalls(AdminServicer):
    """Calls of one subject, with the dependencies of all."""

    def __init__(self, dependencies: AdminDependencies) -> None:
        self._dependencies = dependencies
        self._dispatcher = dependencies.dispatcher
