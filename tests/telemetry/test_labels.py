"""Claims about extproc/telemetry/labels.py: few and stable names for endpoints."""

from __future__ import annotations

import pytest

from extproc.core.address import Address
from extproc.core.fleet.endpoint import EndpointSpec
from extproc.telemetry import labels
from extproc.telemetry.labels import OTHERS, endpoint_labels
from tests.fakes.small_fleet import SmallFleet


def test_endpoints_are_called_by_their_own_name() -> None:
    """A name that two endpoints share tells nothing, so their addresses stand instead."""
    fleet = SmallFleet()
    specs = [
        EndpointSpec(address=Address("10.0.0.1", port), name=name)
        for port, name in ((1, "gpu-1"), (2, "pool"), (3, "pool"), (4, ""))
    ]
    fleet.dispatcher.set_members("test", specs, fleet.now)
    called = sorted(endpoint_labels(fleet.dispatcher.fleet).values())
    assert called == ["10.0.0.1:2", "10.0.0.1:3", "10.0.0.1:4", "gpu-1"]


def test_those_beyond_the_bound_share_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every endpoint has a label, and there are never more than one above the bound."""
    monkeypatch.setattr(labels, "MAX_ENDPOINTS", 3)
    fleet = SmallFleet(*[1] * 5)
    found = endpoint_labels(fleet.dispatcher.fleet)
    assert set(found) == set(fleet.addresses)
    assert len(set(found.values())) == 4
    assert [*found.values()].count(OTHERS) == 2
