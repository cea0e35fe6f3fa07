"""Claims about extproc/app/pages/actions.py: what the page of a started service may change."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from extproc.app.logs import without_foreign_bytes
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
    (endpoint,) = status["endpoints"]
    return str(endpoint["intent"])


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
                models = (await client.get("/status")).json()["models"]
                found = next(one for one in models if one["name"] == "qwen")
                assert isinstance(found, dict)
                return found

            assert (await client.get("/status")).json()["machines"] == []
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


TARGET = b'{"target": "x"}'


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"", {}),
        (b"{", {}),
        (b"[]", {}),
        (b'{"target": 1}', {}),
        (b'"x"', {}),
        (b"\xff", {}),
        (b"[" * 60_000, {}),
        (b'{"a":' * 10_000, {}),
        (b'{"target": "\\ud800"}', {}),
        (b'{"target": "a\\udfff:1"}', {}),
        (b'{"target": ' + b"1" * 5_000 + b"}", {}),
        (TARGET.decode().encode("utf-16"), {}),
        *(
            (TARGET, {"content-type": f"application/json; charset={charset}"})
            for charset in ("nope", "base64", "utf-16", "latin-1", '"a b"')
        ),
        *((TARGET, {"content-encoding": encoding}) for encoding in ("gzip", "deflate", "zstd")),
    ],
    ids=lambda part: repr(part)[:30],
)
async def test_other_bodies_are_rejected(
    token_file: Path, caplog: pytest.LogCaptureFixture, body: bytes, headers: dict[str, str]
) -> None:
    """With what to send, and without an error of ours in the log."""
    caplog.handler.addFilter(without_foreign_bytes)
    async with pages(admin={"token_file": str(token_file)}) as client:
        headers = {**BEARER, "content-type": "application/json", **headers}
        for action in ("drain", "cancel", "load", "check"):
            answer = await client.post(f"/actions/{action}", content=body, headers=headers)
            assert answer.status_code == 400
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("charset", ["utf-8", "UTF-8", '"utf-8"'])
async def test_the_charset_may_be_named(token_file: Path, charset: str) -> None:
    async with pages(admin={"token_file": str(token_file)}) as client:
        headers = {**BEARER, "content-type": f"application/json; charset={charset}"}
        answer = await client.post("/actions/check", content=TARGET, headers=headers)
        assert answer.status_code == 200


PATHS = (
    "/activity?endpoint=%ED%A0%80",
    "/activity?endpoint=%FF",
    "/activity?endpoint=[::1",
    "/activity?endpoint=127.0.0.1:%C2%B2",
    "/activity?endpoint=127.0.0.1:" + "9" * 5_000,
    "/status?%FF",
    "/queue/%ED%A0%80",
    "/queue/%00",
    "/queue/a%0d%0ab",
    "//[::1/status",
    "http://[::1/queue/x",
    "http://a:99999999/queue/x",
    "/\udcff",
)
HEADERS = ("accept: text/event-stream", "authorization: Bearer \udcff", "host: [::1\udcff")


async def test_no_request_of_anybody_is_an_error_of_ours(
    token_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What anybody writes to the port gets a status below 500, or a hang-up."""
    caplog.handler.addFilter(without_foreign_bytes)

    async def send(port: int, path: str, header: str) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        text = f"GET {path} HTTP/1.1\r\n{header}\r\nconnection: close\r\n\r\n"
        writer.write(text.encode("utf-8", "surrogateescape"))
        answer = await reader.read()
        writer.close()
        return answer

    async with pages(admin={"token_file": str(token_file)}) as client:
        port = client.base_url.port or 0
        asked = [(path, header) for path in PATHS for header in HEADERS]
        answers = await asyncio.gather(*(send(port, *each) for each in asked))
    for each, answer in zip(asked, answers, strict=True):
        assert not answer or answer.split(b" ", 2)[1] < b"500", each
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


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
