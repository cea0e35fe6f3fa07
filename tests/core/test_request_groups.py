"""Claims about extproc/core/request_groups.py."""

from extproc.core.client_limits import ClientLimit
from extproc.core.request_groups import GroupKind, RequestGroups, full_group

LIMITS = {"web": ClientLimit(per_session=1, per_flow=2), "api": ClientLimit(requests=1)}


def test_a_request_is_in_the_groups_that_have_a_limit() -> None:
    """Those of its client, kept apart by tenant; a client with limits has not those of others."""
    groups = RequestGroups(LIMITS)
    kinds = [group.key.kind for group in groups.of("web", "client-web", "s", "team")]
    assert kinds == [GroupKind.SESSION, GroupKind.FLOW]
    assert groups.of("web", "client-web", None, "") == ()
    assert groups.of("api", "client-api", "s", "team") == ()
    assert groups.of("nobody", "client-nobody", "s", "team") == ()
    everybody = RequestGroups({**LIMITS, "*": ClientLimit(per_session=3)})
    assert everybody.of("api", "client-api", "s", "team") == ()
    one, other = (everybody.of("", tenant, "s", "team") for tenant in ("key-1", "key-2"))
    assert [group.most for group in (*one, *other)] == [3, 3]
    one[0].request_began()
    assert everybody.of("", "key-1", "s", "") == one != everybody.of("", "key-2", "s", "")


def test_a_group_is_known_while_it_has_requests() -> None:
    """Running ones, and those that are held back."""
    groups = RequestGroups(LIMITS)
    assert not groups.is_empty and RequestGroups({"api": LIMITS["api"]}).is_empty
    session, flow = groups.of("web", "client-web", "s", "team")
    session.request_began()
    session.hold_back()
    flow.hold_back()
    assert full_group((session, flow)) is session and full_group((flow,)) is None
    assert groups.opened == [flow], "it need not hold back anything"
    groups.opened.clear()
    session.request_ended()
    assert groups.opened == [session] and not session.may_let_in, "it is about to"
    for group in (session, flow):
        assert groups.known[group.key] is group
        group.end_hold()
    assert not groups.known


def test_other_limits_open_what_has_room_by_then() -> None:
    groups = RequestGroups(LIMITS)
    session, flow = groups.of("web", "client-web", "s", "team")
    for group in (session, flow):
        for _ in range(2):
            group.request_began()
        group.hold_back()
    assert not groups.opened
    groups.renew({"*": ClientLimit(per_session=2)})
    assert groups.opened == [flow] and (session.most, flow.most) == (2, None)
    groups.renew({})
    assert groups.is_empty and groups.opened == [flow, session, flow]


def test_counts_are_compared_and_derived_again() -> None:
    groups = RequestGroups(LIMITS)
    session, flow = groups.of("web", "client-web", "s", "team")
    session.request_began()
    flow.hold_back()
    assert groups.faults([(session,)], [(flow,)]) == []
    assert len(groups.faults([(session, flow)], [])) == 1
    groups.known.clear()
    assert len(groups.faults([(session,)], [(flow,)])) == 2
    groups.recount([(session,)], [(flow,)])
    assert (session.requests, flow.held_back) == (1, 0) and not groups.opened
    assert groups.faults([(session,)], []) == []
