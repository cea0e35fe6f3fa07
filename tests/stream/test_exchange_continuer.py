"""Claims about extproc/stream/exchange_continuer.py; tests/fronts/test_takeover.py has links."""

from __future__ import annotations

from tests.fakes.continued import Continued


async def test_what_a_front_is_to_know_of_an_exchange() -> None:
    there = Continued()
    there.begin("undecided")
    there.ask("running")
    there.ask("queued")
    assert there.state("undecided") is None
    running, queued = there.state("running"), there.state("queued")
    assert running is not None and queued is not None
    assert there.continuer.is_leased(running) and not there.continuer.is_leased(queued)
    assert there.continuer.is_final(running) and not there.continuer.is_final(queued)
    assert there.continuer.place_of(running) is None
    ticket = there.streams["queued"].ticket
    assert ticket is not None and there.continuer.place_of(queued) == ticket.id
