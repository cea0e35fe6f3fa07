"""What the picker's status page says is left of requests, once there are none."""

from collections.abc import Mapping
from typing import Any


def open_books(status: Mapping[str, Any]) -> dict[str, int]:
    """Numbers by name that must all be 0 at rest, from the JSON of `/status`."""
    numbers = {
        "exchanges": status["exchanges"],
        "queued tickets": status["queue"]["queued"],
        "running requests": status["running"],
    }
    for address, endpoint in status["endpoints"].items():
        for kind in ("leased", "foreign"):
            numbers[f"{kind} slots of {address}"] = endpoint["slots"][kind]
    return numbers
