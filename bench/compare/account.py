"""What a rival made of a cell: counted at the clients and in the servers' logs. Pure."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from bench.compare.clients import End, Record
from extproc.demo.simulator.slots import DEFERRED


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Sorted seconds of the requests that were served."""

    sorted_s: Sequence[float] = ()

    @property
    def mean_s(self) -> float:
        return fmean(self.sorted_s) if self.sorted_s else math.nan

    def at(self, part: float) -> float:
        """The least of these that this part of them does not exceed; NaN without any."""
        if not self.sorted_s:
            return math.nan
        return self.sorted_s[max(0, math.ceil(part * len(self.sorted_s)) - 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One row of a table. `cached_share` is of the prompts' tokens; `to_full` are the requests that
    a server's log shows waiting inside it; `cpu_s` is of the proxy and the picker."""

    rival: str
    requests: int
    first_token: Times = field(default_factory=Times)
    waiting: Times = field(default_factory=Times)
    failed: int = 0
    cut: int = 0
    killed: int = 0
    to_full: int = 0
    cached_share: float = math.nan
    cpu_s: float = math.nan
    late_s: float = 0.0
    why: str = ""
    """Why there are no numbers, or the kinds of failures."""
    is_ours: bool = False


def account(
    rival: str,
    records: Sequence[Record],
    *,
    to_full: int,
    cpu_s: float = math.nan,
    is_ours: bool = False,
    kind: str | None = None,
) -> Result:
    """Count the records of this kind, all that count without one. A wait is what a request took
    beside its time in a slot, as its server has measured that."""
    counted = [one for one in records if one.kind and kind in (None, one.kind)]
    served = [one for one in counted if one.end == End.SERVED]
    ends = Counter(one.end for one in counted)
    prompts = sum(one.prompt_tokens for one in served)
    whys = Counter(one.why for one in counted if one.why)
    return Result(
        rival=rival,
        requests=len(counted),
        first_token=Times(sorted_s=sorted(one.first_token_s for one in served)),
        waiting=Times(sorted_s=sorted(max(0.0, one.took_s - one.service_s) for one in served)),
        failed=ends[End.FAILED],
        cut=ends[End.CUT],
        killed=ends[End.KILLED],
        to_full=to_full,
        cached_share=sum(one.cached_tokens for one in served) / prompts if prompts else math.nan,
        cpu_s=cpu_s,
        late_s=Times(sorted_s=sorted(one.late_s for one in records)).at(0.99),
        why=", ".join(f"{count} {why}" for why, count in whys.most_common(3)),
        is_ours=is_ours,
    )


def count_deferred(lines: Iterable[str]) -> int:
    """The requests that found no free slot, in the log of a llama-server or of the simulator."""
    return sum(DEFERRED in line for line in lines)
