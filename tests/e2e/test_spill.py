"""Tiers over real Envoy: what the far server really got, and what it must never get."""

from __future__ import annotations

import asyncio
import sqlite3
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx
import pytest

from tests.e2e.one_process import server_side
from tests.e2e.stack import CHAT, Stack, chat, until
from tests.fakes.authority import Authority
from tests.fakes.foreign_runner import ForeignRunner

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

BURST = 20
MOST = 3
KEY = "sk-provider"
OBJECTIVE = "x-gateway-inference-objective"
PRIVATE = {"x-api-key": "sk-client", "cookie": "a=b", "authorization": "Bearer sk-client"}


class Site:
    """The stack, and the server of a provider."""

    def __init__(self, stack: Stack, far: ForeignRunner, usage: Path) -> None:
        self.stack, self.far, self.usage = stack, far, usage

    async def ask(self, objective: str, path: str = CHAT, **headers: str) -> httpx.Response:
        body = {**chat(100, content=f"of {objective}"), "model": "tiny"}
        return await self.stack.client.post(
            self.stack.url(path),
            json=body if path == CHAT else {"content": "of stay", "model": "tiny"},
            headers={OBJECTIVE: objective, "x-session-id": "s", **PRIVATE, **headers},
        )

    def contents(self) -> list[str]:
        """What the far server was asked."""
        return [body["messages"][0]["content"] for _, body in self.far.heard]


@asynccontextmanager
async def tiered(
    folder: Path,
    slots: tuple[int, ...],
    *,
    key: str = "",
    tls: ssl.SSLContext | None = None,
    far_key: str = "",
    far: Mapping[str, Any] = MappingProxyType({}),
    **settings: Any,
) -> AsyncIterator[Site]:
    """A house with these servers, and the provider, of which its settings say what is in `far`.
    It serves everybody, or who has `far_key`."""

    class Tiered(Stack):
        """Its settings name the provider, too."""

        async def start_picker(self, settings: dict[str, Any]) -> None:
            own = [
                {"address": server.address, "name": f"house-{number}", "labels": {"n": f"{number}"}}
                for number, server in enumerate(self.servers)
            ]
            provider = {
                "address": f"https://{server.address}" if tls else server.address,
                "name": "provider",
                "kind": "openai",
                "tier": 2,
                "slots": 4,
                "api_key_env": "PROVIDER_KEY",
                "inject_key": True,
                "models": {"tiny": "gpt"},
                "price": {"prompt": 1.0, "generated": 2.0},
            }
            await super().start_picker({**settings, "endpoints": [*own, {**provider, **far}]})

    whole = {
        "scraper": {"slow_interval_s": 0.5},
        "usage": {"path": str(folder / "usage.db")},
        "models": {"chat": {"tiny": 1}},
        "objectives": {"go": {}, "stay": {}},
        "spill": {"objectives": ["go"], "after_wait_s": 1.0, "max_running": 3},
        **settings,
    }
    async with (
        ForeignRunner("openai", "gpt", tls=tls, key=far_key).serving() as server,
        Tiered.running(folder, slots=slots, kind="simulator", settings=whole, key=key) as stack,
    ):
        await stack.until(
            lambda status: all(
                one["health"] in ("ready", "degraded") or ((tls or far_key) and one["tier"] == 2)
                for one in status["endpoints"].values()
            )
        )
        yield Site(stack, server, folder / "usage.db")


@pytest.fixture
async def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    monkeypatch.setenv("PROVIDER_KEY", KEY)
    async with tiered(tmp_path, (2,)) as found:
        yield found


