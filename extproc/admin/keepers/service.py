"""The keepers' service over grpc.aio: machines and the states of their models.

Each stream has a reader and a writer. A machine whose keeper is gone stays known for `FORGET_S`:
a keeper that restarts, or a picker's connection that is lost, must not turn its models into
unknown names.
"""

import asyncio
import itertools
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import grpc

from extproc.admin.attached_stream import AttachedStream
from extproc.admin.auth.peer import peer_host
from extproc.admin.call_errors import Context, invalid
from extproc.admin.handlers import handlers_of
from extproc.admin.keepers.decode import read_hello, read_status
from extproc.admin.keepers.log_stream import LogStream
from extproc.core.placement.machine import KeptMachine
from extproc.pb.coxswain.v1 import keeper_pb2 as pb

DESCRIPTOR: Final = pb.DESCRIPTOR.services_by_name["Keepers"]
SERVICE: Final[str] = DESCRIPTOR.full_name

MAX_MACHINES: Final = 1000
MAX_LOGS: Final = 32
"""Logs that are read from one machine at once."""
SIGN_OF_LIFE_S: Final = 2.0
SILENT_S: Final = 8.0
QUIET_S: Final = 3.0
"""Keepers send each second: one that has been quiet for so long may be replaced by another."""
FORGET_S: Final = 300.0
REFUSED_S: Final = 30.0
"""How long a refused keeper is reported: it asks again sooner."""

log = logging.getLogger("coxswain.keepers")


class NoKeeperError(RuntimeError):
    """The machine's keeper is not connected; `str(error)` says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepersDependencies:
    """`changed` is called with a machine that attached or whose states changed, `forgotten` with
    one that was removed. One that `may_sleep` is not removed. All are called from the event loop
    and must not raise."""

    clock: Callable[[], float]
    changed: Callable[[KeptMachine], None] = lambda _: None
    forgotten: Callable[[KeptMachine], None] = lambda _: None
    may_sleep: Callable[[str], bool] = lambda _: False


@dataclass(slots=True, eq=False)
class _Stream(AttachedStream):
    """One keeper's stream."""

    heard_at: float
    peer: str = ""
    machine: KeptMachine | None = None
    keeper_id: str = ""
    wanted: tuple[str, ...] | None = None
    pinned: tuple[str, ...] = ()
    retried: tuple[str, ...] = ()
    opened: list[pb.LogRequest] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    logs: dict[int, LogStream] = field(default_factory=dict)
    replacements: list[pb.ReplaceRequest] = field(default_factory=list)
    replacing: dict[int, asyncio.Future[pb.ReplaceResult]] = field(default_factory=dict)
    is_wanted_due: bool = False


