"""Claims about extproc/core/request_groups.py."""

from dataclasses import dataclass

from extproc.core.request_groups import MANY_DRAINING, Group, GroupKind, RequestGroups

ONE = Group(GroupKind.SESSION, "client-web", "1")
OTHER = Group(GroupKind.FLOW, "client-web", "1")


@dataclass
class Slot:
    """A slot whose client left."""

    is_draining: bool = True


def test_a_request_counts_in_all_of_its_groups_until_it_ends() -> None:
    groups = RequestGroups()
    groups.add("a", (ONE, OTHER))
    groups.add("b", (ONE,))
    groups.add("c", ())
    assert (groups.count(ONE, 5), groups.count(OTHER, 5)) == (2, 1)
    assert set(groups) == {"a", "b"}
    for _ in range(2):
        groups.remove("a")
    groups.remove("c")
    assert (groups.count(ONE, 5), groups.count(OTHER, 5)) == (1, 0)
    groups.remove("b")
    assert not set(groups) and not len(groups), "nothing is kept of a group without requests"


def test_a_request_that_drains_counts_until_its_server_is_free() -> None:
    groups, slot = RequestGroups(), Slot()
    groups.add("a", (ONE,))
    groups.remove("a", slot)
    groups.remove("a", Slot())
    assert groups.count(ONE, 1) == 1 and not set(groups)
    slot.is_draining = False
    assert groups.count(ONE, 1) == 0
    assert not len(groups)


def test_drained_requests_of_groups_that_nobody_asks_about_are_forgotten() -> None:
    """However many sessions there were."""
    groups, slots = RequestGroups(), [Slot() for _ in range(10 * MANY_DRAINING)]
    for number, slot in enumerate(slots):
        groups.add(str(number), (ONE._replace(name=str(number)),))
        groups.remove(str(number), slot)
        slot.is_draining = False
        assert len(groups) <= MANY_DRAINING + 1
    for number in range(MANY_DRAINING + 1):
        groups.add(str(number), (OTHER,))
        groups.remove(str(number), Slot())
    assert len(groups) == 1 and groups.count(OTHER, 1) == MANY_DRAINING + 1