async def test_a_burst_spills_and_what_may_not_leave_stays(site: Site) -> None:
    """The provider gets nothing before the burst; of the burst only what may leave, under its own
    name of the model, with its own key and without the client's. Then the house dies, and at last
    the picker: the rest still gets nothing but errors."""
    for _ in range(3):
        assert (await site.ask("go")).headers["x-coxswain-endpoint"] == "house-0"
    assert site.contents() == []
    answers = await asyncio.gather(
        *(site.ask("stay" if number % 2 else "go") for number in range(BURST))
    )
    assert {answer.status_code for answer in answers} == {200}
    tiers = [answer.headers.get("x-coxswain-tier", "") for answer in answers]
    assert not any(tiers[1::2]), "those that stay"
    spilled = tiers.count("2")
    assert 0 < spilled == len(site.far.heard)
    assert site.far.most <= 3
    assert set(site.contents()) == {"of go"}
    for headers, body in site.far.heard:
        assert headers["authorization"] == f"Bearer {KEY}"
        assert not headers.keys() & {"x-api-key", "cookie", "x-session-id", OBJECTIVE}
        assert body["model"] == "gpt"
    by_endpoint = [answer.headers["x-coxswain-endpoint"] for answer in answers]
    assert by_endpoint.count("provider") == spilled

    async def is_counted() -> bool:
        return counted(site.usage).get("2") == (spilled, spilled * 100)

    await until(is_counted)
    status = await site.stack.status()
    assert status["spill"] == {"running": 0, "spilled": spilled, "closed": ""}
    assert status["slots"]["total"] == 2, "the provider's slots are not the fleet's"

    server = site.stack.servers[0]
    await site.stack.kill(server.child)
    await site.stack.until(lambda status: status["endpoints"][server.address]["health"] == "down")
    impatient = {"x-coxswain-queue-timeout-ms": "500"}
    stays = [site.ask("stay", **impatient) for _ in range(4)]
    stays += [site.ask("stay", path="/tokenize"), site.ask("", path="/apply-template")]
    others = await asyncio.gather(*stays)
    assert all(answer.status_code >= 500 for answer in others)
    assert (await site.ask("go")).headers["x-coxswain-tier"] == "2"
    await site.stack.kill(site.stack.picker)
    alone = await asyncio.gather(site.ask("stay"), site.ask("go"), site.ask("", path="/tokenize"))
    assert all(answer.status_code >= 500 for answer in alone), "Envoy chooses no far server"
    assert set(site.contents()) == {"of go"} and len(site.far.heard) == spilled + 1
    await site.stack.restart_picker()


