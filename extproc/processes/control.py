"""The channel between the supervisor and one of its processes: messages and open sockets.

Each message is one packet of JSON; sockets travel with it. The kernel ends the channel with either
process, so each side learns at once that the other is gone.
"""

import asyncio
import json
import logging
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

PACKET_BYTES: Final = 256 * 1024
PART_BYTES: Final = 128 * 1024
MAX_SOCKETS: Final = 2

Message = dict[str, Any]

log = logging.getLogger("coxswain.processes")


def in_parts(
    entries: Mapping[str, str | None],
) -> Iterator[tuple[bool, bool, dict[str, str | None]]]:
    """Entries in parts that fit into a message: whether it is the first, the last, and the part.
    There is at least one."""
    part: dict[str, str | None] = {}
    is_first, size = True, 0
    for key, text in entries.items():
        more = len(json.dumps((key, text)))
        if part and size + more > PART_BYTES:
            yield is_first, False, part
            part, is_first, size = {}, False, 0
        part[key] = text
        size += more
    yield is_first, True, part


def channel() -> tuple[socket.socket, socket.socket]:
    """Two connected ends. No file is left behind by them."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


class Control:
    """One end. `hear` gets each message and the sockets that came with it; `closed` is called
    once, when the other end is gone. Belongs to one event loop."""

    def __init__(
        self,
        end: socket.socket,
        hear: Callable[[Message, list[socket.socket]], None],
        closed: Callable[[], None],
    ) -> None:
        end.setblocking(False)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * PACKET_BYTES)
        self._end = end
        self._hear = hear
        self._closed = closed
        self._is_open = True
        asyncio.get_running_loop().add_reader(end.fileno(), self._read)

    def send(self, message: Mapping[str, Any], *sockets: socket.socket) -> bool:
        """Send it, and close our copies of the sockets. Returns whether it was sent: not if the
        other end is gone, or has not read for long."""
        is_sent = False
        if self._is_open:
            data = json.dumps(message).encode()
            try:
                if sockets:
                    socket.send_fds(self._end, [data], [each.fileno() for each in sockets])
                else:
                    self._end.send(data)
                is_sent = True
            except (BlockingIOError, BrokenPipeError, ConnectionResetError):
                pass
        for each in sockets:
            each.close()
        return is_sent

    def close(self) -> None:
        """Close it; nothing is heard any more."""
        if self._is_open:
            self._is_open = False
            asyncio.get_running_loop().remove_reader(self._end.fileno())
            self._end.close()

    def _read(self) -> None:
        while self._is_open:
            try:
                data, descriptors, _, _ = socket.recv_fds(self._end, PACKET_BYTES, MAX_SOCKETS)
            except BlockingIOError:
                return
            except ConnectionResetError:
                data, descriptors = b"", []
            sockets = [socket.socket(fileno=each) for each in descriptors]
            if not data:
                self.close()
                self._closed()
                return
            try:
                self._hear(json.loads(data), sockets)
            except Exception:
                log.exception("a message between the processes failed")
