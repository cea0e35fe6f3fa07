"""The report at the end of a run."""

from collections import Counter
from dataclasses import dataclass, field

from rigs.chaos.accounting import Verdict
from rigs.chaos.windows import ALLOWANCES

SHOWN = 20


def lines(verdict: Verdict) -> list[str]:
    """The verdict for people: what became of the requests, what was excused, what must not be."""
    lines = [", ".join(f"{count} {what}" for what, count in sorted(verdict.counts.items()))]
    lines += [f"  excused {count}: {what}" for what, count in sorted(verdict.excused.items())]
    by_rule = Counter(finding.rule for finding in verdict.findings)
    lines += [f"  BROKEN {rule}: {count}" for rule, count in sorted(by_rule.items())]
    lines += [f"    {one.rule} {one.id} {one.text}" for one in verdict.findings[:SHOWN]]
    if len(verdict.findings) > SHOWN:
        lines.append(f"    and {len(verdict.findings) - SHOWN} more")
    return lines


@dataclass(slots=True)
class Total:
    """All runs of one command together."""

    runs: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    excused: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)

    def add(self, verdict: Verdict, done: Counter[str], seconds: float) -> None:
        self.runs += 1
        self.seconds += seconds
        self.counts += verdict.counts
        self.excused += verdict.excused
        self.done += done
        self.broken += Counter(finding.rule for finding in verdict.findings)

    def lines(self) -> list[str]:
        """As tables in Markdown, for docs/reliability.md."""
        lines = [f"{self.runs} runs, {self.seconds / 60:.0f} minutes.", ""]
        lines += _table("fault", self.done)
        lines += _table("request outcome", self.counts)
        lines += _table("excused by a window", self.excused)
        lines += _table("violation", self.broken)
        return lines


def windows() -> list[str]:
    """The windows with their excuses, as a table in Markdown."""
    rows = [
        f"| {kind.value} | {allowed.before_s:g} | {allowed.after_s:g} | "
        f"{', '.join(sorted(allowed.excuses))} | {allowed.why} |"
        for kind, allowed in ALLOWANCES.items()
    ]
    return [
        "| fault | seconds before | seconds after | excuses | reason |",
        "|---|---:|---:|---|---|",
        *rows,
    ]


def _table(title: str, counts: Counter[str]) -> list[str]:
    rows = [f"| {what} | {count:,} |" for what, count in sorted(counts.items())]
    return [f"| {title} | count |", "|---|---:|", *(rows or ["| none | 0 |"]), ""]
