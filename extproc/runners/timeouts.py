"""How long each step of a request to a server may take."""

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """In seconds. `slots_read_s` is for /slots alone, which waits for a decode step; everything
    else is answered at once by a server that is well."""

    connect_s: float = 1.0
    read_s: float = 3.0
    write_s: float = 2.0
    pool_s: float = 2.0
    slots_read_s: float = 30.0

    def __post_init__(self) -> None:
        for each in fields(self):
            if getattr(self, each.name) <= 0:
                raise ValueError(
                    f"{each.name} must be greater than 0, not {getattr(self, each.name)}"
                )

    @property
    def overhead_s(self) -> float:
        """The longest time until the request is sent."""
        return self.connect_s + self.write_s + self.pool_s

    def answer_s(self, path: str) -> float:
        """The longest time from there until the answer to that path, with or without a query."""
        return self.slots_read_s if path.partition("?")[0] == "/slots" else self.read_s

    def steps(self, path: str) -> dict[str, float]:
        """Those of a request to that path, as httpx names them."""
        return {
            "connect": self.connect_s,
            "read": self.answer_s(path),
            "write": self.write_s,
            "pool": self.pool_s,
        }
