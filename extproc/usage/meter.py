"""Counts each request once: its record from ext_proc, and the counts in its response, in any order.

    record served, response whole    the counts of its end
    record served, the rest missing  waited for; then as if its client had left
    record broken                    what the server did until it noticed: `ended_tasks`
    record rejected                  counted as rejected

Where servers' counters are read, requests whose tokens are not known for certain wait until the
counters have said what they used together: `reconciliation`.

Belongs to one event loop, and never raises to the request path.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from extproc.core.address import Address
from extproc.core.exchange_record import ExchangeRecord, Outcome
from extproc.core.observation import Observation
from extproc.core.price import FREE
from extproc.usage.answer_tail import AnswerTail, TokenUsage
from extproc.usage.counts import Tally, UsageCounts, UsageKey
from extproc.usage.ended_tasks import Left, Work
from extproc.usage.reconciliation import Held, Tokens
from extproc.usage.server_account import Leases, ServerAccount

WAIT_S: Final = 2.0
"""The last part of a response arrives within this time after its exchange ended."""
MAX_RESPONSES: Final = 100_000
"""Responses that are read or waited for; without room for more, the oldest is counted as it is."""
ReadResponse: TypeAlias = tuple[
    str, bool, int, bool, int | None, int | None, int | None, float | None, float | None
]
"""A response that was read elsewhere: the exchange, whether all of it came, its events, whether it
ended as its server's context was full, and its counts and times as in `TokenUsage`."""
HAD_SLOT: Final = frozenset({Outcome.SERVED, Outcome.BROKEN})


@dataclass(slots=True, eq=False)
class Response:
    """What passed of one response."""

    exchange_id: str
    tail: AnswerTail
    has_begun: bool = False
    is_whole: bool = False
    is_closed: bool = False
    record: ExchangeRecord | None = None
    recorded_at: float = 0.0


