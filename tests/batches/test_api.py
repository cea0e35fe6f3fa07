"""Claims about extproc/batches/api.py, over HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from extproc.batches.api import BatchApi
from extproc.batches.store import BatchStore
from extproc.security.known_keys import KnownKey, KnownKeys, digest_of
from tests.batches.test_store import CHAT, content

KEYS = KnownKeys({digest_of("key-a"): "ann", digest_of("key-b"): "bob"})


@dataclass
class Api:
    """A client with a key, and what the server told the runner."""

    client: httpx.AsyncClient
    store: BatchStore
    news: int = 0
    ended: list[str] = field(default_factory=list)

    async def upload(
        self, text: bytes = b"", purpose: str = "batch", **more: Any
    ) -> httpx.Response:
        files = {"file": ("in.jsonl", text or content(2))}
        return await self.client.post("/v1/files", files=files, data={"purpose": purpose}, **more)

    async def submit(self, **other: Any) -> httpx.Response:
        file = (await self.upload()).json()["id"]
        body = {"input_file_id": file, "endpoint": CHAT, "completion_window": "24h", **other}
        return await self.client.post("/v1/batches", json=body)


@asynccontextmanager
async def serving(folder: Path, max_bytes: int = 1000, total: int = 100_000) -> AsyncIterator[Api]:
    store = BatchStore(folder / "batches.db", total)

    async def in_store(call: Callable[..., Any], *args: Any, **named: Any) -> Any:
        return call(*args, **named)

    def who_asks(authorization: str, api_key: str) -> KnownKey | None:
        key = KEYS.find(authorization, api_key)
        return key if key.client else None

    def on_new() -> None:
        api.news += 1

    server = BatchApi(
        store,
        in_store,
        who_asks,
        on_new=on_new,
        on_ended=lambda batch: api.ended.append(batch),  # noqa: PLW0108  # `api` comes later
        max_file_bytes=max_bytes,
    )
    port = await server.start("127.0.0.1", 0)
    headers = {"authorization": "Bearer key-a"}
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60
    ) as client:
        api = Api(client, store)
        try:
            yield api
        finally:
            await server.stop()
            store.close()


async def test_files_and_batches(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        file = (await api.upload()).json()
        assert file["object"] == "file" and file["filename"] == "in.jsonl"
        got = await api.client.get(f"/v1/files/{file['id']}/content")
        assert got.content == content(2) and file["bytes"] == len(got.content)
        made = (await api.submit(metadata={"team": "a"}, completion_window="7d")).json()
        assert made["status"] == "in_progress" and api.news == 1
        assert made["expires_at"] - made["created_at"] == 7 * 86_400
        stored = api.store.batch("ann", made["id"], 0.0)
        assert stored is not None and stored.key == digest_of("key-a")[:12], "its id, no key"
        listed = (await api.client.get("/v1/batches", params={"limit": "1"})).json()
        assert [one["id"] for one in listed["data"]] == [made["id"]] and not listed["has_more"]
        files = (await api.client.get("/v1/files", params={"limit": "1"})).json()
        assert files["has_more"]
        after = {"after": files["last_id"], "purpose": "batch"}
        rest = (await api.client.get("/v1/files", params=after)).json()
        assert len(rest["data"]) == 1
        used = await api.client.delete(f"/v1/files/{made['input_file_id']}")
        assert used.status_code == 409
        ended = (await api.client.post(f"/v1/batches/{made['id']}/cancel")).json()
        assert ended["status"] == "cancelled" and api.ended == [made["id"]]
        gone = await api.client.delete(f"/v1/files/{made['input_file_id']}")
        assert gone.json()["deleted"]


async def test_text_that_is_no_unicode_is_no_bug(tmp_path: Path) -> None:
    """Halves of characters as JSON can write them, and names of files in other encodings."""
    async with serving(tmp_path) as api:
        body = b'{"input_file_id": "\\ud800", "endpoint": "/v1/chat/completions"}'
        made = await api.client.post("/v1/batches", content=body)
        assert made.json()["error"]["code"] == "invalid_file"
        form = (
            b'--x\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--x\r\n'
            b'Content-Disposition: form-data; name="file"; filename="\xfc.jsonl"\r\n\r\n'
            + content(1).replace(b"line-0", b"\\ud800")
            + b"\r\n--x--\r\n"
        )
        headers = {"content-type": "multipart/form-data; boundary=x"}
        sent = await api.client.post("/v1/files", content=form, headers=headers)
        assert sent.json()["filename"] == "?.jsonl"
        batch = {"input_file_id": sent.json()["id"], "endpoint": CHAT}
        made = await api.client.post("/v1/batches", json=batch)
        assert made.status_code == 200, made.text


async def test_nobody_sees_what_is_anothers(tmp_path: Path) -> None:
    """With a key of another client it is as if nothing were there; without one, 401."""
    async with serving(tmp_path) as api:
        made = (await api.submit()).json()
        batch, file = f"/v1/batches/{made['id']}", f"/v1/files/{made['input_file_id']}"
        bob = {"authorization": "Bearer key-b"}
        for method, path in (
            ("GET", batch),
            ("POST", f"{batch}/cancel"),
            ("GET", file),
            ("GET", f"{file}/content"),
            ("DELETE", file),
        ):
            other = await api.client.request(method, path, headers=bob)
            assert other.status_code == 404, path
            nobody = await api.client.request(method, path, headers={"authorization": "x"})
            assert nobody.status_code == 401, path
            assert nobody.json()["error"]["code"] == "invalid_api_key"
            assert nobody.headers["x-coxswain-reason"] == "invalid-api-key"
        for path in ("/v1/batches", "/v1/files"):
            assert (await api.client.get(path, headers=bob)).json()["data"] == []
        body = {
            "input_file_id": made["input_file_id"],
            "endpoint": CHAT,
            "completion_window": "24h",
        }
        stolen = await api.client.post("/v1/batches", json=body, headers=bob)
        assert stolen.status_code == 400
        assert (await api.client.get("/healthz", headers={"authorization": "x"})).text == "alive\n"


@pytest.mark.parametrize(
    ("other", "code"),
    [
        ({"endpoint": "/v1/images"}, "invalid_endpoint"),
        ({"endpoint": ["x"]}, "invalid_endpoint"),
        ({"input_file_id": "file-x"}, "invalid_file"),
        ({"input_file_id": 7}, "invalid_file"),
        ({"completion_window": "soon"}, "invalid_completion_window"),
        ({"completion_window": 24}, "invalid_completion_window"),
        ({"metadata": {"a": 1}}, "invalid_metadata"),
        ({"metadata": ["a"]}, "invalid_metadata"),
    ],
)
async def test_what_cannot_be_a_batch(tmp_path: Path, other: dict[str, Any], code: str) -> None:
    async with serving(tmp_path) as api:
        answer = await api.submit(**other)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)
        assert api.news == 0


async def test_files_are_bounded(tmp_path: Path) -> None:
    """Nothing is left of what was not taken."""
    async with serving(tmp_path, max_bytes=1000, total=1500) as api:
        assert (await api.upload(b"x" * 1001)).status_code == 413
        assert (await api.upload(b"x" * 900)).status_code == 200
        full = await api.upload(b"x" * 900)
        assert (full.status_code, full.json()["error"]["code"]) == (507, "storage_full")
        assert len((await api.client.get("/v1/files")).json()["data"]) == 1
        assert (await api.upload(b"x" * 500)).status_code == 200


async def test_what_cannot_be_a_file(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        wrong = await api.upload(purpose="assistants")
        assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, "invalid_purpose")
        for body, kind in (
            (b"{}", "application/json"),
            (b"--x\r\nbroken", "multipart/form-data; boundary=x"),
            (b"", "multipart/form-data"),
        ):
            headers = {"content-type": kind}
            answer = await api.client.post("/v1/files", content=body, headers=headers)
            assert answer.status_code == 400, body
        none = await api.client.post(
            "/v1/files", files={"other": ("a", b"")}, data={"purpose": "batch"}
        )
        assert none.json()["error"]["code"] == "missing_file"
        assert (await api.client.get("/v1/files")).json()["data"] == []


async def test_errors_are_in_openais_format(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        for method, path, status in (
            ("GET", "/v1/files/none", 404),
            ("GET", "/v1/batches/none", 404),
            ("GET", "/v1/batches?limit=0", 400),
            ("GET", "/nothing", 404),
            ("PUT", "/v1/files", 405),
            ("POST", "/v1/batches", 400),
        ):
            answer = await api.client.request(method, path)
            assert answer.status_code == status, path
            assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
        long = await api.client.post("/v1/batches", content=json.dumps({"a": "x" * 70_000}))
        assert long.status_code == 413
