"""The requests of a cell: rows of a trace, scaled in time, with prompts made up. Pure."""

import json
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from random import Random
from statistics import fmean
from typing import Final, NamedTuple
from zlib import crc32

from bench.public_traces import TraceRow
from extproc.demo.vocabulary import WORDS

MODEL: Final = "compared"
"""Some pickers reject requests without a model."""
PREFILL_TOKENS_S: Final = 2_000.0
DECODE_TOKENS_S: Final = 30.0
"""The speed of one slot of the servers that are played."""
MEAN_SERVICE_S: Final = 0.15
"""What the mean request of a trace takes on a free slot with no cache, after scaling."""
TOKENS_PER_EVENT: Final = 8
"""Tokens of an answer that are sent as one event, so that clients and servers leave processor time
to the rivals."""
SPARE: Final = 1.3
"""How many times more rows are sampled than are needed in the mean."""
LONGEST_PROMPT_TOKENS: Final = 32_768
"""Rows with longer prompts are left out."""

MADE_UP_BLOCK_TOKENS: Final = 128
NEW_TOKENS, NEW_SIGMA = 600, 1.0
ANSWER_TOKENS, ANSWER_SIGMA = 211, 0.86
"""Means and shapes of lognormal lengths, as of the conversations of Azure's trace."""
CONTINUES: Final = 0.37
"""The share of requests that go on with a conversation, such that 40 % of blocks were seen before,
as in the conversations of Mooncake's trace."""
SYSTEM_PROMPTS, SYSTEM_TOKENS = 4, MADE_UP_BLOCK_TOKENS
RECENT, PAUSE = 48, 16
"""How many conversations can go on, and after how many other requests."""

SERIAL_PROMPT_TOKENS = {"short": 60, "long": 400}
SERIAL_ANSWER_TOKENS = {"short": 60, "long": 600}
SERIAL_SIGMA: Final = 0.5
SHORT_SHARE: Final = 0.7


class Request(NamedTuple):
    """One request of a cell. `kind` names the part of the table that it counts in, empty for one
    from which only the picker learns."""

    at_s: float
    body: str
    key: str
    kind: str


class Pace(NamedTuple):
    """How fast the servers of a cell are, and by which factor that is faster than those that are
    played."""

    prefill_tokens_s: float
    events_s: float
    factor: float


def pace_of(rows: Sequence[TraceRow]) -> Pace:
    """The pace at which the mean of these takes `MEAN_SERVICE_S`."""
    mean_s = fmean(
        row.prompt_tokens / PREFILL_TOKENS_S + row.answer_tokens / DECODE_TOKENS_S for row in rows
    )
    factor = mean_s / MEAN_SERVICE_S
    return Pace(PREFILL_TOKENS_S * factor, DECODE_TOKENS_S * factor / TOKENS_PER_EVENT, factor)


def service_s(row: TraceRow, pace: Pace) -> float:
    """How long it holds a slot that has nothing of it in its cache."""
    return row.prompt_tokens / pace.prefill_tokens_s + events(row) / pace.events_s


def events(row: TraceRow) -> int:
    """The events of its answer."""
    return max(1, round(row.answer_tokens / TOKENS_PER_EVENT))


