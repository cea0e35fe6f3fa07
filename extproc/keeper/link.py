"""The keeper's stream to the picker: states and logs out, the wanted models in."""

import asyncio
import logging
import random as random_numbers
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import grpc

from extproc.keeper.command import slot_context
from extproc.keeper.log_ring import LogReader
from extproc.keeper.machine import Machine
from extproc.keeper.replacer import Replaced, Replacer
from extproc.pb.coxswain.v1 import keeper_pb2 as pb
from extproc.pb.coxswain.v1.keeper_pb2_grpc import KeepersStub
from scraper.agent.picker_stream import (
    PICKER_SILENT_S,
    Attempts,
    LinkError,
    Metadata,
    received,
    run_stream,
)

HEARTBEAT_S: Final = 1.0
LOG_LINES: Final = 200
"""Lines of a log in one message at most."""
MAX_LOG_REQUESTS: Final = 32

log = logging.getLogger("coxswain.keeper")

Call = grpc.aio.StreamStreamCall[pb.KeeperMessage, pb.KeeperCommand]


@dataclass(slots=True, eq=False)
class _Log:
    """One reader's request for a log."""

    id: int
    model: str
    reader: LogReader
    is_followed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkOptions:
    """`picker` is host:port, for messages. The metadata (a bearer token) is shown nowhere."""

    picker: str
    version: str
    metadata: Metadata = field(default=(), repr=False)


