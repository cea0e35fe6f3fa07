"""The cost of a request on an endpoint, in seconds; all preferences are expressed in it.

first token   fixed time, and the prefill of uncached tokens
answer        its tokens at that endpoint's rate, and the slowdown of the others there
adapter       llama.cpp batches only requests with equal adapters: other requests alternate
rules         what the operators' own rules add
stall         while a prompt is read, the answers beside it stand still: llama.cpp gives them one
              token for each batch of the prompt (docs/performance.md: they lose 99 to 100 %,
              whatever the size of batches); only if the order is by size
"""

from extproc.core.address import Address
from extproc.core.prediction.latency import LatencyModel
from extproc.core.prediction.prefix_cache import PrefixIndex
from extproc.core.prediction.sessions import Sessions
from extproc.core.prompt_blocks import BLOCK_TOKENS
from extproc.core.request import Adapters, Kind, Request

ADAPTER_SHARE = 0.5
"""The share of its answer time that a request loses to neighbours with another adapter."""


class Cost:
    """Seconds on one endpoint, by part. `saved_s` is what its cache saves, already subtracted;
    `forgone_s` what the cache would save if it counted.

    Each pick makes several. Compiled, a plain class costs much less to make than a named tuple.
    """

    __slots__ = (
        "adapter_s",
        "answer_s",
        "cached_tokens",
        "first_token_s",
        "forgone_s",
        "rules_s",
        "saved_s",
        "stall_s",
    )

    def __init__(
        self,
        first_token_s: float,
        answer_s: float,
        adapter_s: float,
        saved_s: float,
        cached_tokens: float,
        stall_s: float,
    ) -> None:
        self.first_token_s = first_token_s
        self.answer_s = answer_s
        self.adapter_s = adapter_s
        self.saved_s = saved_s
        self.cached_tokens = cached_tokens
        self.forgone_s = 0.0
        self.rules_s = 0.0
        self.stall_s = stall_s

    def forgo_cache(self) -> None:
        """Count as if nothing of the prompt were cached."""
        self.first_token_s += self.saved_s
        self.forgone_s, self.saved_s = self.saved_s, 0.0

    @property
    def own_s(self) -> float:
        """Without what it costs other requests while its prompt is read."""
        return self.first_token_s + self.answer_s + self.adapter_s + self.rules_s

    @property
    def total_s(self) -> float:
        return self.own_s + self.stall_s


class AdapterUse:
    """The LoRA adapters of running requests, by endpoint. Every call is O(1)."""

    def __init__(self) -> None:
        self._running: dict[Address, dict[Adapters, int]] = {}

    def request_began(self, address: Address, adapters: Adapters) -> None:
        """A request with these adapters began there."""
        running = self._running.get(address)
        if running is None:
            running = self._running[address] = {}
        running[adapters] = running.get(adapters, 0) + 1

    def request_ended(self, address: Address, adapters: Adapters) -> None:
        """A request that began has ended."""
        running = self._running[address]
        if running[adapters] > 1:
            running[adapters] -= 1
            return
        del running[adapters]
        if not running:
            del self._running[address]

    def has_others(self, address: Address, adapters: Adapters) -> bool:
        """Whether requests with other adapters than these run there."""
        running = self._running.get(address)
        return running is not None and (len(running) > 1 or adapters not in running)

    def clear(self) -> None:
        """Forget all requests, before they are counted again."""
        self._running.clear()


class CostModel:
    """Reads what was learned; changes nothing. A cost is O(log blocks)."""

    def __init__(
        self,
        latency: LatencyModel,
        prefixes: PrefixIndex,
        sessions: Sessions,
        adapters: AdapterUse,
        *,
        counts_stalls: bool = False,
    ) -> None:
        self._counts_stalls = counts_stalls
        self._latency = latency
        self._prefixes = prefixes
        self._sessions = sessions
        self._adapters = adapters

    def cached_tokens(
        self, request: Request, address: Address, *, is_optimistic: bool = False
    ) -> float:
        """The prompt tokens that are expected in an endpoint's cache; see `optimistic_hit`."""
        if request.kind is not Kind.GENERATION:
            return 0.0
        if request.prompt_blocks:
            memory = self._prefixes.memory(address)
            if memory is None:
                return 0.0
            chain = request.prompt_blocks
            depth = memory.depth(chain)
            blocks = (
                memory.optimistic_hit(chain, depth)
                if is_optimistic
                else memory.expected_hit(chain, depth)
            )
            expected = float(blocks * BLOCK_TOKENS)
        else:
            expected = self._sessions.tokens_at(request.session_id, address)
        return min(expected, max(0.0, request.likely_tokens - 1.0))

    def most_cached_tokens(self, request: Request) -> float:
        """The prompt tokens that are expected in the cache of an endpoint that remembers most of
        the prompt; 0 if none remembers any."""
        if request.kind is not Kind.GENERATION or not request.prompt_blocks:
            return 0.0
        hit_tokens = float(self._prefixes.longest_hit(request.prompt_blocks) * BLOCK_TOKENS)
        return min(hit_tokens, max(0.0, request.likely_tokens - 1.0))

    def cost(self, request: Request, address: Address, busy_slots: int, now: float) -> Cost:
        """The cost there now, if a slot were free. The prompt tokens in its cache are those of the
        optimistic estimate."""
        estimate = self._latency.estimate(address, now)
        likely_tokens = request.prompt_tokens
        if likely_tokens is None:
            likely_tokens = request.likely_tokens
        cached, uncached_tokens = 0.0, float(likely_tokens)
        if request.prompt_blocks or request.session_id is not None:
            cached = self.cached_tokens(request, address, is_optimistic=True)
            uncached_tokens = max(0.0, likely_tokens - cached)
        answer_tokens = estimate.answer_tokens
        if request.max_tokens is not None:
            answer_tokens = min(answer_tokens, request.max_tokens)
        if request.kind is not Kind.GENERATION:
            answer_tokens = 0.0
        token_s = estimate.token_s(busy_slots + 1)
        answer_s = answer_tokens * (token_s + estimate.decode_slope_s * busy_slots)
        stall_s = 0.0
        if self._counts_stalls:
            stall_s = estimate.prefill_s * uncached_tokens * busy_slots
        is_mixed = self._adapters.has_others(address, request.adapters)
        return Cost(
            estimate.first_token_s(uncached_tokens),
            answer_s,
            ADAPTER_SHARE * answer_tokens * token_s if is_mixed else 0.0,
            estimate.prefill_s * cached,
            cached,
            stall_s,
        )
