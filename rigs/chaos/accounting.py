"""Judges what a run recorded: each request accounted for exactly once. Pure.

Rules, each a function from the records to findings:

- `lost`: every call ended with an answer, or its client left.
- `unexplained`: an answer that is neither what was requested nor a rejection with a reason has a
  cause: the rig broke the server that had it, or Envoy, or the picker.
- `spoiled`: no server that the rig let be answered with an error of its own: it got another request
  than the client had sent.
- `twice`: at most one server began to answer a request with success, and none served a request
  that the picker refused.
- `early`: nobody was refused for a wait before that wait was over.
- `log`: the access log has one line for each call, which says what the client and the servers
  saw, and no other line of ours.
- `picker`: the picker logged the end of each request once.
- `full`: no server got a request on its first try while all its slots were in use. What Envoy sent
  there on a later try counts from its answer on: by that the picker learns of it. What arrived in
  a window may wait inside the server for long after it, which no server shows.
- `closed`: no server got one while the picker knew that it must not.
- `leftover`: at the end nothing is left.

A finding in a `Window` that excuses its rule is counted by the window's name, not reported.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import inf

from rigs.chaos.load import NO_ANSWER
from rigs.chaos.records import Arrival, Call, Ended, Line, Records

TOLERANCE_S = 0.05
"""Two events of two connections so close together may have been noted in the wrong order."""
IN_FLIGHT_S = 0.5
"""How long a request may take from the picker's decision to its server's door, the news of an
answer from there to the picker, or that of a client's leaving to that door."""
EARLY_S = 0.01
WAITED_TOO_LONG = "queue-timeout"
CHOICES = frozenset({"queue-full", WAITED_TOO_LONG, "shed", "evicted"})
"""Rejections that the picker may choose at any time."""
STATES = frozenset({"no-endpoint", "shutting-down", "picker-lost", "cancelled", "upload-stalled"})
"""Rejections that need a certain state, which windows show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that must not be."""

    rule: str
    id: str
    text: str


@dataclass(slots=True)
class Verdict:
    """`findings` must be empty; `excused` counts what fell into which window; `counts` describe
    the run."""

    findings: list[Finding] = field(default_factory=list)
    excused: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)


