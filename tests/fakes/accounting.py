"""Servers and clients that account for each request: who ran where, when, and in which order.

The servers keep llama-server's manners: a request over their slots waits inside, first come first
served, and `/slots` shows what runs, each task with its number. The truth is taken here, beside
both, with one clock.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import count, pairwise
from random import Random

import httpx
from aiohttp import web

from tests.fakes import quick_yaml

CHAT = "/v1/chat/completions"
NUMBER, SERVICE = "x-test-number", "x-test-service-s"
DIGEST = "x-test-digest"
"""Of a body, in hexadecimal, where a client sends it."""
READ, ROUTED = "x-test-read-at", "x-test-routed-after-ms"
OBJECTIVE = "account"
"""Of the load, where the settings have it."""
LATE_S = 0.5
"""Envoys and a busy machine swap requests that come close together."""
TOGETHER_S = 0.25
"""Requests that get free slots in one moment start within this, in any order."""


@dataclass(slots=True)
class Trace:
    """One request. Times are monotonic seconds; 0 for what did not happen."""

    number: int
    sent_at: float = 0.0
    read_at: float = 0.0
    """When Envoy read its headers, by Envoy's word: this decides its place in the queue."""
    routed_at: float = 0.0
    """When Envoy knew its server, by Envoy's word."""
    arrived_at: float = 0.0
    started_at: float = 0.0
    ended_at: float = 0.0
    freed_at: float = 0.0
    """Since when its slot had been free when it started."""
    status: int = 0
    server: int = 0
    """Its port."""
    is_named: bool = False
    """Whether its response names the endpoint: the picker has seen both its ends."""
    is_over: bool = False
    """Whether it reached a server whose slots were all busy."""
    is_spoiled: bool = False
    """Whether its server got another body than its client sent."""
    problem: str = ""

    def times(self, since: float) -> str:
        """Its times as a failed test shows them, in seconds after `since`."""
        names = ("sent", "read", "routed", "arrived", "freed", "started", "ended")
        shown = (f"{name} {getattr(self, f'{name}_at') - since:.3f}" for name in names)
        return f"{self.number} at {self.server} ({', '.join(shown)})"


@dataclass
class Account:
    """All requests of one run."""

    traces: dict[int, Trace] = field(default_factory=dict)

    def over(self) -> list[Trace]:
        """Requests that reached a server without a free slot."""
        return [one for one in self.traces.values() if one.is_over]

    def spoiled(self) -> list[Trace]:
        """Requests whose server got another body than their client sent."""
        return [one for one in self.traces.values() if one.is_spoiled]

    def blind(self, since: float) -> list[Trace]:
        """Requests that reached a server after `since` without the picker's word."""
        return [
            one for one in self.traces.values() if not one.is_named and one.arrived_at > since > 0
        ]

    def unanswered(self) -> list[Trace]:
        """Requests that were not answered with 200."""
        return [one for one in self.traces.values() if one.status != 200]

    def overtaken(self, by_s: float = LATE_S) -> list[Trace]:
        """Requests that got a slot after one that Envoy read more than `by_s` later."""
        return [one for one, _ in self._overtaken(by_s)]

    def _overtaken(self, by_s: float) -> list[tuple[Trace, Trace]]:
        """Those, each with the first that overtook it.

        After a pause all slots are free, and the first of the queue get them together: their ways
        to the servers take more and less time. So two are together if both slots were free when
        the first of them started, and the second one followed within `TOGETHER_S`.
        """
        served = sorted(
            (one for one in self.traces.values() if one.started_at), key=lambda one: one.started_at
        )
        found = []
        for index, one in enumerate(served):
            later = (other for other in served[:index] if other.read_at > one.read_at + by_s)
            overtaker = next((other for other in later if not _are_together(other, one)), None)
            if overtaker is not None:
                found.append((one, overtaker))
        return found

    def longest_pause(self, since: float) -> float:
        """The longest time after `since` in which no request got a slot, of those before the
        last one got it."""
        starts = sorted(one.started_at for one in self.traces.values() if one.started_at > since)
        return max(b - a for a, b in pairwise([since, *starts]))

    def describe(self, since: float = 0.0) -> str:
        """The numbers, and the times of some that are counted, in seconds after `since`."""
        waits = sorted(one.started_at - one.sent_at for one in self.traces.values())
        overtaken = self._overtaken(LATE_S)
        shown = [f"{one.times(since)} by {other.times(since)}" for one, other in overtaken[:3]]
        shown += [f"over {one.times(since)}" for one in self.over()[:6]]
        shown += [f"blind {one.times(since)}" for one in self.blind(since)[:6]]
        return (
            f"requests {len(self.traces)}, over {len(self.over())}, blind "
            f"{len(self.blind(since))}, overtaken {len(overtaken)}, unanswered "
            f"{len(self.unanswered())}, spoiled {len(self.spoiled())}, "
            f"longest wait {waits[-1]:.2f} s, "
            f"median {waits[len(waits) // 2]:.2f} s{''.join(f'; {each}' for each in shown)}"
        )


def _are_together(first: Trace, second: Trace) -> bool:
    was_free = second.freed_at <= first.started_at
    return was_free and second.started_at - first.started_at < TOGETHER_S


