"""Claims about extproc/core/outliers/ejection.py."""

from __future__ import annotations

import pytest

from extproc.core.outliers.ejection import Backoff, Ejection, EjectionError, EjectionState
from extproc.core.outliers.failure_evidence import Failure, Fault, RequestKind

KIND = RequestKind("/completion", None)


def failure(took_s: float = 0.01) -> Failure:
    return Failure(KIND, Fault.SERVER_ERROR, 0, 0.0, took_s)


def ejected(failures: int = 3) -> Ejection:
    ejection = Ejection(Backoff(base_s=2.0, max_s=60.0), failures)
    ejection.eject([failure()], 100.0)
    return ejection


def test_backoff_doubles_up_to_its_bound() -> None:
    ejection, now, waits = ejected(), 100.0, []
    for _ in range(7):
        assert ejection.due_at is not None
        waits.append(ejection.due_at - now)
        now = ejection.due_at
        assert ejection.advance(now)
        ejection.begin_trial(1, KIND, now)
        ejection.eject([failure()], now)
    assert waits == [2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]


@pytest.mark.parametrize(("healthy_s", "wait_s"), [(59.0, 8.0), (60.0, 4.0), (600.0, 2.0)])
def test_good_health_reverts_doublings(healthy_s: float, wait_s: float) -> None:
    ejection = ejected()
    ejection.advance(102.0)
    ejection.begin_trial(1, KIND, 102.0)
    ejection.eject([failure()], 102.0)
    ejection.advance(106.0)
    ejection.begin_trial(2, KIND, 106.0)
    ejection.readmit(107.0)
    now = 106.0 + healthy_s  # it has been well since its trial began
    ejection.eject([failure()], now)
    assert ejection.due_at == now + wait_s


@pytest.mark.parametrize(("took_s", "lasts_s"), [(0.01, 2.0), (5.0, 15.0)])
def test_a_trial_that_runs_longer_than_the_failures_passes(took_s: float, lasts_s: float) -> None:
    """So a long response does not keep the other slots out of use."""
    ejection = Ejection(Backoff(), 3)
    ejection.eject([failure(took_s)], 100.0)
    ejection.advance(102.0)
    ejection.begin_trial(1, KIND, 102.0)
    assert not ejection.advance(101.9 + lasts_s)
    assert ejection.is_out
    assert ejection.advance(102.0 + lasts_s)
    assert ejection.state is EjectionState.HEALTHY


def test_on_probation_one_failure_ejects() -> None:
    ejection = ejected(failures=2)
    ejection.advance(102.0)
    ejection.begin_trial(1, KIND, 102.0)
    ejection.readmit(103.0)
    assert ejection.threshold == 1
    ejection.served()
    assert ejection.threshold == 1
    ejection.served()
    assert ejection.threshold == 2


def test_one_trial_at_a_time() -> None:
    """While it runs, no other request may be sent there; a trial without a result is repeated."""
    ejection = ejected()
    is_out = [ejection.is_out]
    with pytest.raises(EjectionError):
        ejection.begin_trial(1, KIND, 101.0)
    ejection.advance(102.0)
    is_out.append(ejection.is_out)
    ejection.begin_trial(1, KIND, 102.0)
    is_out.append(ejection.is_out)
    with pytest.raises(EjectionError):
        ejection.begin_trial(2, KIND, 102.0)
    ejection.make_trial_due(102.5)
    is_out.append(ejection.is_out)
    ejection.begin_trial(2, KIND, 103.0)
    assert [*is_out, ejection.is_out] == [True, False, True, False, True]


def test_a_healthy_endpoint_needs_no_trial() -> None:
    with pytest.raises(EjectionError):
        Ejection(Backoff(), 3).make_trial_due(1.0)
