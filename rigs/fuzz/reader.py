"""Bytes as decisions: what a structured target does is read off them, and no bytes are wrong."""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Reader:
    """Takes decisions off the front; at the end of the bytes each is the first possible one."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def number(self, limit: int) -> int:
        """A number from 0 to `limit` - 1, at most 256 of them."""
        if not self:
            return 0
        self._at += 1
        return self._data[self._at - 1] % limit

    def flag(self) -> bool:
        return self.number(2) == 1

    def choice(self, options: Sequence[T]) -> T:
        return options[self.number(len(options))]

    def some(self) -> bytes:
        """Up to 65,535 bytes, after their length."""
        size = self.number(256) | (self.number(256) << 8)
        return self.take(size)

    def few(self) -> bytes:
        """Up to 255 bytes."""
        return self.take(self.number(256))

    def text(self) -> str:
        return self.few().decode("utf-8", "replace")

    def rest(self) -> bytes:
        return self.take(len(self._data))

    def take(self, size: int) -> bytes:
        """The next bytes, or what is left."""
        found = self._data[self._at : self._at + size]
        self._at += len(found)
        return found
