"""Claims about extproc/settings/bounds_section.py, and how bounds fit the other settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from extproc.app.options import dispatcher_options
from extproc.core.bounds import BoundKind, BoundLimits
from extproc.settings import Settings, SettingsError, load_settings

ALL = {"running": 2, "queued": 0, "queue_timeout_s": 5, "order": "lifo"}


def test_bounds_reach_the_core() -> None:
    """By kind and name; a path in both of its spellings, if there are two."""
    settings = Settings.model_validate(
        {
            "objectives": {"batch": {}},
            "bounds": {
                "objectives": {"batch": ALL},
                "models": {"tiny": {"running": 1}},
                "paths": {"/embeddings": {"queued": 3}, "/completion": {"order": "fifo"}},
            },
        }
    )
    options = dispatcher_options(settings).bounds
    limits = BoundLimits(running=2, queued=0, queue_timeout_s=5.0, is_last_come=True)
    assert options.limits[BoundKind.OBJECTIVE, "batch"] == limits
    assert options.limits[BoundKind.MODEL, "tiny"] == BoundLimits(running=1)
    assert options.paths == {
        "/embeddings": "/embeddings",
        "/v1/embeddings": "/embeddings",
        "/completion": "/completion",
    }


def test_bounds_from_the_environment_are_json() -> None:
    environ = {"COXSWAIN_BOUNDS__MODELS": '{"tiny": {"running": 1}}'}
    assert load_settings(environ=environ).bounds.models["tiny"].running == 1


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"models": {"tiny": {}}}, "give at least one of running, queued, queue_timeout_s and order"),
    ({"models": {"tiny": {"running": 0}}}, "expected at least 1, got the number 0"),
    ({"models": {"tiny": {"order": "random"}}}, "fifo"),
    ({"models": {"tiny": {"queue_timeout_s": 61}}}, "must not exceed queue.timeout_s"),
    ({"objectives": {"lost": {"running": 1}}}, "there is no objective of this name"),
    ({"paths": {"/health": {"running": 1}}}, "'/health' takes no slot, so it has no bound"),
    (
        {"paths": {"/embeddings": {"running": 1}, "/v1/embeddings": {"running": 1}}},
        "/embeddings and /v1/embeddings are the same path; remove one",
    ),
]


@pytest.mark.parametrize(("bounds", "text"), WRONG)
def test_a_bound_that_cannot_work_is_explained(
    bounds: dict[str, Any], text: str, tmp_path: Path
) -> None:
    file = tmp_path / "coxswain.yaml"
    file.write_text(json.dumps({"bounds": bounds}), encoding="utf-8")
    with pytest.raises(SettingsError) as caught:
        load_settings(file, environ={})
    assert text in str(caught.value)