class KeepersService:
    """`coxswain.v1.Keepers`. Belongs to one event loop; end it with `close`."""

    def __init__(self, dependencies: KeepersDependencies) -> None:
        self._dependencies = dependencies
        self._clock = dependencies.clock
        self._machines: dict[str, KeptMachine] = {}
        self._streams: dict[str, _Stream] = {}
        self._all: set[_Stream] = set()
        self._forgetting: dict[str, asyncio.TimerHandle] = {}
        self._refused: dict[str, tuple[float, str]] = {}
        """When and where a second keeper of a machine asked last."""
        self._log_ids = itertools.count(1)
        self._is_closed = False

    @property
    def machines(self) -> Mapping[str, KeptMachine]:
        """All known machines by name."""
        return self._machines

    def problems(self) -> tuple[str, ...]:
        """The machines of which a second keeper asks, as sentences."""
        now = self._clock()
        return tuple(
            f"a second keeper calls itself {name}, at {peer}: it was refused {now - at:.0f} s ago "
            "and has nothing loaded; stop it, or give it another --name"
            for name, (at, peer) in self._refused.items()
            if now - at < REFUSED_S
        )

    def add_to(self, server: grpc.aio.Server) -> None:
        """Add the service to this server."""
        server.add_generic_rpc_handlers((handlers_of(DESCRIPTOR, self),))

    def want(
        self,
        machine: str,
        models: Iterable[str],
        retried: Iterable[str] = (),
        pinned: Iterable[str] = (),
    ) -> None:
        """Say which models should be loaded there, and which of all are pinned. Without a connected
        keeper nothing is sent."""
        stream = self._streams.get(machine)
        wanted, again, kept = tuple(models), tuple(retried), tuple(pinned)
        if stream is None:
            return
        if wanted != stream.wanted or again or kept != stream.pinned:
            stream.wanted, stream.pinned = wanted, kept
            stream.retried += again
            stream.is_wanted_due = True
            stream.due.set()

    def find(self, machine: str) -> KeptMachine | None:
        """The machine as it last attached."""
        return self._machines.get(machine)

    async def replace(self, machine: str, request: pb.ReplaceRequest) -> pb.ReplaceResult:
        """Ask a keeper to replace a model's command. Takes as long as a drain and a load. Raises
        `NoKeeperError`, also if the keeper is lost meanwhile."""
        stream = self._streams.get(machine)
        if stream is None:
            raise NoKeeperError(f"the keeper of {machine} is not connected")
        id_ = next(self._log_ids)
        result: asyncio.Future[pb.ReplaceResult] = asyncio.get_running_loop().create_future()
        stream.replacing[id_] = result
        numbered = pb.ReplaceRequest()
        numbered.CopyFrom(request)
        numbered.id = id_
        stream.replacements.append(numbered)
        stream.due.set()
        try:
            return await result
        finally:
            stream.replacing.pop(id_, None)

    async def read_log(
        self, machine: str, model: str, lines: int, *, is_followed: bool
    ) -> AsyncGenerator[pb.LogLines, None]:
        """The log of a model's server. Raises `NoKeeperError`."""
        stream = self._streams.get(machine)
        if stream is None:
            raise NoKeeperError(f"the keeper of {machine} is not connected")
        if len(stream.logs) >= MAX_LOGS:
            raise NoKeeperError(f"{MAX_LOGS} logs of {machine} are read already; try again later")
        id_ = next(self._log_ids)
        request = pb.LogRequest(id=id_, model=model, lines=lines, is_followed=is_followed)
        reader = stream.logs[id_] = LogStream(id_, request)
        stream.opened.append(request)
        stream.due.set()
        try:
            async for message in reader.messages():
                yield message
        finally:
            stream.logs.pop(id_, None)
            stream.ended.append(id_)
            stream.due.set()

    def close(self) -> None:
        """End every stream: the picker shuts down."""
        self._is_closed = True
        for handle in self._forgetting.values():
            handle.cancel()
        for stream in self._all:
            stream.close(grpc.StatusCode.UNAVAILABLE, "the picker is shutting down; reconnect")

    async def Attach(  # noqa: N802  # gRPC names it
        self, messages: AsyncIterator[pb.KeeperMessage | None], context: Context
    ) -> None:
        """One keeper's stream; ends when either side leaves."""
        stream = _Stream(self._clock(), peer_host(context.peer()))
        self._all.add(stream)
        if self._is_closed:
            stream.close(grpc.StatusCode.UNAVAILABLE, "the picker is shutting down; reconnect")
        await stream.run(
            context,
            stream.read(messages, partial(self._take, stream), "KeeperMessage; see keeper.proto"),
            self._write(stream, context),
            partial(self._detach, stream),
            log,
            "a keeper",
        )

    def _take(self, stream: _Stream, message: pb.KeeperMessage) -> None:
        stream.heard_at = self._clock()
        kind = message.WhichOneof("content")
        if kind == "hello":
            if stream.machine is not None:
                raise invalid("hello: only the first message of a stream may be hello")
            self._attach(stream, message.hello)
            return
        machine = stream.machine
        if machine is None:
            raise invalid("the first message of a stream must be hello")
        if kind == "status":
            machine.statuses.update(read_status(message.status, machine, self._clock()))
            machine.has_reported = True
            self._dependencies.changed(machine)
        elif kind == "replaced":
            result = stream.replacing.get(message.replaced.id)
            if result is not None and not result.done():
                result.set_result(message.replaced)
        elif kind == "log":
            reader = stream.logs.get(message.log.id)
            if reader is not None:
                reader.receive(message.log)

    def _attach(self, stream: _Stream, hello: pb.KeeperHello) -> None:
        machine = read_hello(hello)
        known = self._machines.get(machine.name)
        if known is None and len(self._machines) >= MAX_MACHINES:
            text = f"{MAX_MACHINES} machines are known already, which is the limit"
            stream.close(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
            return
        before = self._streams.get(machine.name)
        if before is not None:
            is_quiet = self._clock() - before.heard_at > QUIET_S
            if before.keeper_id != hello.keeper_id and not is_quiet:
                self._refuse(stream, machine.name)
                return
            before.close(grpc.StatusCode.UNAVAILABLE, f"the keeper of {machine.name} is back")
        if (handle := self._forgetting.pop(machine.name, None)) is not None:
            handle.cancel()
        stream.machine, stream.keeper_id = machine, hello.keeper_id
        self._streams[machine.name] = stream
        self._machines[machine.name] = machine
        log.info("the keeper of %s attached, with %d models", machine.name, len(machine.models))
        self._dependencies.changed(machine)

    def _refuse(self, stream: _Stream, name: str) -> None:
        """Two keepers would assign one machine's memory twice."""
        text = f"another keeper of {name} is connected; stop one, or give it another --name"
        if name not in self._refused:
            log.warning("a second keeper of %s, at %s, is refused", name, stream.peer)
        self._refused[name] = self._clock(), stream.peer
        stream.close(grpc.StatusCode.ALREADY_EXISTS, text)

    def _detach(self, stream: _Stream) -> None:
        self._all.discard(stream)
        for reader in stream.logs.values():
            reader.end()
        machine = stream.machine
        for result in stream.replacing.values():
            if not result.done():
                name = "the machine" if machine is None else machine.name
                result.set_exception(NoKeeperError(f"the keeper of {name} was lost meanwhile"))
        if machine is None or self._streams.get(machine.name) is not stream:
            return
        del self._streams[machine.name]
        self._refused.pop(machine.name, None)
        machine.is_connected = False
        if self._is_closed:
            return
        log.warning("the keeper of %s is gone", machine.name)
        self._forget_later(machine)
        self._dependencies.changed(machine)

    def _forget_later(self, machine: KeptMachine) -> None:
        loop = asyncio.get_running_loop()
        self._forgetting[machine.name] = loop.call_later(FORGET_S, self._forget, machine)

    def _forget(self, machine: KeptMachine) -> None:
        self._forgetting.pop(machine.name, None)
        if self._dependencies.may_sleep(machine.name):
            self._forget_later(machine)
        elif self._machines.get(machine.name) is machine:
            del self._machines[machine.name]
            self._dependencies.forgotten(machine)

    async def _write(self, stream: _Stream, context: Context) -> None:
        while not stream.has_ended:
            stream.due.clear()
            command = pb.KeeperCommand(
                logs=stream.opened, ended_logs=stream.ended, replacements=stream.replacements
            )
            stream.opened, stream.ended, stream.replacements = [], [], []
            if stream.is_wanted_due:
                stream.is_wanted_due = False
                command.wanted.CopyFrom(
                    pb.Wanted(
                        models=stream.wanted or (), retried=stream.retried, pinned=stream.pinned
                    )
                )
                stream.retried = ()
            await context.write(command)
            with suppress(TimeoutError):
                async with asyncio.timeout(SIGN_OF_LIFE_S):
                    await stream.due.wait()
            if self._clock() - stream.heard_at > SILENT_S:
                stream.close(grpc.StatusCode.UNAVAILABLE, "no message for too long")
