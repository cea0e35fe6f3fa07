"""Claims about extproc/app/pages/actions.py: what the page of a started service may change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from extproc.app.security.exposure import pages_token
from extproc.app.service import Service
from extproc.pb.coxswain.v1 import keeper_pb2 as kept
from extproc.pb.coxswain.v1.keeper_pb2_grpc import KeepersStub
from extproc.settings import Settings
from tests.admin.keepers.test_service import HELLO

ADDRESS = "127.0.0.1:1"
TOKEN = "pages-token"  # a test's
BEARER = {"authorization": f"Bearer {TOKEN}"}


@asynccontextmanager
async def pages(**settings: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the status port of a service with one endpoint, which nobody serves."""
    anywhere = dict.fromkeys(("grpc", "admin", "http"), "127.0.0.1:0")
    made_of = {"listen": anywhere, "endpoints": [ADDRESS], "drain_timeout_s": 0.0, **settings}
    service = Service(Settings.model_validate(made_of))
    await service.start()
    try:
        url = f"http://127.0.0.1:{service.http_port}"
        async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
            yield client
    finally:
        await service.stop()


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    return file


async def intent(client: httpx.AsyncClient) -> str:
    status = (await client.get("/status")).json()
    return str(status["endpoints"][ADDRESS]["intent"])


async def test_there_are_no_actions_without_a_token() -> None:
    """The page says so, and no header helps."""
    async with pages() as client:
        assert (await client.get("/status")).json()["takes_actions"] is False
        answer = await client.post("/actions/drain", json={"target": ADDRESS}, headers=BEARER)
        assert answer.status_code == 403 and "admin.token_file" in answer.json()["error"]
        assert await intent(client) == "active"


async def test_operators_with_the_token_drain_and_activate(token_file: Path) -> None:
    """As with the command line; what cannot be done is said in the same words."""
    async with pages(admin={"token_file": str(token_file)}) as client:
        client.headers.update(BEARER)
        assert (await client.get("/status")).json()["takes_actions"] is True
        assert (await client.post("/actions/check", json={"target": ""})).status_code == 200
        for action, after in (("drain", "draining"), ("activate", "active")):
            answer = await client.post(f"/actions/{action}", json={"target": ADDRESS})
            assert (answer.status_code, answer.json()) == (200, {})
            assert await intent(client) == after
        unknown = await client.post("/actions/drain", json={"target": "nobody"})
        assert unknown.status_code == 404 and "coxswain endpoints" in unknown.json()["error"]
        gone = await client.post("/actions/cancel", json={"target": "0123456789abcdef"})
        assert gone.status_code == 404 and "it has ended" in gone.json()["error"]
        assert (await client.post("/actions/cancel", json={"target": ""})).status_code == 400
        assert (await client.post("/actions/disable", json={"target": ADDRESS})).status_code == 404


