"""The tokens of a context that all slots of a llama-server share.

A llama-server that was started without `-np` has one context for its four slots. When what they
hold together exceeds it, every running request fails. So a free slot is not enough: a request is
admitted if it adds at most `RISK` to the chance that the context ever overflows.

Requests that run generate tokens at about the same rate. So after `t` more tokens each of them has
either ended and holds nothing, or holds `t` tokens more; which of the two is a matter of the
distribution of its length, given that it is already as long as it is. Some of them overflow the
context at the moment at which their tokens reach it, if just these run then. So the chances of all
combinations with the new request are added up. Of many requests there are too many combinations:
then the chance that those that are left hold too much is computed for moments `t` of equal ratio,
as that of a sum of independent terms, which counts one overflow at several moments.

It is about the peak over the time to come, as requests end, and not the sum of all peaks: Gong et
al. 2025, "Past-Future Scheduler for LLM Serving under SLA Guarantees" (ASPLOS). They sample
lengths, and can evict a request if they are wrong. Here nothing can be taken back, so the tail of
the distribution is what counts.

    room = capacity - margin - tokens that foreign requests used lately

The margin grows with each overflow that happened all the same, and shrinks with requests that end
well. Foreign requests that run count by what the last scrape showed of them.

A usual scrape may be seconds old, in which a server generates hundreds of tokens. So each request
is taken to have gone on at the server's speed since then. One that ends by its bound is still taken
to end no sooner than by what was seen: the server may have stood still.
"""

from collections.abc import Collection, Iterable
from math import exp2, inf, sqrt
from typing import Final

from extproc.core.slots.token_demand import TokenClaim, TokenDemand

RISK: Final = 4e-3
"""What a request may add to the chance of an overflow until the pool is empty. Most add much less,
and the sum errs to the safe side: on public traces nobody was killed."""
MOST_COMBINED: Final = 6
"""Running requests of which all combinations are looked at."""
NEGLIGIBLE: Final = 0.01
"""The share of a bound by which it need not be exact."""
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
UNLIKELY: Final = 0.1
"""Answers that are longer than with this chance are left out of the tokens that are shown as
reserved."""


