"""What a run tells at its end."""

from __future__ import annotations

from collections import Counter

from rigs.chaos.accounting import Verdict

SHOWN = 20


def lines(verdict: Verdict) -> list[str]:
    """The verdict for people: what became of the requests, what was excused, what must not be."""
    told = [", ".join(f"{count} {what}" for what, count in sorted(verdict.counts.items()))]
    told += [f"  excused {count}: {what}" for what, count in sorted(verdict.excused.items())]
    by_rule = Counter(finding.rule for finding in verdict.findings)
    told += [f"  BROKEN {rule}: {count}" for rule, count in sorted(by_rule.items())]
    told += [f"    {one.rule} {one.id} {one.text}" for one in verdict.findings[:SHOWN]]
    if len(verdict.findings) > SHOWN:
        told.append(f"    and {len(verdict.findings) - SHOWN} more")
    return told
