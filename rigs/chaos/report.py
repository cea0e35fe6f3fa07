"""The report at the end of a run."""

from collections import Counter
from collections.abc import Sequence

from rigs.chaos.accounting import Verdict
from rigs.chaos.attack import Outcome
from rigs.chaos.windows import ALLOWANCES, Allowance

SHOWN = 20


def lines(verdict: Verdict) -> list[str]:
    """The verdict for people: what became of the requests, what was excused, what must not be."""
    lines = [", ".join(f"{count} {what}" for what, count in sorted(verdict.counts.items()))]
    lines += [f"  excused {count}: {what}" for what, count in sorted(verdict.excused.items())]
    lines += [f"  BROKEN {rule}: {count}" for rule, count in sorted(_by_rule(verdict).items())]
    lines += [f"    {one.rule} {one.id} {one.text}" for one in verdict.findings[:SHOWN]]
    if len(verdict.findings) > SHOWN:
        lines.append(f"    and {len(verdict.findings) - SHOWN} more")
    return lines


def total(outcomes: Sequence[Outcome], seconds: float) -> list[str]:
    """All runs of one command together, as tables in Markdown for docs/reliability.md."""
    done, counts, excused, broken = (Counter[str]() for _ in range(4))
    for one in outcomes:
        done += one.done
        counts += one.verdict.counts
        excused += one.verdict.excused
        broken += _by_rule(one.verdict)
    return [
        f"{len(outcomes)} runs, {seconds / 60:.0f} minutes.",
        "",
        *_table("fault", done),
        *_table("request outcome", counts),
        *_table("excused by a window", excused),
        *_table("violation", broken),
    ]


def windows() -> list[str]:
    """The windows with their excuses, as a table in Markdown; faults with one excuse in one row."""
    kinds: dict[Allowance, list[str]] = {}
    for kind, allowed in ALLOWANCES.items():
        kinds.setdefault(allowed, []).append(kind.value)
    rows = [
        f"| {'; '.join(faults)} | {allowed.before_s:g} | {allowed.after_s:g} | "
        f"{', '.join(sorted(allowed.excuses))} | {allowed.why} |"
        for allowed, faults in kinds.items()
    ]
    return [
        "| fault | seconds before | seconds after | excuses | reason |",
        "|---|---:|---:|---|---|",
        *rows,
    ]


def _by_rule(verdict: Verdict) -> Counter[str]:
    return Counter(finding.rule for finding in verdict.findings)


def _table(title: str, counts: Counter[str]) -> list[str]:
    rows = [f"| {what} | {count:,} |" for what, count in sorted(counts.items())]
    return [f"| {title} | count |", "|---|---:|", *(rows or ["| none | 0 |"]), ""]