def sample(rows: Sequence[TraceRow], count: int) -> list[TraceRow]:
    """About that many rows or more. Of a trace with conversations those of every k-th one, so that
    they come from all of its time and repeat as much as it does; of another one the second half,
    as traces begin slowly."""
    if not any(row.conversation for row in rows):
        return list(rows[len(rows) // 2 :])
    every = max(1, int(len(rows) / (SPARE * count)))
    return [row for row in rows if crc32(row.conversation.encode()) % every == 0]


def window(
    rows: Sequence[TraceRow], seconds: float, work_s: float, cost_s: Callable[[TraceRow], float]
) -> list[TraceRow]:
    """The first rows that cost `work_s` slot-seconds together, at most all, with their times
    stretched so that they come within `seconds` if the work is complete: what is left of the shape
    of the trace is the proportion of its gaps."""
    taken = []
    sum_s = 0.0
    for row in rows:
        if sum_s >= work_s:
            break
        taken.append(row)
        sum_s += cost_s(row)
    began, span_s = taken[0].at_s, taken[-1].at_s - taken[0].at_s
    stretch = seconds * min(1.0, sum_s / work_s) / span_s if span_s else 0.0
    return [row._replace(at_s=(row.at_s - began) * stretch) for row in taken]


def requests_of(rows: Sequence[TraceRow], block_tokens: int, *, is_real: bool) -> list[Request]:
    """What clients send. Real servers need the length of the answer as `max_tokens`; the simulator
    has it from a key that no rival reads."""
    made = []
    for number, row in enumerate(rows):
        length = {"max_tokens": events(row), "ignore_eos": True}
        if not is_real:
            length = {"simulated_answer_tokens": events(row)}
        text = prompt(row, number, block_tokens)
        messages = [{"role": "user", "content": text}]
        body = json.dumps({"model": MODEL, "messages": messages, "stream": True} | length)
        made.append(Request(row.at_s, body, row.conversation or str(number), "all"))
    return made


def prompt(row: TraceRow, number: int, block_tokens: int) -> str:
    """One character for each token. Equal blocks have equal texts, and a row without blocks begins
    like no other."""
    if not row.blocks:
        return _words(f"row {number}", row.prompt_tokens)
    text = "".join(_words(str(block), block_tokens) for block in row.blocks)
    return text[: row.prompt_tokens]


@lru_cache(maxsize=8192)
def _words(seed: str, length: int) -> str:
    random = Random(seed)
    words = [seed]
    size = len(seed)
    while size < length:
        words.append(random.choice(WORDS))
        size += 1 + len(words[-1])
    return " ".join(words)[:length].ljust(length, ".")


def made_up_conversations(count: int, seed: int = 1) -> list[TraceRow]:
    """Poisson arrivals, one a second in the mean, of lognormal lengths; prompts of a conversation
    begin with the one before and its answer."""
    random = Random(seed)
    return list(_conversations(random, count))


def _conversations(random: Random, count: int) -> Iterator[TraceRow]:
    recent: deque[tuple[int, TraceRow]] = deque(maxlen=RECENT)
    fresh = iter(range(SYSTEM_PROMPTS, 2**60))
    at_s = 0.0
    for number in range(count):
        at_s += random.expovariate(1.0)
        old = [one for one in recent if one[0] <= number - PAUSE]
        if old and random.random() < CONTINUES:
            before = random.choice(old)
            recent.remove(before)
            last = before[1]
            known = last.blocks[: last.prompt_tokens // MADE_UP_BLOCK_TOKENS]
            base, name = last.prompt_tokens + last.answer_tokens, last.conversation
        else:
            known = (random.randrange(SYSTEM_PROMPTS),)
            base, name = SYSTEM_TOKENS, f"conversation-{number}"
        tokens = base + 1 + int(lognormal(random, NEW_TOKENS, NEW_SIGMA))
        needed = -(-tokens // MADE_UP_BLOCK_TOKENS)
        blocks = (*known, *(next(fresh) for _ in range(needed - len(known))))
        answer = 1 + int(lognormal(random, ANSWER_TOKENS, ANSWER_SIGMA))
        row = TraceRow(at_s, tokens, answer, blocks, name)
        recent.append((number, row))
        yield row


def lognormal(random: Random, mean: float, sigma: float) -> float:
    """With that mean; `sigma` is of its logarithm."""
    return random.lognormvariate(math.log(mean) - sigma * sigma / 2, sigma)


def serial(random: Random, times_s: Sequence[float], kinds: bool = True) -> list[Request]:
    """Short and long requests at these times, of which only the prompt's length says something;
    without `kinds` they are there to be learned from."""
    made = []
    for number, at_s in enumerate(times_s):
        kind = "short" if random.random() < SHORT_SHARE else "long"
        row = TraceRow(
            at_s,
            1 + int(lognormal(random, SERIAL_PROMPT_TOKENS[kind], SERIAL_SIGMA)),
            1 + int(lognormal(random, SERIAL_ANSWER_TOKENS[kind], SERIAL_SIGMA)),
        )
        (one,) = requests_of([row], 1, is_real=False)
        text = one.body.replace("row 0", f"row {random.getrandbits(30)}")
        made.append(Request(at_s, text, str(number), kind if kinds else ""))
    return made
