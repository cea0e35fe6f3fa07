"""The countdown over real Envoy: a web page asks where its request stands."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from extproc.envoy_config.documents import bootstrap
from extproc.envoy_config.options import HostPort, envoy_options
from extproc.settings import load_settings
from tests.e2e.conftest import QUICK
from tests.e2e.pool import StackPool, shares
from tests.e2e.stack import CHAT, Stack, chat, until
from tests.fakes.event_source import Event, EventSource
from tests.long_run import in_each_mode

pytestmark = shares("classes")

STREAM = {"accept": "text/event-stream"}
ONE_AT_A_TIME = {**QUICK, "queue": {"timeout_s": 60}}


@in_each_mode
async def test_a_web_page_watches_its_request(mode: str, stacks: StackPool) -> None:
    """The third in the queue sees itself move up until it is served; others see nothing."""
    async with stacks.lend(
        slots=(1,), settings=ONE_AT_A_TIME, kind="simulator", mode=mode
    ) as stack:
        held = await stack.hold()
        calls = []
        for number in range(1, 4):
            headers = {"x-request-id": f"page-{number}"}
            calls.append(asyncio.create_task(stack.ask(60, headers=headers)))
            await stack.until_waiting(number)
        asked = await stack.client.get(stack.url("/queue/page-3"))
        assert (asked.status_code, asked.json()["queue_position"]) == (200, 3)
        told = []
        async with stack.client.stream("GET", stack.url("/queue/page-3"), headers=STREAM) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    told.append(json.loads(line.removeprefix("data: ")))
                    await held.leave()  # now that the first place was told
        positions = [one["queue_position"] for one in told if one["state"] == "queued"]
        assert positions == sorted(positions, reverse=True) and positions[0] == 3
        assert told[-1] == {"state": "over"}
        answers = [await call for call in calls]
        assert [one.status_code for one in answers] == [200] * 3
        assert int(answers[2].headers["x-coxswain-queue-ms"]) > 0
        for path in ("/queue/page-3", "/queue/unknown", "/queue/"):
            assert (await stack.client.get(stack.url(path))).status_code == 404, path
        assert (await stack.client.get(stack.url("/queue/%2e%2e/status"))).status_code == 404


@in_each_mode
async def test_what_a_browser_makes_of_it(mode: str, stacks: StackPool) -> None:
    """An `EventSource` that a page of another origin opens before it sends its request: it sees
    its place, asks once more when the wait is over, and stops by itself."""
    async with stacks.lend(
        slots=(1,), settings=ONE_AT_A_TIME, kind="simulator", mode=mode
    ) as stack:
        held = await stack.hold()
        source = EventSource(stack.client, stack.url("/queue/my-page"))
        events: list[Event] = []

        async def watch() -> None:
            async for event in source:
                events.append(event)  # noqa: PERF401  # looked at while it grows

        watching = asyncio.create_task(watch())
        await asyncio.sleep(0)  # it asks first
        call = asyncio.create_task(stack.ask(headers={"x-request-id": "my-page"}))
        await until(lambda: has_come(events))
        await held.leave()
        assert (await call).status_code == 200
        await watching
        assert [event.name for event in events][-1] == "over"
        assert {event.name for event in events[:-1]} == {"position"}
        assert events[0].data["queue_position"] == 1
        assert (source.retry_s, source.last_status, source.connections) == (1.0, 404, 2)


async def has_come(events: list[Event]) -> bool:
    return bool(events)


@pytest.mark.parametrize("mode", ["discovery"])
async def test_ids_that_clients_did_not_send_are_random(mode: str, stacks: StackPool) -> None:
    """Envoy names each such request by a random UUID, told only with its answer."""
    async with stacks.lend(
        slots=(1,), settings=ONE_AT_A_TIME, kind="simulator", mode=mode
    ) as stack:
        answers = [await stack.client.post(stack.url(CHAT), json=chat(1)) for _ in range(20)]
        ids = [answer.headers["x-request-id"] for answer in answers]
        assert len(set(ids)) == 20
        # Two of the 32 digits are fixed by the format, one tells why it was traced.
        free = [id_.replace("-", "")[:12] + id_.replace("-", "")[17:] for id_ in ids]
        assert all(len({id_[place] for id_ in free}) > 1 for place in range(len(free[0])))


async def test_a_dead_member_of_a_cluster_costs_no_countdown(tmp_path: Path) -> None:
    """Envoy asks the next one: at the first address nobody listens."""
    async with Stack.running(
        tmp_path, slots=(1,), settings=ONE_AT_A_TIME, kind="simulator"
    ) as stack:
        dead, living = (HostPort(host, stack.http_port) for host in ("127.0.0.2", "127.0.0.1"))

        def with_both(_: str) -> str:
            options = envoy_options(load_settings(stack.config, environ={}))
            return bootstrap(replace(options, status=dead, other_status=(living,)))

        assert stack.envoy is not None
        await stack.envoy.stop()
        await stack.start_envoy(alter=with_both)
        await stack.until_ready()
        held = await stack.hold()
        call = asyncio.create_task(stack.ask(headers={"x-request-id": "my-page"}))
        await stack.until_waiting(1)
        for _ in range(10):
            asked = await stack.client.get(stack.url("/queue/my-page"))
            assert (asked.status_code, asked.json()["queue_position"]) == (200, 1)
        await held.leave()
        assert (await call).status_code == 200


@in_each_mode
async def test_a_rejection_says_to_come_back_when_the_countdown_would_end(
    mode: str, tmp_path: Path
) -> None:
    """With one, two and three in the queue, 504 for who may not wait and 429 from a full line: each
    says how long one more place would take, by the pace that those in the queue see. The wait gets
    shorter while the test goes on, so each is compared with the countdown of the same moment.
    """
    settings = {"queue": {"timeout_s": 60, "max_requests": 3}}
    async with Stack.running(
        tmp_path, slots=(1,), settings=settings, kind="simulator", mode=mode
    ) as stack:
        for _ in range(3):
            assert (await stack.ask(300)).status_code == 200
        held = await stack.hold()
        calls = []
        for number in range(1, 4):
            headers = {"x-request-id": f"in-line-{number}"}
            calls.append(asyncio.create_task(stack.ask(headers=headers)))
            await stack.until_waiting(number)

            async def is_the_same(place: int = number) -> bool:
                is_full = place == 3
                headers = {} if is_full else {"x-coxswain-queue-timeout-ms": "0"}
                rejected = await stack.ask(headers=headers)
                assert rejected.status_code == (429 if is_full else 504)
                retry_after_s = int(rejected.headers["retry-after"])
                seen = (await stack.client.get(stack.url(f"/queue/in-line-{place}"))).json()
                assert seen["queue_position"] == place
                expected_s: float = seen["expected_s"]
                next_s = expected_s * (place + 1) / place
                is_longer = retry_after_s > max(1.0, expected_s)
                return is_longer and next_s - 0.2 <= retry_after_s <= next_s + 1.2  # rounded up

            await until(is_the_same)  # what is learned is worked out again once a second
        await held.leave()
        assert [(await call).status_code for call in calls] == [200] * 3
