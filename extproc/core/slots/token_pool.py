"""The tokens of a context that all slots of a llama-server share.

A llama-server that was started without `-np` has one context for its four slots. When what they
hold together exceeds it, every running request fails. So a free slot is not enough: a request is
admitted if the chance that the context ever overflows stays below `RISK`.

Requests that run generate tokens at about the same rate. So after `t` more tokens each of them has
either ended and holds nothing, or holds `t` tokens more; which of the two is a matter of the
distribution of its length, given that it is already as long as it is. The chance that those that
are left hold too much is computed for moments `t` of equal ratio, as that of a sum of independent
terms, and added up over the moments. It is about the peak over the time to come, as requests end,
and not at the sum of all peaks: Gong et al. 2025, "Past-Future Scheduler for LLM Serving under SLA
Guarantees" (ASPLOS). They sample lengths, and can evict a request if they are wrong. Here nothing
can be taken back, so the tail of the distribution is what counts.

    room = capacity - margin - tokens that foreign requests used lately

The margin grows with each overflow that happened all the same, and shrinks with requests that end
well. Foreign requests that run count by what the last scrape showed of them.
"""

from collections.abc import Collection, Iterable
from math import exp2
from typing import Final

from extproc.core.slots.token_demand import TokenClaim, TokenDemand

RISK: Final = 1e-4
"""The chance of an overflow until the pool is empty, at each admission."""
MOMENTS_A_DOUBLING: Final = 3
FIRST_MOMENT: Final = 8.0
MAX_TERMS: Final = 64
"""Of a sum's distribution; beyond it neighbours count as the larger one."""
SLOT_MARGIN: Final = 16
"""Tokens that a slot may hold beyond what it shows: a batch that is being processed."""
MOST_SLOT_MARGIN: Final = 1 / 32
OVERFLOW_MARGIN: Final = 1 / 16
"""The share of the capacity by which an overflow increases the margin."""
MOST_MARGIN: Final = 0.5
MARGIN_DECAY: Final = 0.998
"""By which each request that ends decreases it."""
FOREIGN_HALF_LIFE_S: Final = 60.0


class TokenPool:
    """The claims on one shared context. `risk` is O(claims log claims) at each of about 40 moments,
    and only computed if the claims may exceed the pool at all."""

    def __init__(self, capacity_tokens: int, slots: int) -> None:
        self.capacity_tokens = capacity_tokens
        self._slots = slots
        self.claims: dict[int, TokenClaim] = {}
        """By lease; read only."""
        self._foreign: tuple[TokenClaim, ...] = ()
        self._usual_foreign = 0.0
        self._usual_at = 0.0
        self._overflow_margin = 0.0

    def resize(self, capacity_tokens: int, slots: int) -> None:
        """The server has another context, or other slots."""
        self.capacity_tokens, self._slots = capacity_tokens, slots

    # Sums

    @property
    def margin_tokens(self) -> float:
        """What is left free, as the estimates may be wrong."""
        capacity = self.capacity_tokens
        slot_margin = min(SLOT_MARGIN * self._slots, capacity * MOST_SLOT_MARGIN)
        return min(MOST_MARGIN * capacity, slot_margin + self._overflow_margin)

    @property
    def held_tokens(self) -> float:
        """What requests hold now, as far as it was seen; a lease holds its whole prompt at once."""
        return self._held(self.claims.values()) + self.foreign_tokens

    @property
    def foreign_tokens(self) -> float:
        """What foreign requests hold now."""
        return self._held(self._foreign)

    @property
    def reserved_tokens(self) -> float:
        """What the pool is expected to hold at its peak, with the lengths that are more likely than
        not exceeded by one request in ten."""
        return min(float(self.capacity_tokens), self._likely_peak())

    @property
    def free_tokens(self) -> float:
        """What is neither held nor expected to be."""
        return max(0.0, self.capacity_tokens - self.margin_tokens - self.reserved_tokens)

    @staticmethod
    def _held(claims: Iterable[TokenClaim]) -> float:
        return sum(claim.held_tokens for claim in claims)

    # Claims

    def add(self, lease_id: int, demand: TokenDemand) -> None:
        """A request got a lease."""
        self.claims[lease_id] = TokenClaim(demand, self.capacity_tokens)

    def remove(self, lease_id: int) -> None:
        """Its lease was closed; no error if it has no claim."""
        self.claims.pop(lease_id, None)
        self._overflow_margin *= MARGIN_DECAY

    def is_of(self, lease_ids: Collection[int]) -> bool:
        """Whether these leases have claims, and no other."""
        return self.claims.keys() == set(lease_ids)

    def clear(self) -> None:
        """Forget the claims of all leases, to add them again."""
        self.claims.clear()

    def restarted(self) -> None:
        """A new process serves: foreign requests have ended with the old one."""
        self._foreign, self._usual_foreign = (), 0.0

    def saw_foreign(self, claims: tuple[TokenClaim, ...], now: float) -> None:
        """The requests of others that a scrape showed."""
        self._foreign = claims
        seen = self._held(claims)
        decayed = self._usual_foreign * exp2((self._usual_at - now) / FOREIGN_HALF_LIFE_S)
        self._usual_foreign, self._usual_at = max(seen, decayed), now

    def overflowed(self) -> None:
        """Its requests failed because it was full."""
        more = self.capacity_tokens * OVERFLOW_MARGIN
        self._overflow_margin = min(
            self.capacity_tokens * MOST_MARGIN, self._overflow_margin + more
        )

    # Admission

    def admits(self, demand: TokenDemand) -> bool:
        """Whether a request may begin. One that would be alone always may: it is cut off where the
        context ends. While only foreign requests run, it need not wait for all of them."""
        if not self.claims:
            foreign = self.foreign_tokens
            return not foreign or foreign + demand.prompt_tokens <= self.capacity_tokens
        return self.risk(demand) <= RISK

    def could_admit(self, demand: TokenDemand) -> bool:
        """Whether it may begin at the latest when all leases have ended."""
        foreign = self.foreign_tokens
        return not foreign or foreign + demand.prompt_tokens <= self.capacity_tokens

    def risk(self, demand: TokenDemand) -> float:
        """The chance that the pool overflows before it is empty, if the request begins now; at
        least that, if it is more than `RISK`."""
        expected_foreign = max(0.0, self._usual_foreign - self.foreign_tokens)
        room = self.capacity_tokens - self.margin_tokens - expected_foreign
        new = TokenClaim(demand, self.capacity_tokens)
        claims = [*self.claims.values(), *self._foreign, new]
        if self._held(claims) > room:
            return 1.0
        if sum(claim.most_tokens for claim in claims) <= room:
            return 0.0
        return _overflow_chance(claims, room)

    def _likely_peak(self) -> float:
        """The peak if each request goes on for as long as is less likely than one in ten."""
        ends = sorted(
            ((_likely_left(claim), claim) for claim in (*self.claims.values(), *self._foreign)),
            key=_end,
            reverse=True,
        )
        peak = held = 0.0
        answers = 0
        for left, claim in ends:
            held += claim.held_tokens
            answers += claim.demand.answers
            peak = max(peak, held + answers * left)
        return peak