class UsageMeter:
    """A request costs microseconds here, each part of its response about one."""

    def __init__(
        self,
        tally: Tally,
        clock: Callable[[], float],
        unix_clock: Callable[[], float],
        model_of: Callable[[ExchangeRecord], str],
        counted: Callable[[ExchangeRecord, UsageCounts], None] = lambda *_: None,
        leases: Leases | None = None,
        overflowed: Callable[[str, ExchangeRecord | None], None] = lambda *_: None,
    ) -> None:
        """`clock` is the core's, `unix_clock` that of the calendar. `model_of` returns the fleet's
        name of the model. `counted` hears of each request once its tokens are known. With `leases`
        the counts are reconciled with the servers' counters. `overflowed` hears of each response
        that ended because the context of its server was full, with the record of its exchange if
        that has ended."""
        self._tally = tally
        self._clock = clock
        self._unix_clock = unix_clock
        self._model_of = model_of
        self._counted = counted
        self._leases = leases
        self._overflowed = overflowed
        self._responses: dict[str, Response] = {}
        self._servers: dict[Address, ServerAccount] = {}
        self._left: dict[int, tuple[Left, ExchangeRecord]] = {}
        self._held: dict[int, tuple[Held, ExchangeRecord]] = {}
        self.unread = 0
        """Requests that were served, and of whose responses nothing came."""

    def __len__(self) -> int:
        """The number of requests that are not counted yet."""
        return len(self._responses) + len(self._left) + len(self._held)

    # Responses

    def open(self, exchange_id: str) -> Response:
        """A response begins; calling it twice continues the same one."""
        response = self._entry(exchange_id)
        response.has_begun = True
        return response

    def add_read(self, exchange_id: str, tail: AnswerTail, *, is_whole: bool) -> None:
        """A response that another process has read."""
        response = self.open(exchange_id)
        response.tail = tail
        self.close(response, is_whole=is_whole)

    def is_awaited(self, exchange_id: str) -> bool:
        """Whether its exchange has ended, and its response not."""
        return exchange_id in self._responses

    def _entry(self, exchange_id: str) -> Response:
        response = self._responses.get(exchange_id)
        if response is None:
            while len(self._responses) >= MAX_RESPONSES:
                self._give_up(self._responses.pop(next(iter(self._responses))))
            response = self._responses[exchange_id] = Response(exchange_id, AnswerTail())
        return response

    def close(self, response: Response, *, is_whole: bool) -> None:
        """No more of it comes; `is_whole`: that was all of it."""
        response.is_whole = response.is_whole or is_whole
        response.is_closed = True
        if response.tail.is_overflow():
            self._overflowed(response.exchange_id, response.record)
        if response.record is not None:
            self._count_response(response, response.record)

    # Records

    def record(self, record: ExchangeRecord) -> None:
        """An exchange ended."""
        if record.endpoint is not None and record.opened_at is not None:
            self._server(record.endpoint).request_ended(record, self._clock())
        if record.outcome not in HAD_SLOT:
            self._responses.pop(record.exchange_id, None)
            if record.outcome is Outcome.REJECTED:
                self._add(record, UsageCounts(rejected=1))
            return
        is_failure = record.status >= 400  # an error has no counts
        if record.opened_at is None or is_failure:
            self._responses.pop(record.exchange_id, None)
            self._count(record, TokenUsage(0, 0, 0))
            return
        if record.is_response_read:
            usage = TokenUsage(record.input_tokens, record.output_tokens, record.cached_tokens)
            if record.outcome is Outcome.SERVED or usage.output_tokens is not None:
                self._count(record, usage)
            else:
                self._leave(record, Response(record.exchange_id, AnswerTail()))
            return
        response = self._entry(record.exchange_id)
        response.record, response.recorded_at = record, self._clock()
        if response.is_closed or record.outcome is Outcome.BROKEN:
            self._count_response(response, record)

    def _count_response(self, response: Response, record: ExchangeRecord) -> None:
        if self._responses.get(response.exchange_id) is not response:
            return  # counted before
        del self._responses[response.exchange_id]
        record.is_overflow = record.is_overflow or response.tail.is_overflow()
        if response.is_whole:
            usage = response.tail.usage()
            _complete(record, usage)
            self._count(record, usage)
        else:
            self._leave(record, response)

    def _leave(self, record: ExchangeRecord, response: Response) -> None:
        assert record.opened_at is not None
        usage = response.tail.usage()
        if record.endpoint is None:
            self._count(record, usage)
            return
        left = Left(
            opened_at=record.opened_at,
            left_at=record.ended_at,
            events=response.tail.events,
            prompt_tokens=usage.input_tokens,
            cached_tokens=usage.cached_tokens,
        )
        self._left[id(left)] = left, record
        self._server(record.endpoint).tasks.left(left)

    def _server(self, address: Address) -> ServerAccount:
        server = self._servers.get(address)
        if server is None:
            server = self._servers[address] = ServerAccount(address, self._leases)
        return server

    # Scrapes and time

    def observe(self, observation: Observation) -> bool:
        """A scrape shows what the tasks of clients that left have done. Returns whether to scrape
        the server again at once."""
        server = self._server(observation.address)
        return server.observe(observation, self._pending, self._clock())

    def wants_counters(self, address: Address) -> bool:
        """Whether the scrape that begins now reads the server's counters."""
        return self._server(address).takes_counters()

    def to_scrape(self) -> list[Address]:
        """The servers to scrape now, for a reading of their counters."""
        if self._leases is None:
            return []
        now = self._clock()
        return [one for one, server in self._servers.items() if server.wants_scrape(now)]

    def _pending(self, address: Address) -> set[str]:
        """The exchanges that have ended, and that are neither counted nor held."""
        found = {
            response.exchange_id
            for response in self._responses.values()
            if response.record is not None and response.record.endpoint == address
        }
        found.update(
            record.exchange_id for _, record in self._left.values() if record.endpoint == address
        )
        return found

    def advance(self, *, is_last: bool = False) -> None:
        """Count what is decided by now; `is_last`: everything, by what is known."""
        now = self._clock()
        for response in list(self._responses.values()):
            if response.record is not None and (is_last or now > response.recorded_at + WAIT_S):
                self.unread += not (is_last or response.has_begun)
                self._count_response(response, response.record)
        for server in self._servers.values():
            for left, work in server.settle(now, is_last=is_last):
                _, record = self._left.pop(id(left))
                self._count_work(record, work)
            for held in server.reconciliation.settle(now, is_last=is_last):
                _, record = self._held.pop(id(held))
                self._count_held(record, held)

    def keep_servers(self, addresses: Mapping[Address, object] | frozenset[Address]) -> None:
        """Forget servers that left the fleet, unless requests wait for them."""
        gone = [one for one in self._servers if one not in addresses]
        for address in gone:
            if self._servers[address].is_idle:
                del self._servers[address]

    # Counting

    def _give_up(self, response: Response) -> None:
        if response.record is not None:
            self._count(response.record, response.tail.usage())

    def _count_work(self, record: ExchangeRecord, work: Work | None) -> None:
        if self._hold(record, work):
            return
        usage = TokenUsage()
        if work is not None:
            usage = TokenUsage(work.prompt_tokens, work.generated_tokens, work.cached_tokens)
        self._count(record, usage)

    def _count_held(self, record: ExchangeRecord, held: Held) -> None:
        tokens = held.tokens
        prompt = tokens.processed + tokens.cached
        is_known = held.work is not None or held.is_compared
        usage = TokenUsage(prompt, tokens.generated, tokens.cached) if is_known else TokenUsage()
        self._add(record, _counts(record, usage))

    def _hold(self, record: ExchangeRecord, work: Work | None) -> bool:
        """Let the request wait for the server's counters, if it shows them."""
        now = self._clock()
        if record.endpoint is None or record.opened_at is None:
            return False
        server = self._server(record.endpoint)
        if not server.reconciliation.is_active:
            return False
        if work is not None and record.tasks > 1:  # nothing shows which tasks are its
            work = replace(work, is_prompt_certain=False, is_generated_certain=False)
        held = Held(record.exchange_id, work, now)
        self._held[id(held)] = held, record
        server.reconciliation.hold(held)
        return True

    def _count(self, record: ExchangeRecord, usage: TokenUsage) -> None:
        counts = _counts(record, usage)
        is_exact = record.tasks <= 1 and not counts.uncounted
        if record.endpoint is not None and record.outcome is Outcome.SERVED:
            if not counts.uncounted:
                self._exclude(record, usage)
            if not is_exact and self._hold(record, _first_task(usage)):
                return
        if record.endpoint is not None and record.opened_at is not None:
            self._server(record.endpoint).reconciliation.book(record.exchange_id, Tokens.of(counts))
        self._add(record, counts)

    def _exclude(self, record: ExchangeRecord, usage: TokenUsage) -> None:
        assert record.endpoint is not None
        if record.opened_at is not None and usage.input_tokens is not None:
            self._server(record.endpoint).tasks.served(
                record.opened_at,
                record.ended_at,
                usage.input_tokens,
                usage.output_tokens or 0,
            )

    def _add(self, record: ExchangeRecord, counts: UsageCounts) -> None:
        model = self._model_of(record)
        key = UsageKey(record.client, record.objective, model, str(record.tier))
        if record.price is not FREE:
            counts.cost = record.price.of(
                counts.prompt_tokens, counts.generated_tokens, counts.slot_s
            )
        self._tally.add(key, counts, self._unix_clock())
        self._counted(record, counts)


def _complete(record: ExchangeRecord, usage: TokenUsage) -> None:
    """Add what its whole response says, for operators."""
    record.input_tokens, record.output_tokens = usage.input_tokens, usage.output_tokens
    record.cached_tokens = usage.cached_tokens
    record.prompt_s, record.generated_s = usage.prompt_s, usage.generated_s


def _counts(record: ExchangeRecord, usage: TokenUsage) -> UsageCounts:
    is_known = usage.input_tokens is not None or usage.output_tokens is not None
    return UsageCounts(
        requests=1,
        uncounted=0 if is_known else 1,
        prompt_tokens=usage.input_tokens or 0,
        cached_tokens=usage.cached_tokens or 0,
        generated_tokens=usage.output_tokens or 0,
        slot_s=record.slot_s,
    )


def _first_task(usage: TokenUsage) -> Work | None:
    """What the response of a request of several tasks says: the counts of the first one."""
    if usage.input_tokens is None and usage.output_tokens is None:
        return None
    generated = usage.output_tokens or 0
    return Work(
        prompt_tokens=usage.input_tokens or 0,
        cached_tokens=usage.cached_tokens or 0,
        generated_tokens=generated,
        least_generated_tokens=generated,
    )
