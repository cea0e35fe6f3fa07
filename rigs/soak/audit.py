"""Holds what the clients saw against what the picker counted, and finds what it still keeps."""

import re
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from bench.process import descriptors
from bench.result import Row
from rigs.picker_pages import CORRECTIONS, unsettled, until_none
from rigs.soak.clients import BROKEN, LEFT, SERVED
from rigs.soak.stack import Stack

AT_REST_S = 30.0
"""How long the books may take to come to rest: slots of clients that left drain."""
PASSED = "passed"
_OUTCOME = re.compile(r'^coxswain_requests_total\{.*outcome="([^"]*)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """The picker before or after a run."""

    counted: Counter[str]
    descriptors: int


async def _read(stack: Stack) -> Picture:
    counted = _outcomes(await stack.pages.metrics())
    return Picture(counted=counted, descriptors=descriptors(stack.picker.pid))


async def begin(stack: Stack) -> Picture:
    """The picker before a run, at rest: the end of the request that found out whether the stack is
    ready may not be counted yet."""
    await _at_rest(stack)
    return await _read(stack)


async def rows(stack: Stack, outcomes: Mapping[str, int], sent: int, before: Picture) -> list[Row]:
    """What became of each request, whether the picker agrees, and what is left of it."""
    left_over = await _at_rest(stack)
    after = await _read(stack)
    counted = after.counted - before.counted
    corrections = await stack.pages.metric(CORRECTIONS)
    return [
        *outcome_rows(outcomes, sent),
        _none("requests that the picker counted differently", disagreements(outcomes, counted)),
        _none("leases, tickets and streams left over", left_over),
        Row(
            what="auditor corrections",
            value="not counted" if corrections is None else f"{corrections:g}",
            target="0",
            is_met=None if corrections is None else not corrections,
        ),
        Row(
            what="open files and sockets of the picker, before and after",
            value=f"{before.descriptors}, {after.descriptors}",
        ),
    ]


def outcome_rows(outcomes: Mapping[str, int], sent: int) -> list[Row]:
    """How the requests ended, as the clients saw it; each must have ended, and with a reason."""
    broken = {name: count for name, count in outcomes.items() if name.startswith(BROKEN)}
    counted = Counter(outcomes) - Counter(broken)
    lost = sent - sum(outcomes.values())
    return [
        Row(what="requests", value=f"{sent:,}"),
        *(
            Row(what=_worded(name), value=f"{count:,} ({100 * count / sent:.1f} %)")
            for name, count in counted.most_common()
        ),
        _none("failed without a reason", [f"{count} {name}" for name, count in broken.items()]),
        Row(what="without a known outcome", value=str(lost), target="0", is_met=not lost),
    ]


def disagreements(outcomes: Mapping[str, int], counted: Mapping[str, int]) -> list[str]:
    """What the picker's count does not explain. A client that left does not know how its request
    ended, so each number may be larger by those."""
    left = outcomes.get(LEFT, 0)
    known = {name: n for name, n in outcomes.items() if name != LEFT and BROKEN not in name}
    found = []
    for name in sorted(known.keys() | {SERVED}):
        seen, ours = known.get(name, 0), counted.get(name, 0)
        if not seen <= ours <= seen + left:
            found.append(f"{name}: {seen} seen, {ours} counted, {left} left")
    total, ours = sum(outcomes.values()), sum(counted.values()) - counted.get(PASSED, 0)
    if not total - left <= ours <= total:
        found.append(f"all: {total} seen, {ours} counted, {left} left")
    return found


async def _at_rest(stack: Stack) -> list[str]:
    """Wait until nothing is left of any request, but not for ever; returns what is left then."""
    return await until_none(lambda: _left(stack), time.monotonic() + AT_REST_S)


async def _left(stack: Stack) -> list[str]:
    numbers = unsettled(await stack.pages.status())
    return [f"{count} {what}" for what, count in numbers.items() if count]


def _outcomes(metrics: Mapping[str, float]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for name, value in metrics.items():
        if found := _OUTCOME.match(name):
            counts[found[1]] += int(value)
    return counts


def _worded(outcome: str) -> str:
    return outcome if outcome in (SERVED, LEFT) else f"rejected: {outcome}"


def _none(what: str, found: list[str]) -> Row:
    return Row(what=what, value="; ".join(found) or "none", target="none", is_met=not found)
