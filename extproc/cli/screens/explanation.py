"""An explanation in words, and its candidates as a table."""

from typing import Final

from rich.table import Table
from rich.text import Text

from extproc.cli.output import ROOMY, console, seconds
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.security.foreign_text import printable

ESSENTIAL: Final = ("free_share", "cost_s")
"""The scores that a narrow screen shows."""


def show(answer: pb.ExplainResponse) -> None:
    """Print the decision, the resolved request, and the scores of each endpoint."""
    screen = console()
    screen.print(Text(decision(answer), style="bold"))
    for key, value in sorted(answer.resolved.items()):
        screen.print(Text(printable(f"  {key}: {value}")))
    if not answer.candidates:
        return
    names = list(dict.fromkeys(score.name for each in answer.candidates for score in each.scores))
    is_roomy = screen.width >= ROOMY
    if not is_roomy:
        names = [name for name in names if name in ESSENTIAL]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("RANK", justify="right")
    table.add_column("ENDPOINT", no_wrap=True)
    for name in names:
        table.add_column(name.upper(), justify="right")
    table.add_column("NOTES", overflow="fold")
    for candidate in answer.candidates:
        scores = {score.name: score for score in candidate.scores}
        notes = list(candidate.filtered)
        if not notes and is_roomy:
            notes = [f"{score.name}: {score.detail}" for score in candidate.scores if score.detail]
        name = candidate.name or candidate.address
        if is_roomy and candidate.name:
            name += f" ({candidate.address})"
        table.add_row(
            Text(str(candidate.rank) if candidate.rank else "-"),
            Text(printable(name), style="" if candidate.rank else "dim"),
            *(Text(f"{scores[name].value:.3g}" if name in scores else "") for name in names),
            Text(printable("; ".join(notes)), style="yellow"),
        )
    screen.print()
    screen.print(table)


def decision(answer: pb.ExplainResponse) -> str:
    """The decision, in one sentence."""
    match answer.decision:
        case pb.ExplainResponse.DECISION_PICKED:
            return f"It would go to {printable(answer.chosen_name or answer.chosen)} at once."
        case pb.ExplainResponse.DECISION_PASSED if "answered_by" in answer.resolved:
            return "Coxswain answers it at once, for the whole fleet."
        case pb.ExplainResponse.DECISION_PASSED:
            where = printable(answer.chosen_name or answer.chosen) or "any server that Envoy knows"
            return f"It takes no slot and would go to {where} at once."
        case pb.ExplainResponse.DECISION_QUEUED:
            soon = f", about {seconds(answer.expected_s)}" if answer.HasField("expected_s") else ""
            note = f": {printable(answer.note)}" if answer.note else ""
            return f"It would be queued at position {answer.queue_position}{soon}{note}."
        case _:
            return f"It would be rejected: {answer.reason}."