async def test_only_the_clients_of_named_keys_leave_until_the_day_is_used_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever objective another client says. After the day's requests the tier is closed, and
    operators read why."""
    monkeypatch.setenv("PROVIDER_KEY", KEY)
    keys = tmp_path / "keys"
    keys.write_text("web sk-client\nother sk-other\n", encoding="ascii")
    spill = {"keys": ["web"], "after_wait_s": 1.0, "max_requests_per_day": MOST}
    clients = {"keys_file": str(keys)}
    async with tiered(tmp_path, (1,), key="sk-client", spill=spill, clients=clients) as site:
        others = {"x-api-key": "sk-other", "authorization": "Bearer sk-other"}
        answers = await asyncio.gather(
            *(site.ask("go", **(others if number % 2 else {})) for number in range(BURST))
        )
        assert {answer.status_code for answer in answers} == {200}
        tiers = [answer.headers.get("x-coxswain-tier", "") for answer in answers]
        assert not any(tiers[1::2]), "those of the other client"
        assert tiers.count("2") == len(site.far.heard) == MOST
        status = await site.stack.status()
        assert status["spill"]["spilled"] == MOST and status["spill"]["closed"]
        assert any("tier 2" in problem for problem in status["problems"]), status["problems"]


@pytest.mark.parametrize("wrong", ["name", "authority", "time"])
async def test_a_provider_that_cannot_prove_its_name_gets_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    """No request and no key; what may leave waits at home, and operators read why."""
    monkeypatch.setenv("PROVIDER_KEY", KEY)
    authority, another = Authority(tmp_path), Authority(tmp_path, "another")
    match wrong:
        case "name":
            pair = authority.issue("far", hosts=("other.example",))
        case "authority":
            pair = another.issue("far")
        case _:
            pair = authority.issue("far", is_expired=True)
    far = {"ca_file": str(authority.ca), "server_name": "localhost"}
    async with tiered(tmp_path, (1,), tls=server_side(pair), far=far) as site:
        answers = await asyncio.gather(*(site.ask("go") for _ in range(6)))
        assert {answer.headers["x-coxswain-endpoint"] for answer in answers} == {"house-0"}
        assert site.far.asked == [] == site.far.heard
        endpoints = (await site.stack.status())["endpoints"].values()
        (provider,) = (one for one in endpoints if one["name"] == "provider")
        assert any("TLS" in issue["message"] for issue in provider["issues"]), provider


async def test_a_provider_that_rejects_our_key_gets_nothing_until_it_knows_it(
    tmp_path: Path,
) -> None:
    """Its 401 would reach clients whose requests can wait at home."""
    file = tmp_path / "key"
    file.write_text("revoked")
    far = {"api_key_env": None, "api_key_file": str(file)}
    async with tiered(tmp_path, (1,), far=far, far_key=KEY) as site:
        answers = await asyncio.gather(*(site.ask("go") for _ in range(6)))
        assert {answer.headers["x-coxswain-endpoint"] for answer in answers} == {"house-0"}
        assert CHAT not in site.far.asked
        (provider,) = (
            one
            for one in (await site.stack.status())["endpoints"].values()
            if one["name"] == "provider"
        )
        assert (provider["health"], provider["issues"][0]["code"]) == ("down", "unauthorized")
        file.write_text(KEY)
        await site.stack.until(
            lambda status: all(one["health"] == "ready" for one in status["endpoints"].values())
        )
        answers = await asyncio.gather(*(site.ask("go") for _ in range(12)))
        assert {answer.status_code for answer in answers} == {200}
        assert site.far.served > 0


PIN = """
from extproc.rules.v1 import Endpoint, Request, Rule

class Pin(Rule):
    def filter(self, request: Request, endpoint: Endpoint) -> bool | str:
        return request.objective != "stay" or endpoint.labels.get("n") == "1"
"""


async def test_rules_and_tiers_hold_over_fronts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The core decides for two fronts: what is pinned runs at its server, and what spills gets
    there with the provider's name of its model."""
    monkeypatch.setenv("PROVIDER_KEY", KEY)
    (tmp_path / "pin.py").write_text(PIN, encoding="utf-8")
    rules = {"rules": ["pin:Pin"], "rules_folder": str(tmp_path)}
    async with tiered(tmp_path, (1, 1), fronts=2, routing=rules) as site:
        answers = await asyncio.gather(
            *(site.ask("stay" if number % 2 else "go") for number in range(12))
        )
        assert {answer.status_code for answer in answers} == {200}
        served = [answer.headers["x-coxswain-endpoint"] for answer in answers]
        assert set(served[1::2]) == {"house-1"}
        assert set(site.contents()) == {"of go"}
        assert {body["model"] for _, body in site.far.heard} == {"gpt"}
        assert served.count("provider") == len(site.far.heard) > 0
        status = await site.stack.status()
        roles = {one["role"] for one in status["processes"]["members"]}
        assert {"core", "front"} <= roles


def counted(file: Path) -> dict[str, tuple[int, int]]:
    """The requests and the generated tokens of each tier."""
    with sqlite3.connect(file) as opened:
        rows = opened.execute(
            "SELECT tier, SUM(requests), SUM(generated_tokens), SUM(cost) FROM usage GROUP BY tier"
        ).fetchall()
    found = {tier: (requests, tokens) for tier, requests, tokens, _ in rows}
    for tier, _, tokens, cost in rows:
        assert (cost == 0.0) if tier == "1" else (cost >= tokens * 2 / 1e6)
    return found
