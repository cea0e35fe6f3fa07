"""What the picker says about requests, and what must be gone once there are none."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import httpx

CORRECTIONS = "coxswain_audit_corrections_total"
POLL_S = 0.2
T = TypeVar("T")


class Pages:
    """The pages of one picker. The methods raise `httpx.HTTPError` without an answer."""

    def __init__(self, http: httpx.AsyncClient, port: int) -> None:
        self._http = http
        self._url = f"http://127.0.0.1:{port}"

    async def status(self) -> dict[str, Any]:
        """Of the member that leads, with the endpoints by address. Raises `ValueError` for an
        answer that is cut."""
        status: dict[str, Any] = (await self._get("/status")).json()
        return status | {"endpoints": {one["address"]: one for one in status["endpoints"]}}

    async def is_ready(self) -> bool:
        """Whether it leads or stands by, by its own word."""
        try:
            return (await self._get("/readyz")).status_code == 200
        except httpx.HTTPError:
            return False

    async def metrics(self) -> dict[str, float]:
        """Every sample of its metrics by its name and labels."""
        text = (await self._get("/metrics")).text
        pairs = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, _, value in pairs if name}

    async def metric(self, name: str) -> float | None:
        """The sum of a metric's samples; None where there is none."""
        samples = (await self.metrics()).items()
        found = [value for key, value in samples if key.partition("{")[0] == name]
        return sum(found) if found else None

    async def _get(self, path: str) -> httpx.Response:
        return await self._http.get(self._url + path)


def unsettled(status: Mapping[str, Any]) -> dict[str, int]:
    """Numbers by name that must all be 0 at rest, from `Pages.status`."""
    numbers = {
        "exchanges": status["exchanges"],
        "queued tickets": status["queue"]["queued"],
        "running requests": status["running"],
    }
    for address, endpoint in status["endpoints"].items():
        for kind in ("leased", "foreign"):
            numbers[f"{kind} slots of {address}"] = endpoint["slots"][kind]
    return numbers


async def until_none(find: Callable[[], Awaitable[list[T]]], give_up_at: float) -> list[T]:
    """Wait until nothing is left, until that monotonic time at most; what is left then."""
    while left := await find():
        if time.monotonic() > give_up_at:
            break
        await asyncio.sleep(POLL_S)
    return left