UNLIKELY: Final = 0.1


def _end(one: tuple[float, TokenClaim]) -> float:
    return one[0]


def _likely_left(claim: TokenClaim) -> float:
    """How many more tokens it will generate with a chance of one in ten."""
    least, most = 0.0, claim.left_tokens
    if claim.chance_beyond(most) > UNLIKELY:
        return most
    while most - least > 1.0 + 0.05 * least:
        middle = (least + most) / 2.0
        if claim.chance_beyond(middle) > UNLIKELY:
            least = middle
        else:
            most = middle
    return most


def _overflow_chance(claims: list[TokenClaim], room: float) -> float:
    """The chance that the claims together ever hold more than `room`, at most: each that still runs
    at one moment is taken to hold what it will at the next one."""
    total = moment = 0.0
    following = FIRST_MOMENT
    latest = max(claim.left_tokens for claim in claims)
    growth = exp2(1.0 / MOMENTS_A_DOUBLING)
    while moment < latest:
        terms: list[tuple[float, float]] = []
        most = 0.0
        for claim in claims:
            left = claim.left_tokens
            if left < moment:
                continue
            load = claim.held_tokens + claim.demand.answers * min(following, left)
            load = min(load, room)  # alone it ends where the context does
            most += load
            terms.append((load, claim.chance_beyond(moment)))
        if most > room:
            terms.sort(reverse=True)
            total += chance_of_more(terms, most, room)
            if total > RISK:
                break
        moment, following = following, following * growth
    return total


def chance_of_more(terms: list[tuple[float, float]], most: float, room: float) -> float:
    """The chance that a sum exceeds `room`. Each term has its value, descending, and the chance
    that it counts; `most` is the sum of all values. Exact for up to 6 terms; with more it may be
    too much, as sums of nearly equal size are taken together, but never too little."""
    spare, chances = [room], [1.0]
    total, rest = 0.0, most
    for value, chance in terms:
        next_spare: list[float] = []
        next_chances: list[float] = []
        for one, its_chance in zip(spare, chances, strict=True):
            if one >= rest:
                continue  # all that follow fit
            if one < value:
                total += its_chance * chance
            else:
                next_spare.append(one - value)
                next_chances.append(its_chance * chance)
            if chance < 1.0:
                next_spare.append(one)
                next_chances.append(its_chance * (1.0 - chance))
        rest -= value
        spare, chances = next_spare, next_chances
        if len(spare) > MAX_TERMS:
            spare, chances = _merged(spare, chances)
    return total


def _merged(spare: list[float], chances: list[float]) -> tuple[list[float], list[float]]:
    """Neighbours of the distribution together, as the one with less room."""
    order = sorted(zip(spare, chances, strict=True))
    pairs = [order[index : index + 2] for index in range(0, len(order), 2)]
    return [pair[0][0] for pair in pairs], [sum(one[1] for one in pair) for pair in pairs]
