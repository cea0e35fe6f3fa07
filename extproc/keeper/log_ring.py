"""The last lines that a server printed, and the readers that follow it."""

from collections import deque
from collections.abc import Callable
from typing import Final

MAX_LINES: Final = 2000
MAX_LINE_CHARS: Final = 2000
MAX_BEHIND: Final = 1000
"""A reader that is more lines behind than this loses the oldest of them."""


class LogReader:
    """One reader of a log. `take` returns what is new; `notify` is called when there is more."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = deque(lines)
        self._dropped = 0
        self.notify: Callable[[], None] = lambda: None

    @property
    def has_lines(self) -> bool:
        """Whether `take` would return a line."""
        return bool(self._lines)

    def add(self, line: str) -> None:
        """A line was printed."""
        self._lines.append(line)
        if len(self._lines) > MAX_BEHIND + MAX_LINES:
            self._lines.popleft()
            self._dropped += 1
        self.notify()

    def take(self, max_lines: int) -> tuple[list[str], int]:
        """The oldest lines that were not taken, and how many were lost before them."""
        count = min(max_lines, len(self._lines))
        lines = [self._lines.popleft() for _ in range(count)]
        dropped, self._dropped = self._dropped, 0
        return lines, dropped


class LogRing:
    """Keeps `MAX_LINES` lines. Belongs to one event loop."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=MAX_LINES)
        self._readers: set[LogReader] = set()
        self._rest = b""

    def feed(self, chunk: bytes) -> None:
        """Bytes that the server wrote; lines may be cut anywhere."""
        *complete, self._rest = (self._rest + chunk).split(b"\n")
        for raw in complete:
            self.add(raw.decode(errors="replace").rstrip("\r"))
        if len(self._rest) > 4 * MAX_LINE_CHARS:
            self.end()

    def end(self) -> None:
        """The server ended: what it wrote last is a line, too."""
        if self._rest:
            rest, self._rest = self._rest, b""
            self.add(rest.decode(errors="replace"))

    def add(self, line: str) -> None:
        """Add one line; a long one is cut."""
        line = line[:MAX_LINE_CHARS]
        self._lines.append(line)
        for reader in self._readers:
            reader.add(line)

    def tail(self, lines: int) -> list[str]:
        """The last lines."""
        return list(self._lines)[-lines:] if lines > 0 else []

    def follow(self, lines: int) -> LogReader:
        """A reader of the last lines and of all further ones, until `leave`."""
        reader = LogReader(self.tail(lines))
        self._readers.add(reader)
        return reader

    def leave(self, reader: LogReader) -> None:
        """The reader reads no more; no error if it left before."""
        self._readers.discard(reader)
