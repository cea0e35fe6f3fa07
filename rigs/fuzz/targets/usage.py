"""The count of usage: responses, records and scrapes in any order; each request counts once."""

from extproc.core.address import Address
from extproc.core.exchange_record import ExchangeRecord, Outcome
from extproc.core.observation import Observation, ScrapeStatus, SlotReading
from extproc.usage.answer_tail import AnswerTail, TokenUsage
from extproc.usage.counts import COUNTED, Tally
from extproc.usage.meter import Response, UsageMeter
from rigs.fuzz.reader import Reader

SERVERS = (Address("10.0.0.1", 8000), Address("10.0.0.2", 8000))
IDS = tuple("abcdef")


class Attempt:
    """One meter; time passes as the bytes say."""

    def __init__(self) -> None:
        self._now = 100.0
        self._tally = Tally()
        self._meter = UsageMeter(
            self._tally, lambda: self._now, lambda: self._now, lambda _: "model"
        )
        self._open: list[Response] = []
        self._fresh = list(IDS)
        self._had_slot = self._rejected = 0

    def run(self, reader: Reader) -> None:
        """Steps until the bytes end; then everything is counted."""
        steps = (self._respond, self._part, self._close, self._read, self._record, self._scrape)
        while reader:
            self._now += reader.number(20) / 10
            reader.choice(steps)(reader)
            if reader.flag():
                self._meter.advance()
        for response in self._open:
            self._meter.close(response, is_whole=False)
        self._now += 1000.0
        self._meter.advance(is_last=True)
        sums = self._tally.since_start().values()
        assert sum(counts.requests for counts in sums) == self._had_slot
        assert sum(counts.rejected for counts in sums) == self._rejected
        assert all(getattr(counts, name) >= 0 for counts in sums for name in COUNTED)

    def _respond(self, reader: Reader) -> None:
        self._open.append(self._meter.open(reader.choice(IDS)))

    def _part(self, reader: Reader) -> None:
        if self._open:
            reader.choice(self._open).tail.add(reader.few())

    def _close(self, reader: Reader) -> None:
        if self._open:
            response = self._open.pop(reader.number(len(self._open)))
            self._meter.close(response, is_whole=reader.flag())

    def _read(self, reader: Reader) -> None:
        """A front has read it."""
        counts = [reader.choice((None, reader.number(256))) for _ in range(3)]
        tail = AnswerTail(TokenUsage(*counts), reader.number(256))
        self._meter.add_read(reader.choice(IDS), tail, is_whole=reader.flag())

    def _record(self, reader: Reader) -> None:
        """An exchange ends once."""
        if not self._fresh:
            return
        exchange_id = self._fresh.pop(reader.number(len(self._fresh)))
        outcome = reader.choice(tuple(Outcome))
        had_slot = outcome in (Outcome.SERVED, Outcome.BROKEN)
        self._had_slot += had_slot
        self._rejected += outcome is Outcome.REJECTED
        duration_s = reader.number(100) / 10
        is_read = reader.flag()
        self._meter.record(
            ExchangeRecord(
                exchange_id=exchange_id,
                request_id=reader.text(),
                outcome=outcome,
                reason=None,
                endpoint=reader.choice((*SERVERS, None)) if had_slot else None,
                status=reader.choice((200, 0, 500)),
                attempts=1,
                waited_s=0.0,
                first_token_s=None,
                duration_s=duration_s,
                began_at=self._now - duration_s,
                opened_at=self._now - duration_s if had_slot and reader.flag() else None,
                input_tokens=reader.number(256) if is_read else None,
                output_tokens=reader.choice((None, reader.number(256))),
                is_response_read=is_read,
                slot_s=duration_s,
            )
        )

    def _scrape(self, reader: Reader) -> None:
        readings = [
            SlotReading(
                task_id=reader.number(8),
                decoded_tokens=reader.choice((None, reader.number(256))),
            )
            for _ in range(reader.number(3))
        ]
        self._meter.observe(
            Observation(
                address=reader.choice(SERVERS),
                began_at=self._now - reader.number(10) / 10,
                answered_at=self._now,
                status=ScrapeStatus.READY,
                slots=2,
                busy_slots=len(readings),
                slot_readings=tuple(readings),
            )
        )


def check(data: bytes) -> None:
    Attempt().run(Reader(data))
