"""What the tests of probes share."""

from __future__ import annotations

import time
from typing import Any

from extproc.core.observation import Observation
from extproc.runners.kind import RunnerKind
from extproc.runners.kinds import open_probe
from extproc.runners.llama_server.probe import unwanted
from extproc.runners.probe import Probe, ScrapePriority
from extproc.runners.target import EndpointTarget
from tests.fakes.llama_server import FakeLlamaServer
from tests.fakes.patience import PATIENT_SCRAPES


def probe_of(
    fake: FakeLlamaServer,
    kind: RunnerKind = RunnerKind.AUTO,
    slots: int | None = None,
    **more: Any,
) -> Probe:
    """`more` are other fields of the target."""
    target = EndpointTarget(address=fake.address, kind=kind, slots=slots, may_sleep=False, **more)
    return open_probe(
        target, PATIENT_SCRAPES, time.monotonic, lost_s=lambda _: 0.0, wants_counters=unwanted
    )


async def scrape(
    fake: FakeLlamaServer,
    kind: RunnerKind = RunnerKind.AUTO,
    slots: int | None = None,
    **more: Any,
) -> Observation:
    """What the first scrape shows."""
    probe = probe_of(fake, kind, slots, **more)
    try:
        return await probe.scrape(ScrapePriority.IDLE)
    finally:
        await probe.aclose()
