"""Claims about extproc/core/queue/held_tickets.py."""

from __future__ import annotations

from random import Random

from extproc.core.client_limits import ClientLimit
from extproc.core.objective import Criticality
from extproc.core.queue.fair_queueing import FairQueueing
from extproc.core.queue.held_tickets import SLACK, HeldTickets
from extproc.core.queue.ticket import Ticket
from extproc.core.request import Request, ResolvedRequest
from extproc.core.request_groups import RequestGroups

GROUPS = RequestGroups({"*": ClientLimit(per_session=1, per_flow=1)})


def ticket_of(id_: int, session: str, flow: str = "", pool: str = "") -> Ticket:
    request = Request(id=str(id_), timeout_s=9.0, pool=pool)
    resolved = ResolvedRequest(groups=GROUPS.of("", "", session, flow))
    return Ticket(id_, request, 0.0, resolved, FairQueueing().flow(resolved.objective, flow))


def test_the_first_that_arrived_is_first_whenever_it_was_held_back() -> None:
    held = HeldTickets()
    tickets = {id_: ticket_of(id_, "first come") for id_ in (3, 1, 2)}
    (group,) = tickets[3].resolved.groups
    for ticket in tickets.values():
        ticket.resolved = ResolvedRequest(groups=(group,))
        held.hold(ticket, group)
    assert held.ids_of(group) == [1, 2, 3]
    held.release(tickets[1])
    assert held.ids_of(group) == [2, 3]
    assert held.take_first(group) is tickets[2]
    held.release(tickets[2])
    assert list(held) == [tickets[3]] and group.held_back == 1
    held.release(tickets[3])
    assert held.take_first(group) is None and not held


def test_one_of_two_groups_lists_it_and_both_count_it() -> None:
    held, ticket = HeldTickets(), ticket_of(1, "both", "flow", pool="a")
    session, flow = ticket.resolved.groups
    held.hold(ticket, session)
    assert (session.held_back, flow.held_back) == (1, 1)
    assert (held.count_for("a"), held.count_for("b"), held.count_for("")) == (1, 0, 1)
    assert held.count_of(Criticality.STANDARD) == 1
    assert held.take_first(flow) is None and held.take_first(session) is ticket
    held.list_with(flow, ticket)
    assert held.take_first(session) is None and ticket.held_by is flow
    held.release(ticket)
    assert (session.held_back, flow.held_back, len(held)) == (0, 0, 0)
    assert held.count_of(Criticality.STANDARD) == held.count_for("a") == 0


def test_what_left_takes_no_memory_for_long() -> None:
    """However many come and go while the session stays at its limit."""
    held, random = HeldTickets(), Random(1)
    keeper = ticket_of(0, "busy")
    (group,) = keeper.resolved.groups
    held.hold(keeper, group)
    waiting: list[Ticket] = []
    for id_ in range(1, 3000):
        ticket = ticket_of(id_, "busy")
        ticket.resolved = keeper.resolved
        held.hold(ticket, group)
        waiting.append(ticket)
        while len(waiting) > 20:
            held.release(waiting.pop(random.randrange(len(waiting))))
        listed = held._by_group[group]  # noqa: SLF001 - what it keeps is the claim
        assert len(listed) <= 2 * (len(held) + 1) + SLACK
    assert held.take_first(group) is keeper
    assert held.take_first(group) is min(waiting)
    held.clear()
    assert not held and held.take_first(group) is None