async def test_operators_load_pin_and_unload_models(token_file: Path) -> None:
    """By the same service as the command line, and with its words where it cannot be done."""
    anywhere = dict.fromkeys(("grpc", "admin", "http"), "127.0.0.1:0")
    made_of = {"listen": anywhere, "admin": {"token_file": str(token_file)}}
    service = Service(Settings.model_validate({**made_of, "drain_timeout_s": 0.0}))
    await service.start()
    url = f"http://127.0.0.1:{service.http_port}"
    admin = f"127.0.0.1:{service.admin_port}"
    try:
        async with (
            httpx.AsyncClient(base_url=url, trust_env=False, headers=BEARER) as client,
            grpc.aio.insecure_channel(admin) as channel,
        ):

            async def post(action: str, target: str = "gpu-1/qwen") -> tuple[int, str]:
                answer = await client.post(f"/actions/{action}", json={"target": target})
                return answer.status_code, str(answer.json().get("error", ""))

            async def model() -> dict[str, Any]:
                (machine,) = (await client.get("/status")).json()["machines"]
                found = machine["models"]["qwen"]
                assert isinstance(found, dict)
                return found

            assert "machines" not in (await client.get("/status")).json()
            for action in ("load", "unload", "pin", "unpin"):
                code, error = await post(action)
                assert code == 404 and "coxswain models" in error
            metadata = (("authorization", f"Bearer {TOKEN}"),)
            call = KeepersStub(channel).Attach(metadata=metadata)
            await call.write(kept.KeeperMessage(hello=HELLO))
            unloaded = kept.KeeperStatus.Model(name="qwen", state=kept.KeeperStatus.STATE_UNLOADED)
            await call.write(kept.KeeperMessage(status=kept.KeeperStatus(models=[unloaded])))
            async with asyncio.timeout(60):
                message = await call.read()
                while not (isinstance(message, kept.KeeperCommand) and message.HasField("wanted")):
                    message = await call.read()  # it is asked for once it has reported
            assert await post("load") == (200, "")
            now = await model()
            assert now["is_wanted"] and not now["is_pinned"] and now["queued"] == 0
            assert await post("pin") == (200, "")
            assert (await model())["is_pinned"]
            assert (await post("pin", "gpu-1/coder"))[0] == 409
            assert await post("unpin") == (200, "")
            assert not (await model())["is_pinned"]
            assert await post("unload") == (200, "")
            assert not (await model())["is_wanted"]
            call.cancel()
    finally:
        await service.stop()


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": TOKEN},
        {"cookie": f"authorization=Bearer {TOKEN}"},
    ],
)
async def test_nobody_acts_without_the_header(token_file: Path, headers: dict[str, str]) -> None:
    """Not by a cookie either: a browser sends those for other sites' pages, too."""
    async with pages(admin={"token_file": str(token_file)}) as client:
        answer = await client.post("/actions/drain", json={"target": ADDRESS}, headers=headers)
        assert answer.status_code == 401
        assert await intent(client) == "active"


async def test_pages_of_other_sites_cannot_act(token_file: Path) -> None:
    """No preflight is answered, no form is taken, and a name that somebody else owns is none."""
    async with pages(admin={"token_file": str(token_file)}) as client:
        asked = {
            "origin": "https://evil.example",
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization,content-type",
        }
        preflight = await client.options("/actions/drain", headers=asked)
        assert preflight.status_code == 405
        assert not [name for name in preflight.headers if name.startswith("access-control")]
        form = await client.post("/actions/drain", data={"target": ADDRESS}, headers=BEARER)
        assert form.status_code == 400
        rebound = await client.post(
            "/actions/drain",
            json={"target": ADDRESS},
            headers={**BEARER, "host": "rebound.example:9090"},
        )
        assert rebound.status_code == 421
        assert (await client.get("/actions/drain", headers=BEARER)).status_code == 405
        assert await intent(client) == "active"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"target": 1}', b'"x"', b"\xff"])
async def test_other_bodies_are_rejected(token_file: Path, body: bytes) -> None:
    """With what to send."""
    async with pages(admin={"token_file": str(token_file)}) as client:
        headers = {**BEARER, "content-type": "application/json"}
        answer = await client.post("/actions/drain", content=body, headers=headers)
        assert answer.status_code == 400 and "target" in answer.json()["error"]


def test_a_port_that_asks_for_certificates_is_not_gone_round(token_file: Path) -> None:
    """Where the admin port wants a client certificate, a token alone is not enough here."""
    admin = {"token_file": str(token_file)}
    plain = Settings.model_validate({"admin": admin})
    tls = {"cert_file": "c.pem", "key_file": "k.pem"}
    mutual = Settings.model_validate(
        {"admin": admin, "admin_tls": {**tls, "client_ca_file": "ca.pem"}}
    )
    assert pages_token(plain) is not None
    assert pages_token(Settings.model_validate({"admin": admin, "admin_tls": tls})) is not None
    assert pages_token(mutual) is None
