"""Which process is behind an address."""

from __future__ import annotations

from extproc.core.observation import ModelState
from extproc.runners.llama_server.parse import ModelEntry, PropsReading
from extproc.runners.llama_server.server_identity import ServerIdentity
from extproc.runners.llama_server.slots_request import SlotCounts


def props(process: str = "p", is_unique: bool = True, total: int = 2) -> PropsReading:
    return PropsReading(
        is_router=False,
        total_slots=total,
        shows_slots=True,
        shows_counters=False,
        is_asleep=False,
        model="m",
        autoloads=False,
        max_models=0,
        process=process,
        is_process_unique=is_unique,
    )


def told(slots: int = 2, task: int | None = None) -> SlotCounts:
    return SlotCounts(
        began_at=0.0,
        answered_at=0.0,
        slots=slots,
        busy_slots=0,
        newest_task=task,
        is_first_on_connection=False,
        by_model=None,
    )


def test_another_marker_is_another_process_which_starts_from_nothing() -> None:
    identity = ServerIdentity()
    assert identity.update(props("one"), None)
    identity.set_models(())
    identity.count(told(slots=4))
    assert not identity.update(props("one"), None)
    assert identity.slots == 4
    assert identity.update(props("two"), None)
    assert identity.models == ()
    assert identity.slots == 2


def test_a_marked_process_is_the_same_after_a_rejected_connection() -> None:
    identity = ServerIdentity()
    identity.update(props("one"), None)
    identity.vanish()
    assert not identity.update(props("one"), None)


def test_an_unmarked_process_that_was_gone_is_another_one() -> None:
    identity = ServerIdentity()
    identity.update(props(is_unique=False), None)
    for _ in range(3):
        identity.vanish()
    assert identity.update(props(is_unique=False), None)
    assert not identity.update(props(is_unique=False), None)


def test_an_unmarked_process_whose_tasks_start_again_is_another_one() -> None:
    identity = ServerIdentity()
    identity.update(props(is_unique=False), None)
    assert not identity.count(told(task=7))
    assert not identity.count(told(task=None))
    assert identity.count(told(task=1))
    assert identity.update(props(is_unique=False), None)


def test_another_slot_count_hints_at_another_process_once() -> None:
    identity = ServerIdentity()
    identity.update(props(total=2), None)
    assert not identity.count(told(slots=2))
    assert identity.count(told(slots=3))
    assert not identity.count(told(slots=3))


def test_the_name_in_props_does_where_there_is_no_list() -> None:
    identity = ServerIdentity()
    identity.update(props(), None)
    identity.set_models(())
    assert [model.name for model in identity.models] == ["m"]
    entry = ModelEntry(name="n", aliases=("x",), status=ModelState.LOADED, may_sleep=False)
    identity.set_models((entry,))
    assert [(model.name, model.aliases) for model in identity.models] == [("n", ("x",))]