class _Index:
    """The records by request."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.calls = {call.id: call for call in records.calls}
        self.arrivals: defaultdict[str, list[Arrival]] = defaultdict(list)
        for arrival in records.arrivals:
            self.arrivals[arrival.id].append(arrival)
        self.lines: defaultdict[str, list[Line]] = defaultdict(list)
        for line in records.lines:
            self.lines[line.id].append(line)
        self.ended: defaultdict[str, list[Ended]] = defaultdict(list)
        for one in records.ended:
            self.ended[one.id].append(one)

    def is_first_try(self, arrival: Arrival) -> bool:
        """Whether it came where the picker sent it, not where Envoy went on to."""
        tries = self.arrivals[arrival.id]
        attempts = max((line.attempts for line in self.lines[arrival.id]), default=1)
        return attempts == 1 and tries[0] is arrival

    def servers_of(self, call: Call) -> set[str]:
        named = {arrival.server for arrival in self.arrivals[call.id]}
        named |= {line.endpoint for line in self.lines[call.id] if line.endpoint}
        return named


def judge(records: Records) -> Verdict:
    """Apply every rule. O(requests * windows)."""
    index = _Index(records)
    verdict = Verdict()
    for rule in RULES:
        for finding, began_at, ended_at, servers in rule(index):
            window = _excuse(records, finding.rule, began_at, ended_at, servers)
            if window:
                verdict.excused[f"{finding.rule}: {window}"] += 1
            else:
                verdict.findings.append(finding)
    for call in records.calls:
        verdict.counts[describe(call)] += 1
    verdict.counts["arrivals"] = len(records.arrivals)
    return verdict


def describe(call: Call) -> str:
    """What became of a call, in a word."""
    if call.is_served:
        return "served"
    if call.has_left:
        return "left"
    if call.is_refused:
        return f"rejected: {call.reason}"
    if call.error == NO_ANSWER:
        return "without a response"
    return "broken"


def _excuse(
    records: Records, rule: str, began_at: float, ended_at: float, servers: set[str]
) -> str:
    for window in records.windows:
        for server in servers or {""}:
            if window.covers(rule, began_at, ended_at, server):
                return window.what
    return ""


Suspect = tuple[Finding, float, float, set[str]]
"""A finding, when it was, and at which servers: what a window must cover to excuse it."""


def _suspect(rule: str, call: Call, text: str, servers: set[str]) -> Suspect:
    text = f"{call.kind}, {text}"
    return Finding(rule=rule, id=call.id, text=text), call.sent_at, call.ended_at, servers


def _lost(index: _Index) -> Iterator[Suspect]:
    for call in index.records.calls:
        if call.error == NO_ANSWER:
            text = f"no answer in {call.ended_at - call.sent_at:.1f} s, status {call.status}"
            yield _suspect("lost", call, text, index.servers_of(call))


def _unexplained(index: _Index) -> Iterator[Suspect]:
    for call in index.records.calls:
        if call.is_served or call.has_left or call.error == NO_ANSWER:
            continue
        if call.is_refused and call.reason in CHOICES:
            continue
        if call.reason == "upload-stalled" and call.kind.endswith("upload"):
            continue
        if call.is_refused and call.reason in STATES:
            yield _suspect(call.reason, call, "rejected", index.servers_of(call))
        elif not any(arrival.fault for arrival in index.arrivals[call.id]):
            details = [f"{line.status} {line.details}" for line in index.lines[call.id]]
            text = (
                f"status {call.status}, {'whole' if call.is_whole else 'cut'}, "
                f"{call.body_bytes} bytes {call.error} {details} "
                f"at {sorted(index.servers_of(call))}"
            )
            is_spoiled = any(one.is_whole and one.status >= 400 for one in index.arrivals[call.id])
            rule = "spoiled" if is_spoiled else "unexplained"
            yield _suspect(rule, call, text, index.servers_of(call))


def _twice(index: _Index) -> Iterator[Suspect]:
    for call in index.records.calls:
        begun = [one for one in index.arrivals[call.id] if one.status == 200]
        servers = {arrival.server for arrival in begun}
        if len(begun) > 1:
            where = [arrival.server for arrival in begun]
            yield _suspect("twice", call, f"began to be answered at {where}", servers)
        elif call.is_refused and call.reason in CHOICES and index.arrivals[call.id]:
            yield _suspect("twice", call, f"rejected ({call.reason}) and sent to a server", servers)


def _early(index: _Index) -> Iterator[Suspect]:
    for call in index.records.calls:
        waited_s = call.ended_at - call.sent_at
        if call.reason == WAITED_TOO_LONG and waited_s < call.patience_s - EARLY_S:
            text = f"rejected after {waited_s:.3f} of {call.patience_s:.3f} s"
            yield _suspect("early", call, text, set())


def _log(index: _Index) -> Iterator[Suspect]:
    for call in index.records.calls:
        lines, servers = index.lines[call.id], index.servers_of(call)
        if len(lines) != 1:
            is_unheard = not lines and (call.has_left or call.error) and not servers
            if not is_unheard:
                yield _suspect("log", call, f"{len(lines)} lines in the access log", servers)
            continue
        line = lines[0]
        if call.status and line.status != call.status:
            text = f"the client got {call.status}, the log says {line.status}"
            yield _suspect("log", call, text, servers)
        elif call.is_whole and line.bytes_out != call.body_bytes:
            text = f"the client got {call.body_bytes} bytes, the log says {line.bytes_out}"
            yield _suspect("log", call, text, servers)
        elif call.is_served:
            at = [one.server for one in index.arrivals[call.id] if one.status == 200]
            if at != [line.endpoint]:
                text = f"the log says {line.endpoint}, the servers {at}"
                yield _suspect("log", call, text, servers)
    for identity in index.lines.keys() | index.arrivals.keys():
        if identity not in index.calls:
            finding = Finding(rule="log", id=identity, text="nobody sent this request")
            yield finding, -inf, inf, set()


def _picker(index: _Index) -> Iterator[Suspect]:
    for call in index.records.calls:
        ends, servers = index.ended[call.id], index.servers_of(call)
        if len(ends) > 1:
            yield _suspect("picker", call, f"{len(ends)} ends in the picker's log", servers)
        elif not ends and (call.is_served or call.reason in CHOICES):
            yield _suspect("picker", call, "no end in the picker's log", servers)
        elif ends and call.is_served and ends[0].outcome != "served":
            text = f"served, and {ends[0].outcome} in the picker's log"
            yield _suspect("picker", call, text, servers)


def _full(index: _Index) -> Iterator[Suspect]:
    def weight(arrival: Arrival) -> int:
        call = index.calls.get(arrival.id)
        return 1 if call is None else call.weight

    def ended_at(one: Arrival) -> float:
        call = index.calls.get(one.id)
        if one.is_whole or not one.closed_at or call is None or not call.has_left:
            return one.ended_at or inf
        # The rig may hear of a client's end late (TLS is closed in peace), of the server's at once.
        return min(one.closed_at, max(call.ended_at, one.closed_at - IN_FLIGHT_S))

    def is_known(one: Arrival, at: float) -> bool:
        return index.is_first_try(one) or 0 < one.first_byte_at < at - IN_FLIGHT_S

    by_server: defaultdict[str, list[Arrival]] = defaultdict(list)
    for arrival in sorted(index.records.arrivals, key=lambda one: one.at):
        present = [
            one for one in by_server[arrival.server] if ended_at(one) > arrival.at + TOLERANCE_S
        ]
        by_server[arrival.server] = [*present, arrival]
        known = [one for one in present if is_known(one, arrival.at)]
        in_use, slots = sum(map(weight, known)), index.records.slots[arrival.server]
        if in_use + weight(arrival) > slots and index.is_first_try(arrival):
            users = ", ".join(_use(one, arrival.at, index.calls.get(one.id)) for one in known)
            text = f"{arrival.server} had {in_use} of {slots} slots in use, {users}"
            finding = Finding(rule="full", id=arrival.id, text=text)
            waiting = (one.at for one in known if not 0 < one.first_byte_at < arrival.at)
            yield finding, min([arrival.at, *waiting]), arrival.at, {arrival.server}


def _use(one: Arrival, at: float, call: Call | None) -> str:
    """How a request uses its slot at that time, for people."""
    text = f"by {one.id} for {at - one.at:.3f} s"
    if 0 < one.first_byte_at < at:
        text += f", answered for {at - one.first_byte_at:.3f} s"
    if call is not None and call.has_left and call.ended_at < at:
        text += f", left {at - call.ended_at:.3f} s before"
    if one.closed_at:
        text += f", closed {one.closed_at - at:+.3f} s"
    return text


def _closed(index: _Index) -> Iterator[Suspect]:
    for closed in index.records.closed:
        for arrival in index.records.arrivals:
            if (
                arrival.server == closed.server
                and closed.began_at + IN_FLIGHT_S < arrival.at < closed.ended_at
                and index.is_first_try(arrival)
            ):
                text = f"{arrival.server} was {closed.why} for {arrival.at - closed.began_at:.2f} s"
                finding = Finding(rule="closed", id=arrival.id, text=text)
                yield finding, arrival.at, arrival.at, {arrival.server}


def _leftover(index: _Index) -> Iterator[Suspect]:
    for left in index.records.leftovers:
        finding = Finding(rule="leftover", id="", text=f"{left.what}: {left.value}")
        yield finding, inf, inf, set()


RULES: tuple[Callable[[_Index], Iterator[Suspect]], ...] = (
    _lost,
    _unexplained,
    _twice,
    _early,
    _log,
    _picker,
    _full,
    _closed,
    _leftover,
)
