"""What probes share: reading JSON that anybody may have written, what an unusable response means,
and the probe of a server that shows little.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any, Final

from extproc.core.address import Address
from extproc.core.observation import (
    MAX_COUNT,
    MAX_ENTRIES,
    MAX_TEXT_CHARS,
    Issue,
    ModelReading,
    Observation,
    ScrapeStatus,
)
from extproc.runners import issues
from extproc.runners.client import Answer, Failure, FailureKind, RunnerClient
from extproc.runners.probe import ProbeOptions
from extproc.runners.target import EndpointTarget

MAX_VALUES: Final = 131_072
"""More values than any server reports at once; a router's thousand models have half."""
MAX_DIGITS: Final = 400
"""No number that is read here has more; thousands of digits take long to read."""
SHORT_BYTES: Final = 65_536
"""What is no longer can be read at once, whatever it is."""

FULL_SHARE: Final = 0.95
"""A server whose requests hold this share of its cache has no room for another one: it would wait
there, or make the server drop one that runs."""
OK: Final = 200
UNKNOWN_KEY: Final = 401
UNAUTHORIZED: Final = frozenset({UNKNOWN_KEY, 403})
UNAVAILABLE: Final = 503
_FAILURES: Final = {
    FailureKind.UNREACHABLE: (ScrapeStatus.UNREACHABLE, issues.unreachable),
    FailureKind.TIMED_OUT: (ScrapeStatus.FAILED, issues.no_answer),
    FailureKind.BROKEN: (ScrapeStatus.FAILED, issues.no_answer),
    FailureKind.UNUSABLE: (ScrapeStatus.FAILED, issues.bad_answer),
}


class ParseError(ValueError):
    """An answer that is not what a server of its kind says; `str(error)` quotes none of it."""


class PlainProbe:
    """What the probes of servers have in common that load no models for us and have no counters."""

    def __init__(
        self,
        target: EndpointTarget,
        options: ProbeOptions,
        clock: Callable[[], float],
        *,
        lost_s: Callable[[float], float],
        wants_counters: Callable[[], bool],  # noqa: ARG002 - it has none
    ) -> None:
        self._target = target
        self._client = RunnerClient(target, options.timeouts, clock, lost_s)

    def set_leaving(self, models: frozenset[str]) -> None:
        """None of its models is unloaded by us."""

    async def aclose(self) -> None:
        await self._client.aclose()


def meaning(answer: Answer | Failure, path: str) -> tuple[ScrapeStatus, Issue | None]:
    """What an unusable response to GET `path` says of the server: loading, gone, or failed."""
    if isinstance(answer, Failure):
        status, issue = _FAILURES[answer.kind]
        return status, issue(answer.message)
    if answer.status == UNAVAILABLE:
        return ScrapeStatus.LOADING, None
    message = f"GET {path} was answered with status {answer.status}"
    return ScrapeStatus.FAILED, issues.bad_answer(message)


def shows_machine(answer: Answer | Failure) -> bool:
    """Whether the machine there is on, whatever its server does."""
    return isinstance(answer, Answer) or answer.is_machine_on


def failed(address: Address, answer: Answer | Failure, path: str, runner: str) -> Observation:
    """The observation for an unusable response to GET `path`."""
    status, issue = meaning(answer, path)
    return Observation(
        address=address,
        began_at=answer.began_at,
        answered_at=answer.answered_at,
        status=status,
        issues=() if issue is None else (issue,),
        runner=runner,
        is_machine_on=shows_machine(answer),
    )


def is_usable(answer: Answer | Failure) -> bool:
    """Whether it is an answer with a body to read."""
    return isinstance(answer, Answer) and answer.status == OK


def wants_key(answer: Answer | Failure) -> bool:
    """Whether it is not shown to us: its server may show it to clients."""
    return isinstance(answer, Answer) and answer.status in UNAUTHORIZED


def rejects_key(answer: Answer | Failure) -> bool:
    """Whether its server does not know the key that we sent. With 403 it may: that key may serve
    for other paths."""
    return isinstance(answer, Answer) and answer.status == UNKNOWN_KEY


def read(answer: Answer | Failure) -> Any:
    """The value of its JSON; None if there is none."""
    if not isinstance(answer, Answer) or answer.status != OK:
        return None
    try:
        return decode(answer.body)
    except ParseError:
        return None


def decode(body: bytes) -> Any:
    """The value. Bounded in time: nothing else runs meanwhile, requests neither. Raises
    `ParseError`."""
    if len(body) > SHORT_BYTES and sum(map(body.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise ParseError(f"the answer has more than {MAX_VALUES} values")
    try:
        return json.loads(body, parse_int=_whole if len(body) > SHORT_BYTES else None)
    except RecursionError:
        raise ParseError("the answer is nested too deeply") from None
    except ValueError:  # also bytes that are no text, and numbers of thousands of digits
        raise ParseError("the answer is not JSON") from None


def _whole(digits: str) -> int | None:
    return int(digits) if len(digits) <= MAX_DIGITS else None


def entries(value: object, key: str) -> list[dict[str, Any]] | None:
    """The objects in the list under `key`; None if there is no such list."""
    found = value.get(key) if isinstance(value, dict) else None
    if not isinstance(found, list):
        return None
    return [entry for entry in found[:MAX_ENTRIES] if isinstance(entry, dict)]


def name(value: object) -> str | None:
    """`value` if it is a text that is valid in a URL, a header and a log line."""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_TEXT_CHARS:
        return None
    return value if value.isprintable() else None


def count(value: object) -> int | None:
    """`value` if it is a possible number of tokens."""
    return value if type(value) is int and 0 <= value <= MAX_COUNT else None


def listed(value: object) -> tuple[ModelReading, ...] | None:
    """The models of OpenAI's list; None if it is none."""
    found = entries(value, "data")
    return None if found is None else readings(entry.get("id") for entry in found)


def listed_with_context(value: object) -> tuple[tuple[ModelReading, ...], int | None] | None:
    """`listed`, and the longest `max_model_len` of the models, None if none has one."""
    models = listed(value)
    if models is None:
        return None
    lengths = (count(entry.get("max_model_len")) for entry in entries(value, "data") or ())
    return models, max((length or 0 for length in lengths), default=0) or None


def readings(names: Iterable[object]) -> tuple[ModelReading, ...]:
    """Models by their names, each once, without what is no name."""
    usable = dict.fromkeys(one for one in map(name, names) if one is not None)
    return tuple(ModelReading(name=one) for one in usable)
