"""What would become of a request, and why: the decision told without being made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from extproc.core.endpoint import SERVING, Intent
from extproc.core.outcome import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from extproc.core.account import Account
    from extproc.core.address import Address
    from extproc.core.dispatcher import Dispatcher
    from extproc.core.endpoint import Endpoint
    from extproc.core.request import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Inquiry:
    """A request as its client would send it; `body` may be a part of it."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One part of a candidate's rank, in the unit that its name tells."""

    name: str
    value: float
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """How one endpoint fared. `rank` is 1 for the best, equal for equals, 0 for one left out."""

    address: Address
    name: str
    filtered: tuple[str, ...] = ()
    scores: tuple[Score, ...] = ()
    rank: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The outcome is passed, rejected (`reason`), queued (`position`) or picked (`chosen`)."""

    candidates: tuple[Candidate, ...]
    chosen: Address | None = None
    position: int = 0
    reason: Reason | None = None
    takes_slot: bool = True
    expected_s: float | None = None
    understood: Mapping[str, str] = field(default_factory=dict)


def explain(dispatcher: Dispatcher, request: Request) -> Explanation:
    """What `Dispatcher.submit` would answer now. O(n log n); changes nothing."""
    candidates = _ranked(dispatcher, request.weight_slots)
    understood = {"weight_slots": str(request.weight_slots), "timeout_s": f"{request.timeout_s:g}"}
    first = candidates[0] if candidates and candidates[0].rank else None
    if first is not None and not dispatcher.line:
        return Explanation(candidates=candidates, chosen=first.address, understood=understood)
    waiting = len(dispatcher.line)
    reason = None
    if waiting >= dispatcher.options.max_queued:
        reason = Reason.QUEUE_FULL
    elif request.timeout_s <= 0:
        reason = Reason.QUEUE_TIMEOUT
    if reason is not None and not any(endpoint.is_pickable for endpoint in dispatcher.fleet):
        reason = Reason.NO_ENDPOINT
    return Explanation(
        candidates=candidates,
        reason=reason,
        position=0 if reason is not None else waiting + 1,
        expected_s=None if reason is not None else dispatcher.expected_s(waiting + 1),
        understood=understood,
    )


def explain_passing(dispatcher: Dispatcher) -> Explanation:
    """Where a request that takes no slot would go now. O(n log n); changes nothing."""
    candidates = _ranked(dispatcher, 0)
    first = candidates[0] if candidates and candidates[0].rank else None
    return Explanation(
        candidates=candidates,
        chosen=first.address if first is not None else None,
        takes_slot=False,
    )


def _ranked(dispatcher: Dispatcher, weight_slots: int) -> tuple[Candidate, ...]:
    """Every endpoint, best first; those left out come last."""
    rated = []
    for endpoint in dispatcher.fleet:
        account = dispatcher.ledger.account(endpoint.address)
        why = tuple(_objections(endpoint, account, weight_slots))
        share = account.free_slots / account.slots if account.slots else 0.0
        key = (not why, endpoint.is_first_choice, share)
        rated.append((key, endpoint, why))
    rated.sort(key=lambda entry: (entry[0], entry[1].address), reverse=True)
    candidates: list[Candidate] = []
    rank, last = 0, None
    for key, endpoint, why in rated:
        if key != last and key[0]:
            rank, last = len(candidates) + 1, key
        scores = (
            Score(name="free_share", value=key[2]),
            Score(
                name="first_choice",
                value=float(key[1]),
                detail="" if key[1] else "a backup: it sleeps, or its last look is old",
            ),
        )
        candidates.append(
            Candidate(
                address=endpoint.address,
                name=endpoint.spec.name,
                filtered=why,
                scores=scores,
                rank=0 if why else rank,
            )
        )
    return tuple(candidates)


def _objections(endpoint: Endpoint, account: Account, weight_slots: int) -> Iterator[str]:
    if endpoint.is_removed:
        yield "it left the fleet and ends its last requests"
    if endpoint.intent is not Intent.ACTIVE:
        yield f"an operator made it {endpoint.intent.value}"
    if endpoint.health not in SERVING:
        yield f"it is {endpoint.health.value}"
    if not endpoint.is_routable:
        yield "not every Envoy knows it yet"
    if account.slots == 0:
        yield "it has not told how many slots it has"
    elif account.free_slots < min(weight_slots, account.slots):
        taken = f"{account.leased_slots} leased, {account.foreign_slots} foreign"
        yield f"{account.free_slots} of its {account.slots} slots are free ({taken})"
