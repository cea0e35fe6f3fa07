"""Claims about extproc/core/exchange_registry.py."""

from __future__ import annotations

from dataclasses import dataclass

from extproc.core.exchange_registry import (
    ExchangeRegistry,
    ExchangeSnapshot,
    ExchangeState,
)
from extproc.core.queue.ticket import Ticket
from extproc.core.slots.lease import Lease


@dataclass(frozen=True)
class Known:
    """An exchange of which only its ids matter."""

    id: str
    request_id: str = ""

    @property
    def lease(self) -> Lease | None:
        return None

    @property
    def ticket(self) -> Ticket | None:
        return None

    @property
    def is_over(self) -> bool:
        return False

    def give_back(self, now: float) -> None:
        """It holds nothing."""

    def drop_lease(self) -> None:
        """It has none."""

    def snapshot(self, now: float) -> ExchangeSnapshot:
        return ExchangeSnapshot(
            exchange_id=self.id,
            request_id=self.request_id,
            state=ExchangeState.RUNNING,
            endpoint=None,
            age_s=now,
            waited_s=0.0,
            weight_slots=1,
        )

    def complete(self) -> None:
        """Nothing to complete."""

    def break_off(self, *, is_servers_fault: bool = False) -> None:
        """Nothing to break."""

    def reported(self) -> None:
        """Nothing waited for it."""

    def upload_reported(self, body_bytes: int, now: float, *, is_whole: bool) -> str | None:
        return None

    def check_key(self, now: float) -> None:
        """It has none."""

    def end_upload(self, why: str, now: float) -> None:
        """Nothing to end."""

    def cancel(self, now: float) -> None:
        """Nothing to cancel."""


def test_exchanges_enter_and_leave() -> None:
    """In order of arrival; leaving twice is no error."""
    registry = ExchangeRegistry()
    first, second = Known("1"), Known("2")
    registry.enter(first)
    registry.enter(second)
    assert (list(registry), registry.get("1"), registry.get("3")) == ([first, second], first, None)
    registry.leave(first)
    registry.leave(first)
    assert (list(registry), len(registry)) == ([second], 1)


def test_finding_by_either_id() -> None:
    """An exchange's own id names one; a client's id may name several."""
    registry = ExchangeRegistry()
    known = [Known("1", "a"), Known("2", "b"), Known("3", "a")]
    for exchange in known:
        registry.enter(exchange)
    assert [exchange for exchange, _ in registry.find("2", 1.0)] == [known[1]]
    assert [exchange for exchange, _ in registry.find("a", 1.0)] == [known[0], known[2]]
    assert registry.find("a", 7.0)[0][1].age_s == 7.0
    assert registry.find("c", 1.0) == []


def test_an_empty_id_matches_nothing() -> None:
    """Otherwise one empty id would match, and cancel, every request without an id."""
    registry = ExchangeRegistry()
    registry.enter(Known("1"))
    assert registry.find("", 1.0) == []
