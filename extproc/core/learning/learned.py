"""What was learned of the fleet, as plain values with which another process decides alike.

    of each endpoint    speeds, the prompts in its prefix cache, the sessions that it served
    of the fleet        the lengths of answers: their mean, and how they are distributed by model;
                        how long loads of models take

Values are tuples of numbers and texts: about 20 bytes for each block of a prefix cache, which are
bounded (see `prefix_cache`), and for each session.
"""

from typing import Any, Final

from extproc.core.address import Address
from extproc.core.prediction.answer_lengths import AnswerLengths
from extproc.core.prediction.latency import LatencyModel
from extproc.core.prediction.prefix_cache import PrefixIndex
from extproc.core.prediction.sessions import Sessions
from extproc.core.slots.model_loading import ModelLoadTracker

Learned = tuple[Any, ...]
NO_CACHE: Final[Learned] = ()


class LearnedState:
    """Gives what was learned away, and takes it over."""

    def __init__(
        self,
        latency: LatencyModel,
        prefix_caches: PrefixIndex,
        sessions: Sessions,
        answer_lengths: AnswerLengths,
        model_loads: ModelLoadTracker,
    ) -> None:
        self._latency = latency
        self._prefix_caches = prefix_caches
        self._sessions = sessions
        self._answer_lengths = answer_lengths
        self._model_loads = model_loads

    def version_of(self, address: Address) -> tuple[float, ...]:
        """Changes when requests have ended there or its cache is known better. O(1)."""
        memory = self._prefix_caches.memory(address)
        samples = self._latency.samples_of(address)
        return (samples, *((0, 0.0) if memory is None else (memory.read, memory.capacity)))

    def of(self, address: Address | None) -> Learned:
        """What is known of an endpoint, O(its blocks and sessions); with None of all together."""
        if address is None:
            return (
                *self._latency.answers(),
                self._answer_lengths.as_plain(),
                self._model_loads.as_plain(),
            )
        memory = self._prefix_caches.memory(address)
        cache: Learned = NO_CACHE
        if memory is not None:
            blocks = memory.blocks
            cache = (memory.capacity, memory.read, tuple(blocks), tuple(blocks.values()))
        return (
            self._latency.endpoint(address).as_plain(),
            cache,
            tuple(self._sessions.at(address)),
        )

    def restore(self, address: Address | None, learned: Learned) -> None:
        """Know of an endpoint, or with None of all together, what another process knew; what this
        one has learned of an endpoint is kept if it has learned anything. Raises `ValueError` or
        `TypeError` for what is not from `of`."""
        if address is None:
            total, weight, lengths, loads = learned
            self._latency.restore_answers((total, weight))
            self._answer_lengths.restore(lengths)
            self._model_loads.restore(loads)
            return
        speeds, cache, sessions = learned
        if not self._latency.samples_of(address):
            self._latency.restore(address, speeds)
        if cache and self._prefix_caches.memory(address) is None:
            self._prefix_caches.restore(address, *cache)
        for session, tokens in sessions:
            if self._sessions.last_endpoint(session) is None:
                self._sessions.served(session, address, int(tokens))
