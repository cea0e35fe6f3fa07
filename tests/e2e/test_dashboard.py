"""Claims about the dashboard, in a real browser. Skipped where no Chromium is on the PATH."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest
import pytest_asyncio

from extproc.admin.status_json import status_json
from extproc.cli.output import plain
from extproc.core.processes import ClusterMember, ClusterReport
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.core.views.fleet_capacity import FleetHealth
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.status import StatusServer, StatusSources
from tests.e2e.conftest import QUICK
from tests.e2e.pool import StackPool, shares
from tests.e2e.stack import Stack
from tests.fakes.admin_dependencies import admin_dependencies
from tests.fakes.browser import CHROMIUM, DRIVER, Browser, running_browser
from tests.fakes.processes import some_processes

MARKUP = '<img src=x onerror="document.title=1"><script>document.title=1</script>'
TOKEN = "dashboard-token"  # a test's
LINKS = {"grafana_url": "http://127.0.0.1:3000", "jaeger_url": "http://127.0.0.1:16686"}

BROKEN_WORDS = """
const found = [];
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (texts.nextNode()) {
  const text = texts.currentNode;
  if (text.parentElement.closest("script, style")) continue;
  for (const word of text.data.matchAll(/(?<!\\S)[A-Za-z]{2,14}(?!\\S)/g)) {
    const range = document.createRange();
    range.setStart(text, word.index);
    range.setEnd(text, word.index + word[0].length);
    const seen = [...range.getClientRects()].filter((each) => each.width > 0);
    if (new Set(seen.map((each) => Math.round(each.top))).size > 1) {
      found.push(`${word[0]} in ${text.data.trim().slice(0, 80)}`);
    }
  }
}
return found;
"""
"""The words that stand on two lines."""

TOO_WIDE = """
const parts = [...document.querySelectorAll("[id$=-part]")];
return parts.filter((part) => part.scrollWidth > part.clientWidth).map((part) => part.innerText);
"""
"""The lists of requests that have to be scrolled sideways."""

pytestmark = [
    *shares("simulators dashboard"),
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no chromium and chromedriver"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with running_browser() as running:
        yield running


# What the page makes of answers

SLOTS = pb.Slots(total=5, leased=2, foreign=1, idle=1, unusable=1)


def status(**changes: Any) -> dict[str, Any]:
    """A picker with one endpoint whose every name is markup; `changes` are fields of its status."""
    endpoint = pb.Endpoint(
        address="10.0.0.1:8080",
        name=MARKUP,
        unique_name=MARKUP,
        hostname=MARKUP,
        health=pb.HEALTH_DEGRADED,
        intent=pb.INTENT_DRAINING,
        intent_age_s=65.0,
        is_known_to_envoy=True,
        is_fresh=True,
        is_ejected=True,
        slots=SLOTS,
        tokens=pb.Tokens(
            total=131_072, held=100_000, reserved=120_000, free=10_944, source="guess"
        ),
        models=[pb.Model(name=name) for name in (MARKUP, "second", "third")],
        observed_age_s=0.5,
        issues=[pb.Issue(code="slow-slots", message=MARKUP, remedy=MARKUP)],
        tier=1,
    )
    queue = pb.GetStatusResponse.Queue(
        queued=3,
        max_requests=9,
        by_criticality={"critical": 1, "standard": 2, "sheddable": 0},
        longest_wait_s=12.3,
        models=[
            pb.GetStatusResponse.ModelQueue(idle_slots=1),
            pb.GetStatusResponse.ModelQueue(
                model=MARKUP, queued=3, by_reason={"no-idle-slot": 2, "affinity": 1}
            ),
        ],
        bounds=[
            pb.GetStatusResponse.Bound(
                kind="model", name=MARKUP, running=2, max_running=2, queued=3, is_lifo=True
            )
        ],
        idle_note="1 idle slot; 3 queued: why",
    )
    models = [
        pb.PlacedModel(
            machine=MARKUP,
            name=name,
            state="restarting",
            state_age_s=7.0,
            is_wanted=is_loaded,
            is_pinned=is_loaded,
            memory_mb=9000,
            queued=4,
            problem=MARKUP,
            last_change=f"loaded 7 s ago: {MARKUP}",
        )
        for name, is_loaded in ((MARKUP, True), ("second", False))
    ]
    fields: dict[str, Any] = {
        "version": "1.2.3",
        "uptime_s": 3700.0,
        "not_ready": [MARKUP],
        "problems": [MARKUP],
        "slots": SLOTS,
        "endpoints_by_health": {"degraded": 1},
        "endpoints_by_intent": {"draining": 1},
        "queue": queue,
        "pools": [
            pb.GetStatusResponse.Pool(
                name=name,
                is_default=name == MARKUP,
                slots=pb.Slots(idle=1, total=4),
                running=2,
                queued=3,
            )
            for name in (MARKUP, "second")
        ],
        "running": 2,
        "exchanges": 7,
        "outcomes": {"served": 3, MARKUP: 1},
        "machines": [pb.Machine(name=MARKUP, memory_mb=24000, used_mb=9000)],
        "models": models,
    }
    return {
        **plain(pb.GetStatusResponse(**(fields | changes))),
        "endpoints": [plain(endpoint)],
    }


def activity() -> dict[str, Any]:
    """One request of each kind, an event, and three samples with one unknown."""
    request = {
        "id": MARKUP,
        "state": "responding",
        "model": MARKUP,
        "criticality": MARKUP,
        "endpoint": MARKUP,
        "endpoint_name": MARKUP,
        "age_s": 7.0,
        "waited_s": 3.0,
        "position": 2,
        "queued": 3,
        "expected_s": None,
        "reason": "affinity",
    }
    ended = {
        **request,
        "outcome": "rejected",
        "reason": "queue-timeout",
        "status": 503,
        "ended_age_s": 1.0,
        "duration_s": 9.0,
        "first_token_s": None,
    }
    event = {
        "id": 1,
        "kind": MARKUP,
        "text": MARKUP,
        "age_s": 1.0,
        "endpoint": MARKUP,
        "endpoint_name": MARKUP,
    }
    return {
        "requests": {"queued": [request], "running": [request], "ended": [ended]},
        "events": [event],
        "history": {
            "length_s": 600.0,
            "interval_s": 5.0,
            "age_s": [110.0, 105.0, 100.0, 1.0],
            "total": [5, 5, 5, 5],
            "leased": [1, 2, 2, 2],
            "foreign": [0, 0, 1, 1],
            "queued": [0, 5, 3, 3],
            "tokens_per_s": [None, 50.0, None, 25.5],
            "first_token_s": [None, None, None, None],
        },
        "learned": {
            "endpoint": "10.0.0.1:8080",
            "samples": 12.0,
            "fixed_s": 0.25,
            "prompt_tokens_per_s": 900.0,
            "tokens_per_s": 33.3,
            "slot_s": 4.0,
            "ejections": {"5xx": 2},
        },
    }


@contextlib.asynccontextmanager
async def served(answer: object) -> AsyncIterator[str]:
    """The page's address, where `/status` says this; an exception is raised."""

    async def metrics() -> bytes:
        return b""

    def report(*_: object) -> dict[str, Any]:
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, dict)
        return answer

    server = StatusServer(
        StatusSources(
            health=lambda: FleetHealth(idle=0, processing=0),
            status=report,
            activity=lambda _: activity(),
            obstacles=lambda: (),
            problems=lambda: (),
            metrics=metrics,
        ),
    )
    port = await server.start("127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{port}/"
    finally:
        await server.stop()


async def is_live(browser: Browser) -> None:
    await browser.until("document.getElementById('live').dataset.state === 'live'")


async def test_what_is_reported_is_shown_as_text(browser: Browser) -> None:
    """The numbers stand where they belong, and markup in names stays the text that it is."""
    async with served(status()) as url:
        await browser.open(url)
        await is_live(browser)
        for selector, text in {
            "#slots-busy": "3",
            "#longest": "12 s",
            "#expected": "not known yet",
            "#idle-note": "1 idle slot; 3 queued: why",
            "#criticalities": "1 critical, 2 standard",
            "#models td:nth-child(2)": "2: no idle slot; 1: for the endpoint with its prompt in "
            "the cache",
            "#models tr:last-child td": "no known model",
            "#pools td:nth-child(2)": "1 of 4",
            "#pools tr:last-child td:nth-child(4)": "3",
            "#bounds td:nth-child(2)": "model, newest first",
            "#bounds td:nth-child(3)": "2 of 2",
            "#bounds td:nth-child(4)": "3",
            '[data-part="also"]': "draining for 1 min 5 s, ejected",
            '[data-part="count"]': "3/5",
            '[data-part="tokens"]': "10,944 of 131,072 tokens free?",
            "#machine-models td:nth-child(2)": "restarting\npinned, for 7.0 s",
            "#machine-models td:nth-child(3)": "9,000 MiB",
            "#machine-models td:nth-child(4)": "4",
            "#queued-rows td": "2 of 3",
            "#queued-rows td:nth-child(4)": "for the endpoint with its prompt in the cache",
            "#over-rows td": "queue-timeout\nstatus 503: no slot within its time limit",
            "#over-rows td:nth-child(2)": "1.0 s ago",
            "#chart-slots .note": "last 3, at most 3",
            "#chart-tokens .note": "last 25.5, at most 50.0",
            "#chart-first-token .note": "nothing known yet",
        }.items():
            assert await browser.text(selector) == text, selector
        label = "2 leased, 1 foreign, 1 idle, 1 unusable of 5 slots"
        assert await browser.run(
            f"return document.querySelectorAll('[aria-label=\"{label}\"]').length"
        )
        assert await browser.run("return document.title") == "(3) Coxswain", "no name's script ran"
        assert await browser.run("return document.querySelectorAll('img').length") == 0
        page = await browser.text("body")
        assert page.count("<img src=x") >= 21


async def test_a_large_fleet_is_counted_and_shown_in_part(browser: Browser) -> None:
    """The picker describes some endpoints, and counts all."""
    counts = {"ready": 9_999, "degraded": 1}
    async with served(status(endpoints_by_health=counts)) as url:
        await browser.open(url)
        await is_live(browser)
        assert await browser.text("#ready") == "9,999"
        assert await browser.text("#ready-of") == "of 10,000 ready"
        assert (await browser.text("#shown")).startswith("1 of 10000, including those with issues")


async def test_the_kind_and_the_tier_of_an_endpoint_are_shown(browser: Browser) -> None:
    shown = status()
    (endpoint,) = shown["endpoints"]
    endpoint |= {"runner": "vllm", "is_foreign_known": False, "tier": 2}
    async with served(shown) as url:
        await browser.open(url)
        await is_live(browser)
        also = "vllm, tier 2, use by others unknown, draining for 1 min 5 s, ejected"
        assert await browser.text('[data-part="also"]') == also


async def test_models_are_shown_only_with_a_keeper(browser: Browser) -> None:
    """Nor on the page of an endpoint; without the token there are no buttons."""
    visible = "return document.getElementById('machines').checkVisibility()"
    async with served(status()) as url:
        await browser.open(url)
        await is_live(browser)
        assert await browser.run(visible)
        assert "not connected" in await browser.text("#machine-models td")
        buttons = "Array.from(document.querySelectorAll('#machine-models button'), b => b{})"
        shown = await browser.run(f"return {buttons.format('.textContent')}")
        assert shown == ["Unload", "Unpin", "Load", "Pin"]
        assert not any(await browser.run(f"return {buttons.format('.checkVisibility()')}"))
        await browser.run("window.location.hash = '#/endpoints/nobody'")
        await browser.until("!document.getElementById('machines').checkVisibility()")
    async with served(status(machines=[], models=[])) as url:
        await browser.open(url)
        await is_live(browser)
        assert not await browser.run(visible)


def processes_of(cluster: ClusterReport | None = None) -> dict[str, Any]:
    """Those of a status whose picker has two fronts."""
    clock, dispatcher = time.monotonic, Dispatcher(Random(1))
    dependencies = admin_dependencies(
        dispatcher, clock, processes=lambda: replace(some_processes(), cluster=cluster)
    )
    found = status_json(dependencies)["processes"]
    assert isinstance(found, dict)
    return found


async def test_processes_are_shown_where_there_are_some(browser: Browser) -> None:
    words = (
        "core, starting spare, 2 fronts; calls of each front: 7, 5; 3 takeovers, the last in 251 ms"
    )
    for processes, text in ((processes_of(), words), (None, "")):
        async with served(status(processes=processes)) as url:
            await browser.open(url)
            await is_live(browser)
            assert await browser.text("#processes") == text
            is_hidden = await browser.run("return document.getElementById('processes').hidden")
            assert is_hidden is not bool(text)


async def test_members_are_shown_in_a_cluster(browser: Browser) -> None:
    """Also why the engine does not say who leads; names stay text."""
    report = ClusterReport(
        member="a",
        leader="a",
        is_leading=True,
        epoch=4,
        elections=1,
        is_in_touch=False,
        engine_error=MARKUP,
        members=(
            ClusterMember(
                name="a", address="10.0.0.1:9004", version="1", fronts=2, is_leading=True
            ),
            ClusterMember(
                name=MARKUP, address="10.0.0.2:9004", version="1", fronts=1, is_leading=False
            ),
        ),
    )
    async with served(status(processes=processes_of(report))) as url:
        await browser.open(url)
        await is_live(browser)
        rows = await browser.run(
            "return Array.from(document.querySelectorAll('#cluster-members tr'),"
            " row => Array.from(row.cells, cell => cell.innerText.trim()))"
        )
        assert rows[0] == ["a", "leader", "10.0.0.1:9004", "2", "1"]
        name, *others = rows[1]
        assert name.startswith(MARKUP[:50]) and others == ["standby", "10.0.0.2:9004", "1", "1"]
        note = await browser.text("#cluster-note")
        assert note == f"epoch 4; who leads cannot be learned: {MARKUP}"
    async with served(status(processes=processes_of())) as url:
        await browser.open(url)
        await is_live(browser)
        assert await browser.run("return document.getElementById('cluster').hidden")


async def test_curves_show_what_is_known(browser: Browser) -> None:
    """In the seconds before now, to scale, with gaps where nothing is known."""
    async with served(status()) as url:
        await browser.open(url)
        await is_live(browser)
        path = "return document.querySelector('#chart-{} .edge').getAttribute('d')"
        assert await browser.run(path.format("queued")) == "M490 100L495 0L500 40M599 40L599 40"
        assert await browser.run(path.format("tokens")) == "M495 0L495 0M599 49L599 49"
        assert await browser.run(path.format("first-token")) == ""


async def test_the_page_of_an_endpoint(browser: Browser) -> None:
    """It has what the fleet's page has of it, what was learned, and since when it is drained; an
    unknown name is said to be unknown."""
    async with served(status()) as url:
        await browser.open(f"{url}#/endpoints/10.0.0.1:8080")
        await is_live(browser)
        facts = await browser.text("#endpoint")
        for text in ("draining for 1 min 5 s", "Draining since", "250 ms", "33 tokens per second"):
            assert text in facts
        assert (
            "100,000 held, 120,000 reserved, 10,944 free of 131,072 tokens (a guess: set" in facts
        )
        assert "2 5xx" in facts and "about\n12 requests" in facts and "slow-slots" in facts
        assert not await browser.run("return document.querySelector('.charts').checkVisibility()")
        await browser.run("window.location.hash = '#/endpoints/nobody'")
        await browser.until("document.getElementById('endpoint-health').innerText.includes('not')")
        assert await browser.text("#endpoint-title") == "nobody"
        await browser.click("#endpoint .note a")
        await browser.until("document.querySelector('.charts').checkVisibility()")


async def test_a_picker_that_fails_is_said_plainly(browser: Browser) -> None:
    """In words, and for screen readers as an alert."""
    async with served(RuntimeError("on purpose")) as url:
        await browser.open(url)
        await browser.until("document.getElementById('live').dataset.state === 'stale'")
        assert await browser.text("#live") == "no answer"
        assert "error (500)" in await browser.text("#stale-what")
        alert = await browser.run("return document.getElementById('stale').getAttribute('role')")
        assert alert == "alert"


@pytest.mark.parametrize("is_dark", [False, True])
@pytest.mark.parametrize("width", [360, 768, 1280])
@pytest.mark.parametrize("page", ["", "#/endpoints/10.0.0.1:8080"])
async def test_it_fits_the_screen(
    browser: Browser, page: str, width: int, *, is_dark: bool
) -> None:
    """Nothing reaches beyond the screen, no word is broken, in either scheme, and the scheme is the
    reader's."""
    async with served(status()) as url:
        await browser.show(width, is_dark=is_dark)
        try:
            await browser.open(f"{url}{page}")
            await is_live(browser)
            await browser.run("document.body.classList.add('can-act')")
            assert await browser.run("return document.documentElement.scrollWidth") == width
            assert await browser.run(TOO_WIDE) == []
            assert await browser.run(BROKEN_WORDS) == []
            red = await browser.run(
                "return +getComputedStyle(document.body).backgroundColor.match(/[0-9]+/)[0]"
            )
            assert (red < 100) is is_dark
        finally:
            await browser.show(1280)


# Over the real stack


@pytest_asyncio.fixture(loop_scope="session")
async def stack(stacks: StackPool, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stack]:
    """Two simulated servers, each with one slot, whose picker has a token."""
    monkeypatch.setenv("COXSWAIN_ADMIN_TOKEN", TOKEN)
    settings = {**QUICK, "dashboard": LINKS}
    async with stacks.lend(slots=(1, 1), kind="simulator", settings=settings) as lent:
        yield lent


async def test_requests_and_actions_over_the_real_stack(browser: Browser, stack: Stack) -> None:
    """Running and queued requests appear; with the token an operator drains, activates and cancels
    from the page, and without it there is no button. What ended is listed with its reason, what
    happened is in the feed, and a reload shows it all again."""
    url = f"http://127.0.0.1:{stack.http_port}/"
    await browser.open(url)
    await is_live(browser)
    anchors = "document.querySelectorAll('.links:last-of-type a')"
    links = f"return Array.from({anchors}, a => a.getAttribute('href'))"
    assert await browser.run(links) == list(LINKS.values())
    await stack.fill()
    waiting = asyncio.create_task(stack.ask())
    await browser.until("document.querySelectorAll('#queued-rows tr').length === 1")
    assert await browser.text("#queued-rows td") == "1 of 1"
    assert await browser.text("#queued-rows td:nth-child(4)") == "no idle slot"
    assert await browser.text("#models td:nth-child(2)") == "1: no idle slot"
    await browser.until("document.querySelectorAll('#running-rows tr').length === 2")
    assert await browser.text("#slots-busy") == "2"
    assert not await browser.run("return document.querySelector('.act').checkVisibility()")

    await browser.type("#token", "wrong")
    await browser.click("#operator button")
    await browser.until("document.getElementById('operator-note').innerText.includes('not valid')")
    await browser.type("#token", TOKEN)
    await browser.click("#operator button")
    await browser.until("document.body.classList.contains('can-act')")

    server = stack.servers[0]
    await browser.run(f"window.location.hash = '#/endpoints/{server.address}'")
    await browser.until("document.getElementById('drain').checkVisibility()")
    await browser.until("document.querySelectorAll('#running-rows tr').length === 1")
    await browser.click("#drain")
    await browser.accept()
    await browser.until("document.getElementById('activate').checkVisibility()")
    status = (await stack.status())["endpoints"][server.address]
    assert status["intent"] == "draining"
    await browser.click("#running-rows button")
    await browser.accept()
    await browser.until("document.querySelectorAll('#over-rows tr').length > 0")
    await browser.until("document.getElementById('events').innerText.includes('drained')")
    assert "broken" in await browser.text("#over-rows tr")
    assert "cancelled" in await browser.text("#over-rows tr")
    await browser.click("#activate")
    await browser.until("document.getElementById('drain').checkVisibility()")
    assert (await stack.status())["endpoints"][server.address]["intent"] == "active"
    assert (await waiting).headers["x-coxswain-endpoint"] == server.address

    await browser.open(url)  # a reload: the token is forgotten, what happened is not
    await browser.run("window.location.reload()")
    await is_live(browser)
    assert not await browser.run("return document.body.classList.contains('can-act')")
    assert "drained" in await browser.text("#events")
    assert "cancelled" in await browser.text("#over-rows")
    await browser.until("document.querySelector('#chart-slots .edge').getAttribute('d').length > 0")
    await stack.leave_all()
