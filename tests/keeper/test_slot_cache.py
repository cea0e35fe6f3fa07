"""Claims about extproc/keeper/slot_cache.py, over real llama-servers where they are built.

What a server answers when something is wrong comes from a stand-in.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from extproc.demo.llama_server import find_llama_server
from extproc.demo.model import ModelShape, write_model
from extproc.demo.port import free_ports
from extproc.demo.process import Children
from extproc.keeper.slot_cache import Server, SlotCache
from extproc.keeper.slot_store import SlotStore

SLOTS = 2
PROMPT = "row the boat " * 100


@pytest.fixture
def llama() -> None:
    if find_llama_server() is None:
        pytest.skip("no llama-server: run `make llama`")


class Kit:
    """A model with its folder of slots, and what was said about them."""

    def __init__(self, folder: Path) -> None:
        self.said: list[str] = []
        self.store = SlotStore(folder / "slots", "gpu-1", 100)
        self.store.open()
        self.cache = SlotCache(self.store, "m", self.said.append)
        self.model = folder / "m.gguf"

    def write(self, seed: int) -> None:
        write_model(self.model, ModelShape(embedding=64, layers=2, seed=seed))

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Server]:
        """A new llama-server, its slots restored, and saved in the end."""
        (port,) = free_ports(1)
        binary = find_llama_server()
        assert binary is not None
        command = [str(binary), "-m", str(self.model), "-np", str(SLOTS), "-c", "16384", "-t", "1"]
        here = ["--port", str(port), "--slot-save-path", self.cache.make_folder()]
        async with (
            Children(self.model.parent) as children,
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client,
        ):
            child = await children.start(f"server-{port}", [*command, *here])

            async def is_ready() -> bool:
                try:
                    return (await client.get("/health")).status_code == 200
                except httpx.TransportError:
                    return False

            await child.wait_ready(is_ready, timeout_s=60)
            server = Server(client=client, command=command, environment={})
            await self.cache.restore(server)
            yield server
            await self.cache.save(server)


async def reused(server: Server, prompt: str = PROMPT) -> int:
    """How many tokens of the prompt an answer did not have to read."""
    body = {"prompt": prompt, "n_predict": 4}
    answer = await server.client.post("/completion", json=body)
    assert answer.status_code == 200, answer.text
    return int(answer.json()["timings"]["cache_n"])


@pytest.mark.llama
async def test_conversations_go_on_after_a_restart(llama: None, tmp_path: Path) -> None:
    """Both of them, without reading their prompts again."""
    kit = Kit(tmp_path)
    kit.write(seed=1)
    other = "a different song " * 80
    async with kit.serving() as server:
        assert await reused(server) == await reused(server, other) == 0
    assert any(text.startswith("saved 2 slots") for text in kit.said), kit.said
    async with kit.serving() as server:
        assert await reused(server, f"{PROMPT} again") > 1000
        assert await reused(server, f"{other} again") > 1000
    assert any(text.startswith("restored 2 slots") for text in kit.said), kit.said
    files = list(kit.store.folder.rglob("*.bin"))
    assert len(files) == SLOTS, "the older ones of this machine are gone"
    assert all(path.stat().st_mode & 0o077 == 0 for path in kit.store.folder.rglob("*"))


@pytest.mark.llama
async def test_another_model_of_the_same_shape_gets_no_slot(llama: None, tmp_path: Path) -> None:
    """llama-server itself takes the file: the identity is checked here."""
    kit = Kit(tmp_path)
    kit.write(seed=1)
    async with kit.serving() as server:
        await reused(server)
    (file,) = [path.name for path in kit.store.folder.rglob("*.bin")]
    kit.write(seed=2)
    async with kit.serving() as server:
        assert await reused(server) == 0
        trap = await server.client.post("/slots/0?action=restore", json={"filename": file})
        assert trap.status_code == 200, "the trap: nonsense, without an error"
    assert not any(text.startswith("restored") for text in kit.said), kit.said


class StandIn:
    """Answers as a llama-server does, but for what a test changes."""

    def __init__(self, model: Path) -> None:
        model.write_bytes(b"weights")
        self.folder: Path | None = None
        self.reuses = True
        self.restored = 512
        self.saved = {"n_saved": 512, "n_written": 1000}
        self.requests: list[str] = []
        self.answers: dict[str, Any] = {
            "/props": {
                "model_path": str(model),
                "total_slots": 1,
                "default_generation_settings": {"n_ctx": 4096},
            },
            "/v1/models": {"data": [{"meta": {"n_vocab": 300}}]},
            "/lora-adapters": [],
            "/slots": [{"id": 0, "n_ctx": 4096, "is_processing": False}],
        }

    def server(self) -> Server:
        transport = httpx.MockTransport(self._answer)
        client = httpx.AsyncClient(transport=transport, base_url="http://server")
        return Server(client=client, command=["llama-server"], environment={})

    def _answer(self, request: httpx.Request) -> httpx.Response:
        path, action = request.url.path, request.url.params.get("action", "")
        self.requests.append(action or path)
        body = json.loads(request.content) if request.content else {}
        if path == "/completion":
            is_known = self.reuses and len(body["prompt"]) > 512
            timings = {"cache_n": 511 if is_known else 0, "prompt_n": 512, "prompt_ms": 5000.0}
            return httpx.Response(200, json={"timings": timings})
        if action == "save":
            assert self.folder is not None
            (self.folder / body["filename"]).write_bytes(b"x" * 1000)
            timings = {"save_ms": 1.0}
            return httpx.Response(200, json={**self.saved, "timings": timings})
        if action == "restore":
            timings = {"restore_ms": 1.0}
            return httpx.Response(200, json={"n_restored": self.restored, "timings": timings})
        answer = self.answers.get(path, {})
        return httpx.Response(200, json=answer) if answer is not None else httpx.Response(404)


async def stand_in(tmp_path: Path) -> tuple[Kit, StandIn]:
    kit = Kit(tmp_path)
    server = StandIn(tmp_path / "m.gguf")
    server.folder = kit.store.folder_of("m")
    return kit, server


async def test_a_model_that_reuses_nothing_is_given_up(tmp_path: Path) -> None:
    """Hybrid models restore a slot and read the whole prompt again: they are tried once."""
    kit, server = await stand_in(tmp_path)
    server.reuses = False
    for _ in range(2):
        await kit.cache.restore(server.server())
        await kit.cache.save(server.server())
    assert kit.said == ["slots are not saved: this model does not reuse a restored one"] * 2
    assert server.requests.count("save") == 1 and not list(kit.store.folder.rglob("*.bin"))


@pytest.mark.parametrize(
    ("path", "answer", "reason"),
    [
        ("/props", None, "/props answers 404"),
        ("/props", {"model_path": "/nowhere.gguf"}, "nothing proves it"),
        ("/lora-adapters", [{"id": 0}], "it has LoRA adapters"),
        ("/v1/models", {"data": [{"meta": None}]}, "no vocabulary"),
    ],
)
async def test_a_server_that_cannot_be_proved_is_left_alone(
    path: str, answer: Any, reason: str, tmp_path: Path
) -> None:
    """And nothing fails: it serves without a cache."""
    kit, server = await stand_in(tmp_path)
    server.answers[path] = answer
    await kit.cache.restore(server.server())
    await kit.cache.save(server.server())
    assert len(kit.said) == 1 and reason in kit.said[0], kit.said
    assert not {"save", "restore"} & set(server.requests)


async def test_an_answer_in_another_form_costs_only_the_cache(tmp_path: Path) -> None:
    kit, server = await stand_in(tmp_path)
    server.saved = {}
    await kit.cache.restore(server.server())
    reason = "its answer has an unknown form (KeyError: 'n_written')"
    assert kit.said == [f"slots are not saved: {reason}"]


async def test_a_restore_that_fails_leaves_an_empty_slot_and_no_file(tmp_path: Path) -> None:
    kit, server = await stand_in(tmp_path)
    await kit.cache.restore(server.server())
    await kit.cache.save(server.server())
    assert len(list(kit.store.folder.rglob("*.bin"))) == 1
    server.restored = 7
    server.requests.clear()
    await kit.cache.restore(server.server())
    assert server.requests[-2:] == ["restore", "erase"]
    assert not list(kit.store.folder.rglob("*.bin"))


async def test_a_slot_that_is_not_worth_its_bytes_or_busy_is_not_kept(tmp_path: Path) -> None:
    kit, server = await stand_in(tmp_path)
    await kit.cache.restore(server.server())
    server.answers["/slots"] = [{"id": 0, "n_ctx": 4096, "is_processing": True}]
    await kit.cache.save(server.server())
    assert server.requests.count("save") == 1, "the trial's"
    assert not list(kit.store.folder.rglob("*.bin"))


async def test_a_cancelled_save_leaves_no_record(tmp_path: Path) -> None:
    """The keeper ends: what was being written is no saved slot."""
    kit, server = await stand_in(tmp_path)
    await kit.cache.restore(server.server())
    task = asyncio.create_task(kit.cache.save(server.server()))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert not list(kit.store.folder.rglob("*.json"))
