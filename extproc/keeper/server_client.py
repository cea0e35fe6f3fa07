"""What the keeper asks a llama-server of its own over HTTP."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import httpx

from extproc.core.address import Address
from extproc.keeper.command import server_command
from extproc.keeper.models_file import ModelEntry
from extproc.keeper.slot_cache import Server
from extproc.runners.transport import RunnerTransport, no_tls

READY_POLL_S: Final = 0.1
REQUEST_TIMEOUT_S: Final = 5.0
PROOF_S: Final = 120.0


class ServerClient:
    """Asks the server at `address` that runs with `entry`."""

    def __init__(self, entry: ModelEntry, address: Address) -> None:
        self._entry = entry
        self._address = address

    @property
    def api_key(self) -> str:
        """Its API key, empty without one."""
        return os.environ.get(self._entry.api_key_env or "", "").strip()

    async def until_ready(self) -> None:
        """Wait until it says that it has loaded its model."""
        async with self._session() as session:
            while True:
                with suppress(httpx.HTTPError):
                    if (await session.get("/health")).status_code == httpx.codes.OK:
                        return
                await asyncio.sleep(READY_POLL_S)

    async def until_idle(self, limit_s: float) -> None:
        """Wait until its own word is that no slot is busy, at most `limit_s`."""
        with suppress(TimeoutError, httpx.HTTPError, ValueError):
            async with asyncio.timeout(limit_s), self._session() as session:
                while True:
                    answer = await session.get("/slots")
                    slots = answer.json()
                    if answer.status_code != httpx.codes.OK or not isinstance(slots, list):
                        return  # it does not report its slots
                    if not any(isinstance(s, dict) and s.get("is_processing") for s in slots):
                        return
                    await asyncio.sleep(READY_POLL_S)

    async def prove(self) -> str | None:
        """Have it complete a prompt. What went wrong, if it did."""
        async with self._session() as session:
            return await prove(session)

    async def move_slots(self, move: Callable[[Server], Awaitable[None]]) -> None:
        """Restore or save its prompt caches: `move` is that method of their cache."""
        # Where it listens says nothing about its model.
        command = server_command(self._entry, Address.of("127.0.0.1", 1))
        async with self._session() as session:
            await move(Server(client=session, command=command, environment=self._entry.env))

    def _session(self) -> httpx.AsyncClient:
        key = self.api_key
        return httpx.AsyncClient(
            base_url=f"http://{self._address}",
            timeout=REQUEST_TIMEOUT_S,
            transport=RunnerTransport(no_tls()),
            headers={"authorization": f"Bearer {key}"} if key else {},
        )


async def prove(client: httpx.AsyncClient) -> str | None:
    """Have one token completed, or one text embedded. None if that worked, else what happened."""
    answers: list[str] = []
    for path, body in (
        ("/completion", {"prompt": "1", "n_predict": 1}),
        ("/v1/embeddings", {"input": "1"}),
    ):
        try:
            answer = await client.post(path, json=body, timeout=PROOF_S)
        except httpx.HTTPError as error:
            return f"{path}: {str(error) or type(error).__name__}"
        if answer.status_code == httpx.codes.OK:
            return None
        answers.append(f"{path} answers {answer.status_code}")
    return ", ".join(answers)
