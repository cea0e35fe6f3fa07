"""The recipe of docs/oidc.md over real Envoy, with tokens that are signed here."""

from __future__ import annotations

import asyncio
import json
import time
from base64 import urlsafe_b64encode
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from extproc.demo.envoy_binary import find_envoy
from extproc.demo.port import free_port
from extproc.envoy_config.options import EnvoyOptions
from tests.docs.pages import page
from tests.e2e.one_process import running
from tests.fakes import envoy_text, quick_yaml
from tests.fakes.llama_server import FakeLlamaServer
from tests.fakes.picker import until

pytestmark = [pytest.mark.e2e]

ISSUER, AUDIENCE = "https://login.example.com/", "llm"
KEY_ID = "one"
FAIRNESS_ID = "x-gateway-inference-fairness-id"


def base64url(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


class Provider:
    """Signs tokens (RS256), and has the keys by which they are verified."""

    def __init__(self) -> None:
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def keys(self) -> str:
        """As providers publish them (JWKS)."""
        numbers = self._key.public_key().public_numbers()
        key = {"kty": "RSA", "alg": "RS256", "use": "sig", "kid": KEY_ID}
        for name, number in (("n", numbers.n), ("e", numbers.e)):
            key[name] = base64url(number.to_bytes((number.bit_length() + 7) // 8, "big"))
        return json.dumps({"keys": [key]})

    def token(self, **claims: Any) -> str:
        """Of a user who is logged in for an hour; claims that are None are left out."""
        given = {"iss": ISSUER, "aud": AUDIENCE, "exp": int(time.time()) + 3600, **claims}
        said = {name: value for name, value in given.items() if value is not None}
        header = {"alg": "RS256", "typ": "JWT", "kid": KEY_ID}
        parts = [base64url(json.dumps(part).encode()) for part in (header, said)]
        signed = ".".join(parts)
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{base64url(signature)}"


def blocks() -> list[Any]:
    """What the YAML blocks of the page say, in their order."""
    return [
        quick_yaml.load(block.text)
        for block in page("docs/oidc.md").blocks()
        if block.language == "yaml"
    ]


def with_filters(options: EnvoyOptions, keys: str) -> str:
    """The printed configuration with the filters of the page, and these keys."""
    filters = blocks()[0]["http_filters"]
    provider = filters[1]["typed_config"]["providers"]["login"]
    assert (provider["issuer"], provider["audiences"]) == (ISSUER, [AUDIENCE])
    provider["local_jwks"]["inline_string"] = keys
    config = quick_yaml.load(envoy_text.printed(options))
    manager = manager_of(config)
    manager["http_filters"] = [*filters, *manager["http_filters"]]
    return quick_yaml.dump(config)


def manager_of(config: Any) -> Any:
    """What serves clients in Envoy's configuration."""
    listeners = config["static_resources"]["listeners"]
    managers = [
        network["typed_config"]
        for listener in listeners
        for chain in listener["filter_chains"]
        for network in chain["filters"]
    ]
    return next(each for each in managers if len(each["http_filters"]) > 1)


async def test_the_claim_becomes_the_tenant(tmp_path: Path) -> None:
    """And nothing that a client sends can change it; no server and no picker sees the token."""
    provider, other = Provider(), Provider()
    async with FakeLlamaServer(busy=(True,)) as server:
        values = {"endpoints": [str(server.address)]}
        printed = partial(with_filters, keys=provider.keys())
        async with running(tmp_path, values, is_steered=False, printed=printed) as stack:
            queue = stack.service.dispatcher.queue
            await until_open(stack.client, provider.token(sub="ann"))

            async def tenant(token: str, **forged: str) -> tuple[str, str]:
                """Whose request it is in the queue."""
                headers = {"authorization": f"Bearer {token}", **forged}
                ask = stack.client.post("/completion", json={"prompt": "row"}, headers=headers)
                asking = asyncio.create_task(ask)
                await until(lambda: len(queue) == 1)
                (ticket,) = queue
                found = ticket.request.tenant, ticket.request.fairness_id
                asking.cancel()
                await until(lambda: len(queue) == 0)
                return found

            assert await tenant(provider.token(sub="ann")) == ("", "ann")
            assert await tenant(provider.token(sub="bob")) == ("", "bob")
            forged = {
                FAIRNESS_ID: "bob",
                "x-llm-d-inference-fairness-id": "bob",
                "x-api-key": "sk-new",
                "x-coxswain-client": "bob",
            }
            assert await tenant(provider.token(sub="ann"), **forged) == ("", "ann")
            assert await tenant(provider.token(), **forged) == ("", ""), "a token without the claim"

            for token, status in (
                (None, 401),
                ("no-token", 401),
                (other.token(sub="ann"), 401),
                (provider.token(sub="ann", exp=int(time.time()) - 3600), 401),
                (provider.token(sub="ann", exp=None), 401),
                (provider.token(sub="ann", iss="https://elsewhere.example.com/"), 401),
                (provider.token(sub="ann", aud="mail"), 403),
            ):
                headers = forged if token is None else {"authorization": f"Bearer {token}"}
                answer = await stack.client.get("/props", headers=headers)
                assert answer.status_code == status, token
            in_url = {"access_token": provider.token(sub="ann")}
            assert (await stack.client.get("/props", params=in_url)).status_code == 401
            assert (await stack.client.get("/health")).status_code == 200
            preflight = {"origin": "https://page.example", "access-control-request-method": "POST"}
            answer = await stack.client.options("/v1/chat/completions", headers=preflight)
            assert answer.headers["access-control-allow-origin"] == "*"
            seen = [asked for asked in server.asked if "x-request-id" in asked.headers]
            assert seen and not any("authorization" in asked.headers for asked in seen)


async def until_open(client: httpx.AsyncClient, token: str) -> None:
    """Envoy listens, and its picker has told it the fleet."""

    async def is_open() -> bool:
        try:
            answer = await client.get("/props", headers={"authorization": f"Bearer {token}"})
        except httpx.TransportError:
            return False
        return "x-coxswain-endpoint" in answer.headers

    while not await is_open():  # noqa: ASYNC110  # Envoy tells no event
        await asyncio.sleep(0.05)


async def test_envoy_takes_keys_that_it_fetches(tmp_path: Path) -> None:
    """The blocks of the page for them, in a whole configuration."""
    printed, remote, cluster = blocks()
    filters = printed["http_filters"]
    provider = filters[1]["typed_config"]["providers"]["login"]
    del provider["local_jwks"]
    provider.update(remote)
    options = envoy_text.options_with(listen=f"127.0.0.1:{free_port()}")
    config = quick_yaml.load(envoy_text.printed(options))
    manager = manager_of(config)
    manager["http_filters"] = [*filters, *manager["http_filters"]]
    config["static_resources"]["clusters"].append(cluster)
    file = tmp_path / "envoy.yaml"
    file.write_text(quick_yaml.dump(config), encoding="utf-8")
    command = map(str, (find_envoy(), "--mode", "validate", "-c", file, "-l", "warning"))
    checking = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await checking.communicate()
    assert checking.returncode == 0, said.decode()
