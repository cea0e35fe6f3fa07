"""Claims about extproc/processes/fronts/resumption.py; test_takeover.py has links."""

from __future__ import annotations

from extproc.core.held_state import is_final, is_leased, ticket_of
from tests.fakes.continued import Continued


async def test_what_a_front_is_to_know_of_an_exchange() -> None:
    there = Continued()
    there.begin("undecided")
    there.ask("running")
    there.ask("queued")
    assert there.state("undecided") is None
    running, queued = there.state("running"), there.state("queued")
    assert running is not None and queued is not None
    assert is_leased(running) and not is_leased(queued)
    assert is_final(running) and not is_final(queued)
    assert ticket_of(running) is None
    ticket = there.streams["queued"].ticket
    assert ticket is not None and ticket_of(queued) == ticket.id
