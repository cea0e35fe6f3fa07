"""Claims about extproc/core/placement/model_load.py: a load in words."""

from __future__ import annotations

from extproc.core.placement.model_load import ModelLoad, any_of


def test_the_time_that_is_left_is_named_once_it_is_known() -> None:
    load = ModelLoad(model="qwen", where="gpu-1", ready_at=22.4)
    assert load.note(10.0) == "waits for qwen to be loaded at gpu-1, about 12 s"
    assert load.note(30.0) == "waits for qwen to be loaded at gpu-1, about 0 s"
    assert load.subject == "waits for qwen to be loaded at gpu-1"
    later = ModelLoad(model="qwen", where="gpu-1", is_delayed=True)
    assert later.note(10.0) == later.subject
    assert later.subject.endswith("at gpu-1 when others leave memory for it")


def test_many_machines_are_counted() -> None:
    assert any_of(["a"]) == "a"
    assert any_of(["a", "b", "c"]) == "a or b or c"
    assert any_of(["a", "b", "c", "d"]) == "one of 4 machines"
