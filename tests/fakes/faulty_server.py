"""A simulated llama-server that looks healthy and fails requests, as it is told on `POST /fault`.

none      serves
error     answers every request that takes a slot with 500, at once
reset     ends the connection of every such request, at once
grammar   answers 500 to those alone that want a grammar
poison    dies of a request whose body holds POISON
"""

from __future__ import annotations

import argparse
import asyncio
import os

from extproc.demo.simulator.http import Answer, Request
from extproc.demo.simulator.options import SimulatorOptions
from extproc.demo.simulator.server import Simulator

POISON = "poisonous"


class FaultyServer(Simulator):
    """Everything but what takes a slot works as ever."""

    def __init__(self, options: SimulatorOptions) -> None:
        super().__init__(options)
        self.fault = "none"

    async def _handle(self, request: Request) -> Answer:
        if request.path == "/fault":
            self.fault = request.body.decode()
            return Answer.of({})
        if request.method == "POST":
            if self.fault == "error" or (self.fault == "grammar" and b'"grammar"' in request.body):
                return Answer.of({"error": {"code": 500, "message": "broken"}}, 500)
            if self.fault == "reset":
                raise ConnectionAbortedError("as it was told")
            if self.fault == "poison" and POISON.encode() in request.body:
                os._exit(1)
        return await super()._handle(request)


async def _serve(options: SimulatorOptions, host: str, port: int, fault: str) -> None:
    server = FaultyServer(options)
    server.fault = fault
    await server.start(host, port)
    await asyncio.get_running_loop().create_future()


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int)
    parser.add_argument("--slots", type=int)
    parser.add_argument("--service-time", type=float)
    parser.add_argument("--fault", default="none")
    given = parser.parse_args()
    options = SimulatorOptions(
        slots=given.slots, service_time_s=given.service_time, context_tokens=16_384
    )
    asyncio.run(_serve(options, given.host, given.port, given.fault))
