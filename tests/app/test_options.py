"""Claims about extproc/app/options.py: every setting arrives where it counts."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from random import Random
from typing import Any

import pytest

from extproc.app.options import (
    address_policy,
    dispatcher_options,
    scaled_models,
)
from extproc.core.address import Address
from extproc.core.fleet.aliases import ModelMatch
from extproc.core.objective import Criticality
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.settings import Settings


def settings(**values: Any) -> Settings:
    return Settings.model_validate(values)


def test_the_dispatcher() -> None:
    """The line, the picks, the caps of leases that drain, and how models are matched."""
    options = dispatcher_options(
        settings(
            queue={"max_requests": 7, "max_body_bytes": 8},
            picker={"fallbacks": 1},
            scraper={"failures_to_down": 5, "stale_after_s": 9, "max_per_s": 100},
            ledger={"draining_cap_s": 11, "blind_draining_cap_s": 12},
            routing={"model_match": "strict"},
            models={"big": {"big-v1": 0.9, "big-v2": 0.1}},
        )
    )
    assert (options.queue.max_requests, options.queue.max_body_bytes) == (7, 8)
    assert options.fallbacks.limit == 1
    assert (options.health.failures_to_down, options.health.stale_after_s) == (5, 9)
    assert options.health.stale_per_endpoint_s == pytest.approx(9 / 2 / 100)
    assert (options.draining_caps.reported_s, options.draining_caps.blind_s) == (11, 12)
    assert options.resolver.model_match is ModelMatch.STRICT
    assert options.resolver.splits == {"big": {"big-v1": 0.9, "big-v2": 0.1}}


def test_without_discovery_there_are_no_fallbacks() -> None:
    """Such an answer names exactly one server; Envoy would not walk a list."""
    chosen = {"picker": {"fallbacks": 2}, "envoy": {"discovery": False}}
    assert dispatcher_options(settings(**chosen)).fallbacks.limit == 0


def test_objectives() -> None:
    """Milliseconds of the settings are seconds of the core; models name their objective."""
    objectives = dispatcher_options(
        settings(
            objectives={
                "chat": {
                    "criticality": "critical",
                    "slo": {"ttft_ms": 1500, "queue_ms": 250},
                    "weight": 3,
                    "models": ["big", "small"],
                },
                "batch": {"criticality": "sheddable"},
            }
        )
    ).resolver.objectives
    chat, batch = objectives.by_name["chat"], objectives.by_name["batch"]
    assert (chat.name, chat.criticality, chat.weight) == ("chat", Criticality.CRITICAL, 3)
    assert (chat.ttft_s, chat.queue_s) == (1.5, 0.25)
    assert (batch.criticality, batch.ttft_s, batch.queue_s) == (Criticality.SHEDDABLE, None, None)
    assert objectives.by_model == {"big": "chat", "small": "chat"}


def test_the_addresses_that_may_be_named() -> None:
    """Every port that the settings give to Envoy or to us, and those that were taken at the
    start, are nobody's."""
    policy = address_policy(
        settings(
            agents={"allowed_networks": ["203.0.113.7"]},
            envoy={"listen": "0.0.0.0:1", "admin": "127.0.0.1:2", "picker": "picker:3"},
            listen={"grpc": "127.0.0.1:4", "admin": "127.0.0.1:5", "http": "127.0.0.1:0"},
        ),
        own_ports=(4, 5, 6),
    )
    assert policy.own_ports == {1, 2, 3, 4, 5, 6}
    assert policy.rejection(Address.parse("203.0.113.7:7"), "") == ""
    assert policy.rejection(Address.parse("203.0.113.8:7"), "")


@pytest.mark.parametrize(
    "changes",
    [
        {"queue": {"max_requests": 7}},
        {"queue": {"max_body_bytes": 1000}},
        {"picker": {"fallbacks": 0}},
        {"routing": {"model_match": "strict"}},
        {"models": {"big": {"big-v1": 1}}},
        {"objectives": {"chat": {"criticality": "critical", "models": ["big"]}}},
        {"scale": {"target_wait_s": 1.5}},
        {"scale": {"idle_s": 9}},
        {"scale": {"down_after_s": 8}},
    ],
    ids=lambda changes: ".".join([*changes, *next(iter(changes.values()))]),
)
def test_a_reload_leaves_nothing_of_the_old_options(changes: dict[str, Any]) -> None:
    """All that the core holds is then what it holds when it starts with the new ones. And back: an
    old value that is empty adds nothing to what is held."""
    before, after = dispatcher_options(settings()), dispatcher_options(settings(**changes))
    for old, new in ((before, after), (after, before)):
        renewed, fresh = Dispatcher(Random(1), old), Dispatcher(Random(1), new)
        assert _held(renewed) != _held(fresh)
        renewed.renew(new)
        assert _held(renewed) == _held(fresh)


def _held(root: object) -> set[tuple[str, object]]:
    """Each plain value that can be reached, with the class and the field that hold it."""
    found: set[tuple[str, object]] = set()
    seen: set[int] = set()
    ways: list[tuple[str, Any]] = [("", root)]
    while ways:
        name, value = ways.pop()
        if isinstance(value, str | int | float | Enum | None):
            found.add((name, value))
        elif id(value) not in seen:
            seen.add(id(value))
            is_ours = type(value).__module__.startswith("extproc.core")
            holder = type(value).__name__ if is_ours else name
            ways += [(f"{holder}.{part}", each) for part, each in _parts(value)]
    return found


def _parts(value: Any) -> list[tuple[object, Any]]:
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return list(enumerate(value))
    if not type(value).__module__.startswith("extproc.core"):
        return []
    slots = {name for each in type(value).__mro__ for name in getattr(each, "__slots__", ())}
    names = sorted(slots | set(getattr(value, "__dict__", ())))
    return [(name, getattr(value, name)) for name in names if hasattr(value, name)]


def test_models_that_can_be_scaled_from_zero() -> None:
    """Each in its pool; a name that begins with no pool is one of the default pool's."""
    models: dict[str, Any] = {"batch/tiny": {}, "org/tiny": {}, "tiny": {}}
    pools = {"chat": {"default": True}, "batch": {"hosts": ["b.test"]}}
    found = scaled_models(settings(scale={"models": models}, pools=pools))
    assert {pool: set(readings) for pool, readings in found.items()} == {
        "batch": {"tiny"},
        "": {"org/tiny", "tiny"},
    }
    assert found["batch"]["tiny"].name == "tiny"
    assert set(scaled_models(settings(scale={"models": models}))) == {""}
