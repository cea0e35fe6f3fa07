"""What the admin service needs of the picker around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from extproc.core.dispatcher import Dispatcher
    from extproc.core.explanation import Explanation, Inquiry
    from extproc.core.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectedEnvoy:
    """One Envoy that takes the fleet from us; its version is -1 before the first."""

    node_id: str
    acknowledged_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloaded:
    """Which settings changed, by their dotted keys: in force now, or after a restart."""

    applied: tuple[str, ...] = ()
    needs_restart: tuple[str, ...] = ()


class ReloadError(ValueError):
    """The new settings cannot be used and the old ones stay; `str(error)` names each mistake."""


class SettingsDesk(Protocol):
    """The settings, as the admin service may show and renew them."""

    @property
    def file(self) -> str:
        """Where they came from; empty when from no file."""

    def describe(self) -> Mapping[str, object]:
        """All settings in force, fit for JSON, without any secret."""

    async def reload(self, is_dry_run: bool) -> Reloaded:
        """Read them again and apply what can be; raises `ReloadError` and changes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """`clock` is the core's; `not_ready_reason` is empty when requests are taken;
    `outcomes` tells how many requests ended in which way since the start."""

    dispatcher: Dispatcher
    registry: Registry
    clock: Callable[[], float]
    settings: SettingsDesk
    explain: Callable[[Inquiry], Explanation]
    envoys: Callable[[], Sequence[ConnectedEnvoy]]
    not_ready_reason: Callable[[], str]
    outcomes: Callable[[], Mapping[str, int]]
    version: str
    started_at: float
