"""The descriptors of this process: how many there may be, how many each port may take, and the
errors that say that none is left.

Who connects to a port takes one. So each port has a share of them that it does not exceed, and
more than a third is left for what the picker itself opens: scrapes, files, collectors.
"""

import logging
import resource
from collections.abc import Iterator
from contextlib import suppress
from errno import EADDRNOTAVAIL, EMFILE, ENFILE, ENOBUFS, ENOMEM
from os import strerror
from typing import Final

ENOUGH: Final = 1 << 18
FEW: Final = 4_096
"""A limit below it is worth a word: a hundred servers and as many clients take a thousand."""
HEADERS_S: Final = 10.0
"""Seconds that a new connection may take until its first request, or its handshake, is there."""
OWN_ERRORS: Final = frozenset({EMFILE, ENFILE, ENOBUFS, EADDRNOTAVAIL, ENOMEM})

log = logging.getLogger("coxswain.service")

PAGES: Final = (4, 2_048)
DATA_PLANE: Final = (8, 1_000)
ADMIN: Final = (8, 1_000)
KEDA: Final = (16, 200)
BATCHES: Final = (4, 1_000)
"""What part of the limit the connections of a port may take, and how many at most."""


def raise_limit() -> None:
    """Raise the soft limit of this process and of those that it starts, as far as the system
    allows, and say so where that is little. Never raises."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    if (few := limit()) < FEW:
        log.warning(
            "this process may open %d files and connections, and many servers or clients may need "
            "more: raise its hard limit (ulimit -Hn, or LimitNOFILE of systemd)",
            few,
        )


def limit() -> int:
    """How many descriptors this process may have."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return ENOUGH if soft == resource.RLIM_INFINITY else soft


def connections(port: tuple[int, int]) -> int:
    """How many connections that port may have at once."""
    part, most = port
    return max(1, min(most, limit() // part))


def own_fault(error: BaseException) -> str:
    """What this process or its machine has run out of, as text, if that caused `error`; else
    nothing."""
    for each in _causes(error, set()):
        if isinstance(each, OSError) and each.errno in OWN_ERRORS:
            return strerror(each.errno).lower()
    return ""


def is_caused_by(error: BaseException, *kinds: type[BaseException]) -> bool:
    """Whether `error` is one of these kinds, or one of them led to it."""
    return any(isinstance(each, kinds) for each in _causes(error, set()))


def _causes(error: BaseException | None, seen: set[int]) -> Iterator[BaseException]:
    """The error and all that led to it: libraries wrap the system's errors in their own."""
    if error is None or id(error) in seen:
        return
    seen.add(id(error))
    yield error
    yield from _causes(error.__cause__, seen)
    yield from _causes(error.__context__, seen)
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _causes(each, seen)
