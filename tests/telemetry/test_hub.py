"""Claims about extproc/telemetry/hub.py without a receiver; with one: test_otlp.py."""

from __future__ import annotations

import pytest

from extproc.core.address import Address
from extproc.core.exchange_record import Outcome
from extproc.core.fleet.endpoint import EndpointSpec, Intent
from extproc.core.fleet.health import HealthOptions
from extproc.core.observation import ModelReading, Observation, ScrapeStatus
from extproc.core.rejection import Reason
from extproc.settings.logging_section import StatsdSettings
from extproc.telemetry.hub import Telemetry, TelemetryOptions
from extproc.telemetry.metrics import TelemetrySources
from extproc.telemetry.spans import UNKNOWN_SERVER, Server
from tests.fakes.small_fleet import SmallFleet
from tests.telemetry.records import record

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"


def telemetry(fleet: SmallFleet, *, dropped_log_lines: int = 0) -> Telemetry:
    sources = TelemetrySources(
        running=lambda: 3,
        queue_depths=lambda: {"critical": 1, "standard": 2},
        dropped_log_lines=lambda: dropped_log_lines,
    )
    options = TelemetryOptions(version="1.2.3")
    return Telemetry(fleet.dispatcher, sources, options, clock=lambda: fleet.now)


async def samples(of: Telemetry) -> dict[str, float]:
    lines = (await of.prometheus()).decode().splitlines()
    parts = [line.rpartition(" ") for line in lines if not line.startswith("#")]
    return {name: float(value) for name, _, value in parts}


async def test_what_is_recorded_is_in_the_text() -> None:
    """Ends of exchanges and looks are counted; the rest is read when somebody asks."""
    fleet = SmallFleet(2)
    hub = telemetry(fleet, dropped_log_lines=5)
    hub.record(record())
    hub.record(record(outcome=Outcome.REJECTED, reason=Reason.SHED))
    scrape = Observation(
        address=fleet.addresses[0], began_at=1.0, answered_at=1.0, status=ScrapeStatus.READY
    )
    hub.metrics.scraped(scrape)
    found = await samples(hub)
    address = fleet.addresses[0]
    wanted = {
        'coxswain_requests_total{outcome="served",criticality="standard"}': 1,
        'coxswain_requests_total{outcome="shed",criticality="standard"}': 1,
        f'coxswain_scrapes_total{{endpoint="{address}",result="ready"}}': 1,
        'coxswain_queue_depth{criticality="critical"}': 1,
        "coxswain_running_exchanges": 3,
        'coxswain_telemetry_dropped_total{signal="log_lines"}': 5,
        'coxswain_build_info{version="1.2.3"}': 1,
    }
    assert {name: found.get(name) for name in wanted} == wanted
    assert hub.metrics.outcomes() == {"served": 1, "shed": 1}


@pytest.mark.parametrize(
    ("trace_parent", "trace_id"),
    [(f"00-{TRACE_ID}-b7ad6b7169203331-01", TRACE_ID), ("", ""), ("nonsense", "")],
)
async def test_the_callers_trace_is_known_also_where_no_spans_go(
    trace_parent: str, trace_id: str
) -> None:
    """The log names it, so that the queue is found from the caller's trace."""
    assert telemetry(SmallFleet(1)).record(record(trace_parent=trace_parent)) == trace_id


async def test_a_span_names_the_endpoint_and_the_model_that_answered() -> None:
    """The model by the name that the endpoint reports; none where no answer came from it."""
    fleet = SmallFleet()
    address = record().endpoint
    assert address is not None
    spec = EndpointSpec(address=address, name="gpu-1")
    fleet.dispatcher.set_members("settings", [spec], fleet.now)
    endpoint = fleet.endpoint(address)
    models = (ModelReading(name="qwen", aliases=("q",)),)
    endpoint.observe(
        Observation(
            address=address,
            began_at=1.0,
            answered_at=1.0,
            status=ScrapeStatus.READY,
            models=models,
        ),
        HealthOptions(),
    )
    hub = telemetry(fleet)
    assert hub._server(record(model="q")) == Server("gpu-1", "qwen")
    assert hub._server(record(model="q", status=500)) == Server("gpu-1", "")
    rejected = record(outcome=Outcome.REJECTED, status=429)
    assert hub._server(rejected) == Server("gpu-1", "")
    assert hub._server(record(endpoint=None)) == UNKNOWN_SERVER
    assert hub._server(record(endpoint=Address("10.9.9.9", 1))) == UNKNOWN_SERVER


async def test_without_options_nothing_is_begun_and_ending_is_no_trouble() -> None:
    hub = telemetry(SmallFleet(1))
    hub.start()
    assert not hub.takes_spans
    await hub.aclose()


async def test_gauges_for_statsd_add_up_the_fleet() -> None:
    """Idle, in use through us or past us, and waiting; who is disabled has no idle slots."""
    fleet = SmallFleet(2, 1, 8)
    fleet.dispatcher.set_intent(fleet.addresses[2], Intent.DISABLED, fleet.now)
    fleet.scrape(fleet.addresses[0], busy=1, slots=2)
    for _ in range(2):
        fleet.pick()
    fleet.queue()
    options = TelemetryOptions(
        version="1", statsd=StatsdSettings(addr="127.0.0.1:9", interval_s=3600)
    )
    sources = TelemetrySources(running=lambda: 0, queue_depths=dict)
    gauges = Telemetry(fleet.dispatcher, sources, options, clock=lambda: fleet.now)._gauges()
    assert tuple(gauges.values()) == (0, 3, 1)
