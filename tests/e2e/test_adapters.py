"""Adapters by name, over real Envoy and real llama-servers that number them differently."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from extproc.demo.model import write_adapter
from tests.e2e.conftest import QUICK
from tests.e2e.forked_children import ForkedChildren
from tests.e2e.pool import StackPool, shares
from tests.e2e.stack import CHAT, MODEL_SHAPE, Stack
from tests.fakes.http_client import Client
from tests.long_run import in_each_mode

pytestmark = shares("adapters")

LIMIT_BYTES = 4096


@pytest.fixture(scope="session")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `pirate.gguf` and `poet.gguf`."""
    folder = tmp_path_factory.mktemp("adapters")
    for seed, name in enumerate(("pirate", "poet"), start=1):
        write_adapter(folder / f"{name}.gguf", MODEL_SHAPE, seed=seed)
    return folder


@pytest_asyncio.fixture(loop_scope="session")
async def stack(llama: None, mode: str, adapters: Path, stacks: StackPool) -> AsyncIterator[Stack]:
    """The first server has `pirate` and `poet`, the second one `poet` alone: its number 0."""
    settings = {**QUICK, "routing": {"body_limit_bytes": LIMIT_BYTES}}
    pirate, poet = (("--lora", adapters / f"{name}.gguf") for name in ("pirate", "poet"))
    without = ("--lora-init-without-apply",)
    flags = ((*pirate, *poet, *without), (*poet, *without))
    async with stacks.lend(slots=(2, 2), flags=flags, settings=settings, mode=mode) as lent:
        yield lent


def question(**more: object) -> dict[str, Any]:
    """The same question gets the same answer, but from another adapter."""
    messages = [{"role": "user", "content": "row the boat"}]
    return {
        "messages": messages,
        "max_tokens": 24,
        "temperature": 0,
        "ignore_eos": True,
        "cache_prompt": False,
        **more,
    }


def said(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["message"]["content"])


@in_each_mode
async def test_a_name_becomes_each_servers_own_number(stack: Stack) -> None:
    """Whoever serves, the answer is the named adapter's; one that nobody has is 404."""
    client, (both, one) = stack.client, stack.servers
    with_poet = question(lora=[{"id": 0, "scale": 1.0}])
    poetry = said(await client.post(f"http://{one.address}{CHAT}", json=with_poet))
    piracy = said(await client.post(f"http://{both.address}{CHAT}", json=with_poet))
    assert poetry != piracy, "the adapters must differ for this to prove anything"

    for _ in range(6):
        answer = await client.post(stack.url(CHAT), json=question(model="base:poet"))
        assert said(answer) == poetry
    named = await client.post(
        stack.url(CHAT), json=question(), headers={"x-lora-adapter": "pirate"}
    )
    assert (said(named), named.headers["x-coxswain-endpoint"]) == (piracy, both.address)
    unknown = await client.post(
        stack.url(CHAT), json=question(), headers={"x-lora-adapter": "nobody"}
    )
    assert unknown.status_code == 404


@in_each_mode
async def test_a_number_goes_where_it_means_something(stack: Stack) -> None:
    """Only one server has an adapter of number 1; nobody has one of number 2."""
    by_number = question(lora=[{"id": 1, "scale": 1.0}])
    for _ in range(6):
        answer = await stack.client.post(stack.url(CHAT), json=by_number)
        assert answer.status_code == 200, answer.text
        assert answer.headers["x-coxswain-endpoint"] == stack.servers[0].address
    unknown = question(lora=[{"id": 2, "scale": 1.0}])
    assert (await stack.client.post(stack.url(CHAT), json=unknown)).status_code == 404


@in_each_mode
async def test_what_cannot_be_rewritten_is_rejected(stack: Stack) -> None:
    """A name beside numbers, and a name in a body that is not read to its end."""
    client = stack.client
    both = question(model="base:poet", lora=[{"id": 0, "scale": 1.0}])
    rejected = await client.post(stack.url(CHAT), json=both)
    assert (rejected.status_code, rejected.json()["error"]["code"]) == (400, "bad-request")
    broken = await client.post(stack.url(CHAT), content=b"[1]", headers={"x-lora-adapter": "poet"})
    assert broken.status_code == 400


@in_each_mode
async def test_an_adapter_whose_server_was_never_seen_is_waited_for(
    llama: None, mode: str, adapters: Path, tmp_path: Path
) -> None:
    """Another server would take the name for any model's; it serves all else meanwhile."""
    poet = adapters / "poet.gguf"
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with (
        ForkedChildren(tmp_path) as children,
        Client(timeout=60, limits=limits) as client,
    ):
        running = Stack(tmp_path, children, client)
        flags = ("--lora", poet, "--lora-init-without-apply", "--alias", "tiny")
        late = await running.add_server(2, flags=flags)
        with_poet = question(lora=[{"id": 0, "scale": 1.0}])
        poetry = said(await client.post(f"http://{late.address}{CHAT}", json=with_poet))
        plain = await running.add_server(2, flags=("--alias", "tiny"))
        await running.start_picker(QUICK)
        await running.start_envoy(mode)
        await running.until_ready()
        await running.kill(late.child)
        late.child = None
        await running.kill(running.picker)
        await running.restart_picker()
        await running.until_ready()
        for name in ("tiny", "qwen2.5:7b"):
            answer = await client.post(running.url(CHAT), json=question(model=name))
            assert answer.headers["x-coxswain-endpoint"] == plain.address
        asked = client.post(running.url(CHAT), json=question(model="tiny:poet"))
        async with asyncio.TaskGroup() as group:
            task = group.create_task(asked)
            await running.until_waiting(1)
            answer = await client.post(running.url(CHAT), json=question(model="tiny"))
            assert answer.headers["x-coxswain-endpoint"] == plain.address
            await running.start_server(late)
        answer = task.result()
        assert answer.headers["x-coxswain-endpoint"] == late.address
        assert said(answer) == poetry


@in_each_mode
async def test_the_models_of_the_fleet(stack: Stack) -> None:
    """Each model once, with every adapter that some server has for it."""
    answer = await stack.client.get(stack.url("/v1/models"))
    ids = [model["id"] for model in answer.json()["data"]]
    base = ids[0]
    assert ids == [base, f"{base}:pirate", f"{base}:poet"]
