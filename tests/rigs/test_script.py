"""A seed is a script: the same one each time, and all of them together do everything."""

from __future__ import annotations

from random import Random

from rigs.chaos.planned_request import PATIENT_S, draw_request
from rigs.chaos.script import GLOBAL, MODES, OF_MEMBERS, OF_PICKER, OF_PROCESSES, Kind, draw_script
from rigs.chaos.windows import ALLOWANCES
from rigs.leaving import WAYS

SEEDS = range(1, 21)


def test_a_seed_replays_its_script_and_its_load() -> None:
    assert str(draw_script(7, 60)) == str(draw_script(7, 60))
    assert draw_script(7, 60).actions != draw_script(8, 60).actions
    one, other = Random(7), Random(7)
    assert [draw_request(one, "x", 60, WAYS) for _ in range(99)] == [
        draw_request(other, "x", 60, WAYS) for _ in range(99)
    ]


def test_twenty_seeds_do_everything_in_every_mode() -> None:
    scripts = [draw_script(seed, 60) for seed in SEEDS]
    assert {(one.mode, one.is_secure) for one in scripts} == {
        (mode, is_secure) for mode in MODES for is_secure in (False, True)
    }
    for kind in Kind:
        assert sum(action.kind is kind for one in scripts for action in one.actions) >= 3, kind


def test_a_third_of_the_seeds_are_clusters_and_lose_members_in_place_of_the_picker() -> None:
    scripts = [draw_script(seed, 60) for seed in range(18)]
    clusters = [one for one in scripts if one.is_cluster]
    assert len(clusters) == 6
    assert {(one.mode, one.is_secure) for one in clusters} == {
        (mode, is_secure) for mode in MODES for is_secure in (False, True)
    }
    for one in scripts:
        kinds = {action.kind for action in one.actions}
        assert one.is_cluster is bool(kinds & set(OF_MEMBERS))
        assert one.is_cluster is not bool(kinds & set(OF_PICKER))
    without_engine = draw_script(clusters[0].seed, 60, has_engine=False)
    assert without_engine.fronts and not without_engine.is_cluster


def test_what_befalls_processes_members_and_the_engine_never_excuses_a_full_server() -> None:
    promised = {
        "full",
        "twice",
        "lost",
        "early",
        "closed",
        "log",
        "leftover",
        "shutting-down",
        "spoiled",
    }
    for kind in (*OF_PROCESSES, *OF_MEMBERS):
        allowed = ALLOWANCES.get(kind)
        assert allowed is None or not allowed.excuses & promised, kind


def test_everybody_has_time_to_recover() -> None:
    """What happens is in order, within the run, and rarer where it concerns everybody."""
    for seed in SEEDS:
        script = draw_script(seed, 60)
        times = [action.at_s for action in script.actions]
        assert times == sorted(times) and times[0] >= 2 and times[-1] < 60
        for action, following in zip(script.actions, script.actions[1:], strict=False):
            if action.kind in GLOBAL:
                assert following.at_s - action.at_s > action.lasts_s


def test_half_of_the_waits_are_too_short_and_some_clients_leave_or_send_slowly() -> None:
    source = Random(1)
    drawn = [draw_request(source, "x", 60, WAYS) for _ in range(2000)]
    hurried = sum(one.patience_ms < 1000 * PATIENT_S for one in drawn)
    assert 900 < hurried < 1100
    kinds = {one.kind for one in drawn}
    assert {"stream", "whole", "stream-leaver", "whole-leaver", "two-slots"} < kinds
    assert any(one.padding and one.upload_pause_s for one in drawn)
    assert len({one.is_streamed for one in drawn}) == 2
