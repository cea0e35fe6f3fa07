"""The processes of a run: servers, the picker and Envoy before them."""

import sys
from dataclasses import dataclass

import httpx

from bench.rig import QUIET, READY_S, Rig, until_listening
from extproc.demo.port import free_ports
from extproc.demo.process import Child
from rigs.picker_pages import Pages
from rigs.soak.clients import PATH

STAND_INS = 3
SLOTS = 4
SERVICE_S = 0.02
"""What a request takes at a server: they serve about 700 a second in all."""
SIMULATOR_SLOTS = 2
RECORDS = 1_000
"""Ended requests that the picker keeps. Their memory is full before the growth is judged."""
MESSAGE_TIMEOUT_S = 30.0
"""Envoy passes over a picker that is silent for so long: on a machine that is busy with other
things one second is no fault of the picker's, and what passes it cannot be accounted for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """What runs. `port` is Envoy's."""

    port: int
    picker: Child
    envoy: Child
    pages: Pages
    _http: httpx.AsyncClient

    async def is_ready(self) -> bool:
        """Whether the picker knows every server, and Envoy asks the picker."""
        body = {"messages": [{"role": "user", "content": "ready"}], "max_tokens": 1}
        try:
            known = (await self.pages.status())["endpoints"].values()
            answer = await self._http.post(f"http://127.0.0.1:{self.port}{PATH}", json=body)
        except httpx.HTTPError:
            return False
        return "x-coxswain-endpoint" in answer.headers and all(
            endpoint["health"] == "ready" for endpoint in known
        )


async def start(rig: Rig, client: httpx.AsyncClient) -> Stack:
    """Servers that answer after a while without work, one simulator that streams, and what is
    before them, as people run it."""
    ports = await rig.start_stand_ins(STAND_INS, SLOTS, SERVICE_S)
    simulator, http = free_ports(2)
    child = await rig.start(
        "simulator",
        [
            *(sys.executable, "-m", "extproc.demo.simulator", "--port", str(simulator)),
            *("--slots", str(SIMULATOR_SLOTS), "--service-time", str(SERVICE_S)),
            *("--alias", "tiny"),
        ],
    )
    await until_listening(child, simulator)
    settings = {**QUIET, "records": {"size": RECORDS}}
    picker, grpc = await rig.start_picker([*ports, simulator], settings, http=http)
    envoy, port = await rig.start_envoy(grpc, message_timeout_s=MESSAGE_TIMEOUT_S)
    pages = Pages(client, http)
    stack = Stack(port=port, picker=picker, envoy=envoy, pages=pages, _http=client)
    await envoy.wait_ready(stack.is_ready, timeout_s=READY_S)
    return stack