class KeeperLink:
    """Connects again until it is cancelled. Belongs to one event loop."""

    def __init__(
        self,
        machine: Machine,
        options: LinkOptions,
        connect: Callable[[], grpc.aio.Channel],
        replacer: Replacer | None = None,
        clock: Callable[[], float] = time.monotonic,
        random: Callable[[], float] = random_numbers.random,
    ) -> None:
        self.options = options
        self._machine = machine
        self._connect = connect
        self._clock = clock
        self._attempts = Attempts(log, clock, random)
        self._id = uuid.uuid4().hex
        self._due = asyncio.Event()
        self._is_status_due = True
        self._logs: dict[int, _Log] = {}
        self._replacer = replacer
        self._replacing: set[asyncio.Task[None]] = set()
        self._results: list[pb.ReplaceResult] = []
        self._pinned: tuple[str, ...] = ()
        """The models that the picker reported as pinned; the next picker gets them from here."""
        self._renewed = asyncio.Event()

    def changed(self) -> None:
        """The state of a model changed: report it."""
        self._is_status_due = True
        self._due.set()

    def models_changed(self) -> None:
        """The models of the machine are others now: introduce it to the picker again."""
        self._renewed.set()

    async def run(self) -> None:
        """Report and obey, over one stream after another."""
        while True:
            self._attempts.begin()
            try:
                await self._attach()
            except LinkError as error:
                if error.is_taken:
                    self._machine.want(())  # another keeper assigns this machine's memory
                self._attempts.failed(self.options.picker, str(error))
                await asyncio.sleep(self._attempts.pause_s(is_rejected=error.is_rejection))

    async def _attach(self) -> None:
        """One stream. Returns when the machine has other models; raises `LinkError`."""
        self._renewed.clear()
        channel = self._connect()
        try:
            call: Call = KeepersStub(channel).Attach(metadata=self.options.metadata)
            try:
                await run_stream(call, self._read(call), self._write(call), self._other_models())
            finally:
                for one in self._logs.values():
                    self._leave(one)
                self._logs.clear()
            if not self._renewed.is_set():
                raise LinkError("the picker ended the stream")
        finally:
            await channel.close()

    # From the picker

    async def _read(self, call: Call) -> None:
        async for command in received(call, PICKER_SILENT_S, PICKER_SILENT_S):
            self._attempts.connected(self.options.picker)
            self._obey(command)

    async def _other_models(self) -> None:
        await self._renewed.wait()

    def _obey(self, command: pb.KeeperCommand) -> None:
        if command.HasField("wanted"):
            self._pinned = tuple(command.wanted.pinned)
            self._machine.want(command.wanted.models, command.wanted.retried)
        for request in command.logs:
            self._open(request)
        for replacement in command.replacements:
            task = asyncio.create_task(self._replace(replacement))
            self._replacing.add(task)
            task.add_done_callback(self._replacing.discard)
        for id_ in command.ended_logs:
            if (one := self._logs.pop(id_, None)) is not None:
                self._leave(one)

    async def _replace(self, request: pb.ReplaceRequest) -> None:
        if self._replacer is None:
            found = Replaced(problem="this keeper replaces nothing")
        elif request.is_revert:
            found = await self._replacer.revert(request.model)
        else:
            memory_mb = request.memory_mb if request.HasField("memory_mb") else None
            found = await self._replacer.replace(
                request.model, request.cmd, memory_mb, must_load=request.must_load
            )
        self._results.append(
            pb.ReplaceResult(id=request.id, problem=found.problem, is_proved=found.is_proved)
        )
        self._due.set()

    def _open(self, request: pb.LogRequest) -> None:
        server = self._machine.servers.get(request.model)
        if server is None or len(self._logs) >= MAX_LOG_REQUESTS or request.id in self._logs:
            return
        reader = server.log.follow(request.lines)
        reader.notify = self._due.set
        self._logs[request.id] = _Log(request.id, request.model, reader, request.is_followed)
        self._due.set()

    def _leave(self, one: _Log) -> None:
        server = self._machine.servers.get(one.model)
        if server is not None:
            server.log.leave(one.reader)

    # To the picker

    async def _write(self, call: Call) -> None:
        hello = self._hello()
        await call.write(pb.KeeperMessage(hello=hello))
        self._is_status_due = True
        while True:
            self._due.clear()
            if self._is_status_due:
                self._is_status_due = False
                await call.write(pb.KeeperMessage(status=self._status()))
            else:
                await call.write(pb.KeeperMessage())
            await self._write_logs(call)
            while self._results:
                await call.write(pb.KeeperMessage(replaced=self._results.pop(0)))
            if not self._replacing and list(hello.models) != list(self._hello().models):
                # A stream says once what the models are: begin another one, when the picker has
                # read this one to its end.
                await call.done_writing()
                await asyncio.sleep(PICKER_SILENT_S)
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_S):
                    await self._due.wait()

    async def _write_logs(self, call: Call) -> None:
        for one in list(self._logs.values()):
            while one.id in self._logs:
                lines, dropped = one.reader.take(LOG_LINES)
                is_last = not one.is_followed and not one.reader.has_lines
                if not lines and not is_last:
                    break
                message = pb.LogLines(id=one.id, lines=lines, dropped=dropped, is_last=is_last)
                await call.write(pb.KeeperMessage(log=message))
                if is_last:
                    self._leave(self._logs.pop(one.id, one))

    def _hello(self) -> pb.KeeperHello:
        machine = self._machine
        return pb.KeeperHello(
            machine=machine.name,
            keeper_id=self._id,
            version=self.options.version,
            memory_mb=machine.memory_mb,
            pinned=self._pinned,
            models=[
                pb.KeptModel(
                    name=name,
                    aliases=server.entry.aliases,
                    slots=server.entry.slots,
                    context_tokens=slot_context(server.entry),
                    memory_mb=server.entry.memory_mb,
                    ttl_s=server.entry.ttl_s,
                    exclusive_with=sorted(machine.excluded_by(name)),
                    address=str(server.address),
                    is_preloaded=server.entry.preload,
                )
                for name, server in machine.servers.items()
            ],
        )

    def _status(self) -> pb.KeeperStatus:
        now = self._clock()
        waiting = set(self._machine.waiting)
        statuses = (server.status for server in self._machine.servers.values())
        return pb.KeeperStatus(
            models=[
                pb.KeeperStatus.Model(
                    name=one.name,
                    state=f"STATE_{'WAITING' if one.name in waiting else one.state.name}",
                    state_age_s=max(0.0, now - one.since),
                    load_s=one.load_s,
                    exits=one.exits,
                    problem=one.problem,
                    detail=one.detail,
                )
                for one in statuses
            ]
        )