class TokenPool:
    """The claims on one shared context. `risk` is only computed if the claims may exceed the pool
    at all: of up to `MOST_COMBINED` in O(claims * 2 ** claims), of more in O(claims log claims) at
    each of about 40 moments."""

    def __init__(self, capacity_tokens: int, slots: int) -> None:
        self.capacity_tokens = capacity_tokens
        self._slots = slots
        self.claims: dict[int, TokenClaim] = {}
        """By lease; read only."""
        self._foreign: tuple[TokenClaim, ...] = ()
        self._usual_foreign = 0.0
        self._usual_at = 0.0
        self._overflow_margin = 0.0
        self.token_s = inf
        """Seconds in which each request generates a token; infinite while that is not known."""

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
        """What requests hold now, as far as it is known; a lease holds its whole prompt at once."""
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
        """What the request adds to the chance that the pool overflows before it is empty, if it
        begins now, at most; more than `RISK` if that is more."""
        room = self.capacity_tokens - self.margin_tokens
        if self._usual_foreign:
            room -= max(0.0, self._usual_foreign - self.foreign_tokens)
        running = [*self.claims.values(), *self._foreign]
        beside = _Beside(running, room, demand.begins_at, self.token_s)
        capacity_tokens = self.capacity_tokens
        total, rest = 0.0, 1.0
        for prompt_tokens, share in demand.prompts:
            risk = beside.risk(TokenClaim(demand, capacity_tokens, 0.0, prompt_tokens))
            total += share * risk
            rest -= share
            if total > RISK or total + rest * risk <= RISK:
                return total + rest * risk  # a shorter prompt adds no more
        return total if rest < 1.0 else beside.risk(TokenClaim(demand, capacity_tokens))

    def _likely_peak(self) -> float:
        """The peak if each request goes on for as long as is less likely than one in ten."""
        ends = sorted(
            (
                (claim.likely_left(claim.chance_so_far(), UNLIKELY), claim)
                for claim in (*self.claims.values(), *self._foreign)
            ),
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


class _Beside:
    """What a new request may be admitted beside."""

    __slots__ = ("_combinations", "_held", "_most", "_room", "_running")

    def __init__(self, running: list[TokenClaim], room: float, now: float, token_s: float) -> None:
        """Lets the time until `now` pass for all that run."""
        self._running, self._room = running, room
        held = most = 0.0
        for claim in running:
            claim.pass_time(now, token_s)
            held += claim.held_tokens
            most += claim.most_tokens
        self._held, self._most = held, most
        self._combinations: Combinations | None = None

    def risk(self, new: TokenClaim) -> float:
        if self._held + new.held_tokens > self._room:
            return 1.0
        if self._most + new.most_tokens <= self._room:
            return 0.0
        claims = [*self._running, new]
        if hardly_overflows(claims, self._room, RISK):
            return RISK
        if len(self._running) > MOST_COMBINED:
            return _overflow_chance(claims, self._room)
        if self._combinations is None:
            self._combinations = Combinations(self._running)
        return self._combinations.added_chance(new, self._room, RISK)


def hardly_overflows(claims: list[TokenClaim], room: float, chance: float) -> bool:
    """Whether it is easily seen that the claims exceed `room` with at most this chance; False if it
    takes more to know. O(claims).

    Either two of them or more get long, where long is so rare that the chance of two is half of
    `chance`; or one alone takes all that the others leave of the room when they are not long.
    """
    count = len(claims)
    is_long = sqrt(chance / (count * (count - 1))) if count > 1 else sqrt(chance)
    usual: list[tuple[TokenClaim, float, float]] = []
    spare = room
    for claim in claims:
        so_far = claim.chance_so_far()
        left = claim.demand.answers * claim.likely_left(so_far, is_long)
        spare -= claim.held_tokens + left
        usual.append((claim, so_far, left))
    if spare < 0.0:
        return False
    alone = 0.0
    for claim, so_far, left in usual:
        more = (spare + left) / claim.demand.answers
        if more < claim.growth_tokens:
            alone += claim.chance_from(so_far, more)
    return alone <= chance / 2.0


def _end(one: tuple[float, TokenClaim]) -> float:
    return one[0]


class Combinations:
    """All combinations of up to `MOST_COMBINED` requests that run, and what each holds."""

    __slots__ = ("_growth", "_held", "_left", "_most", "_running", "_so_far")

    def __init__(self, running: list[TokenClaim]) -> None:
        self._running = running
        self._so_far = [claim.chance_so_far() for claim in running]
        self._held, self._most, self._growth, self._left = [0.0], [0.0], [0], [inf]
        for claim in running:  # each doubles them: those without it, then those with it
            held, answers, left = claim.held_tokens, claim.demand.answers, claim.left_tokens
            most = claim.most_tokens
            self._held += [each + held for each in self._held]
            self._most += [each + most for each in self._most]
            self._growth += [each + answers for each in self._growth]
            self._left += [min(each, left) for each in self._left]

    def added_chance(self, new: TokenClaim, room: float, enough: float = inf) -> float:
        """The chance that a new claim and some of those that run reach `room` together, and no
        others are left then. If some of these do so again later, both count. At least `enough` if
        that is more; otherwise too much by less than `NEGLIGIBLE` of it, never too little."""
        total = 0.0
        new_held, new_answers, new_left = new.held_tokens, new.demand.answers, new.left_tokens
        so_far = new.chance_so_far()
        most_beside = room - new.most_tokens
        negligible = 0.0 if enough == inf else enough * NEGLIGIBLE / len(self._held)
        for chosen in range(1, len(self._held)):
            if self._most[chosen] <= most_beside:
                continue
            spare = room - new_held - self._held[chosen]
            moment = max(0.0, spare / (new_answers + self._growth[chosen]))
            if moment >= new_left or moment >= self._left[chosen]:
                continue  # one of them has ended
            chance = new.chance_from(so_far, moment)
            for index, claim in enumerate(self._running):
                if chance <= negligible:
                    break
                runs_on = claim.chance_from(self._so_far[index], moment)
                chance *= runs_on if chosen >> index & 1 else 1.0 - runs_on
            total += chance
            if total > enough:
                break
        return total


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
            load = min(load, claim.most_tokens, room)  # alone it ends where the context does
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
