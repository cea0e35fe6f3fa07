"""Claims about extproc/processes/fronts/lease_grant.py."""

from __future__ import annotations

from extproc.processes.fronts.lease_grant import PLEDGE_S, LeaseGrant

FRONTS = frozenset({"b/front-1", "b/front-2"})


def test_nothing_is_permitted_at_first() -> None:
    assert not LeaseGrant().is_given(0.0)


def test_a_lease_permits_until_it_runs_out() -> None:
    lease_grant = LeaseGrant()
    lease_grant.renew(10.0, 0.0, FRONTS)
    assert lease_grant.is_given(9.9)
    assert not lease_grant.is_given(10.0)


def test_without_the_engine_every_front_must_follow() -> None:
    lease_grant = LeaseGrant()
    lease_grant.renew(10.0, 20.0, FRONTS)
    lease_grant.pledged("b/front-1", 10.0)
    assert not lease_grant.is_given(10.5)
    lease_grant.pledged("b/front-2", 9.8)
    assert lease_grant.is_given(10.5)
    assert not lease_grant.is_given(9.8 + PLEDGE_S), "the first pledge has run out"
    lease_grant.pledged("b/front-2", 10.4)
    assert not lease_grant.is_given(10.0 + PLEDGE_S)
    assert not lease_grant.is_given(20.0)


def test_an_older_answer_does_not_shorten_a_pledge() -> None:
    lease_grant = LeaseGrant()
    lease_grant.renew(0.0, 20.0, frozenset({"b/front-1"}))
    lease_grant.pledged("b/front-1", 10.0)
    lease_grant.pledged("b/front-1", 9.0)
    assert lease_grant.is_given(10.9)


def test_pledges_of_fronts_that_nobody_knows_do_not_count() -> None:
    lease_grant = LeaseGrant()
    lease_grant.renew(0.0, 20.0, frozenset({"b/front-1"}))
    lease_grant.pledged("b/front-2", 10.0)
    lease_grant.renew(0.0, 20.0, FRONTS)
    lease_grant.pledged("b/front-1", 10.0)
    assert not lease_grant.is_given(10.5)