def telling_when_read(config: str) -> str:
    """Envoy's configuration, with headers that say when Envoy read a request's headers, and how
    much later it knew its server."""
    tree = quick_yaml.load(config)
    (chain,) = tree["static_resources"]["listeners"][0]["filter_chains"]
    values = {READ: "%START_TIME(%s.%6f)%", ROUTED: "%DURATION%"}
    chain["filters"][0]["typed_config"]["route_config"]["request_headers_to_add"] = [
        {
            "header": {"key": key, "value": value},
            "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
        }
        for key, value in values.items()
    ]
    return quick_yaml.dump(tree)


@dataclass(slots=True)
class _Slot:
    """`freed_at` is of the last request; 0 before the first one."""

    id: int
    task_id: int | None = None
    """Of its last request."""
    is_busy: bool = False
    freed_at: float = 0.0


class AccountingServer:
    """One server with real slots; use it as `async with`. `work` takes a request's seconds."""

    def __init__(
        self,
        account: Account,
        slots: int,
        work: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.slots = slots
        self._work = work
        self.port = 0
        self._account = account
        self._task_ids = count()
        self._all = [_Slot(index) for index in range(slots)]
        self._idle = deque(self._all)
        """The one that is idle for the longest time is first."""
        self._waiting: deque[tuple[int, asyncio.Future[_Slot]]] = deque()
        """The number of each task, and where its slot is awaited."""
        app = web.Application()
        app.router.add_get("/health", self._health)
        app.router.add_get("/props", self._props)
        app.router.add_get("/slots", self._slots)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post(CHAT, self._chat)
        self._runner = web.AppRunner(app, access_log=None)

    async def __aenter__(self) -> AccountingServer:
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _health(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _props(self, _: web.Request) -> web.Response:
        return web.json_response(
            {
                "total_slots": self.slots,
                "model_alias": "fake",
                "model_path": "fake.gguf",
                "build_info": "b1",
                "endpoint_slots": True,
                "media_marker": f"<{self.port}>",
            }
        )

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "fake"}]})

    async def _slots(self, _: web.Request) -> web.Response:
        return web.json_response(
            [
                {"id": slot.id, "n_ctx": 4096, "is_processing": slot.is_busy}
                | ({} if slot.task_id is None else {"id_task": slot.task_id})
                for slot in self._all
            ]
        )

    async def _chat(self, request: web.Request) -> web.Response:
        number = request.headers.get(NUMBER)
        trace = self._account.traces.get(int(number)) if number else None
        if trace is None:
            trace = Trace(-1)  # a test's own request, to see that all is ready
        digest = sha256(await request.read()).hexdigest()
        trace.is_spoiled = request.headers.get(DIGEST, digest) != digest
        trace.arrived_at, trace.server = time.monotonic(), self.port
        trace.read_at = trace.arrived_at - (time.time() - float(request.headers[READ]))
        trace.routed_at = trace.read_at + float(request.headers.get(ROUTED, "0")) / 1000
        task_id = next(self._task_ids)
        if self._idle:
            slot = self._idle.popleft()
            slot.task_id, slot.is_busy = task_id, True
        else:
            trace.is_over = True
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append((task_id, turn))
            slot = await turn
        trace.freed_at = slot.freed_at
        trace.started_at = time.monotonic()
        try:
            await self._work(float(request.headers.get(SERVICE, "0")))
        finally:
            trace.ended_at = slot.freed_at = time.monotonic()
            if self._waiting:
                slot.task_id, turn = self._waiting.popleft()
                turn.set_result(slot)
            else:
                slot.is_busy = False
                self._idle.append(slot)
        usage = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
        return web.json_response({"choices": [{"message": {"content": "on"}}], "usage": usage})


async def load(
    account: Account,
    url: str | Sequence[str],
    *,
    rate: float,
    mean_s: float,
    length_s: float,
    seed: int,
    halfway: Callable[[], Awaitable[None]],
) -> None:
    """Poisson arrivals for `length_s`, with exponential service times; calls `halfway` in the
    middle, and returns when all are answered or failed. Several URLs take turns."""
    random = Random(seed)
    urls = [url] if isinstance(url, str) else list(url)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    tasks: list[asyncio.Future[None]] = []
    async with httpx.AsyncClient(timeout=60, limits=limits) as client:
        begin = time.monotonic()
        at, number, is_halfway = 0.0, 0, False
        while at < length_s:
            at += random.expovariate(rate)
            number += 1
            await asyncio.sleep(max(0.0, begin + at - time.monotonic()))
            if not is_halfway and at >= length_s / 2:
                is_halfway = True
                tasks.append(asyncio.ensure_future(halfway()))
            service_s = min(4 * mean_s, random.expovariate(1 / mean_s))
            trace = account.traces[number] = Trace(number)
            tasks.append(
                asyncio.create_task(_ask(client, urls[number % len(urls)], trace, service_s))
            )
        await asyncio.gather(*tasks)


async def _ask(client: httpx.AsyncClient, url: str, trace: Trace, service_s: float) -> None:
    trace.sent_at = time.monotonic()
    headers = {
        NUMBER: str(trace.number),
        SERVICE: f"{service_s:.4f}",
        "x-gateway-inference-objective": OBJECTIVE,
    }
    body = {"messages": [{"role": "user", "content": "row"}], "max_tokens": 1}
    try:
        answer = await client.post(url, json=body, headers=headers)
    except httpx.TransportError as error:
        trace.problem = repr(error)
        return
    trace.status = answer.status_code
    trace.is_named = "x-coxswain-endpoint" in answer.headers
    if answer.status_code != 200:
        trace.problem = answer.text[:200]
