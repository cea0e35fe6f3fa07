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

from aiohttp import web
from aiohttp.typedefs import Handler

from extproc.demo.simulator.options import SimulatorOptions
from extproc.demo.simulator.server import Simulator

POISON = "poisonous"


class FaultyServer(Simulator):
    """Everything but what takes a slot works as ever."""

    def __init__(self, options: SimulatorOptions) -> None:
        super().__init__(options)
        self.fault = "none"

    @web.middleware
    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        body = await request.read()
        if request.path == "/fault":
            self.fault = body.decode()
            return web.Response()
        if request.method == "POST":
            if self.fault == "error" or (self.fault == "grammar" and b'"grammar"' in body):
                return web.json_response({"error": {"code": 500, "message": "broken"}}, status=500)
            if self.fault == "reset" and request.transport is not None:
                request.transport.abort()
                return web.Response()
            if self.fault == "poison" and POISON.encode() in body:
                os._exit(1)
        return await super()._answer(request, handler)


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
