"""The model of requests as clients' libraries write them, with more than 64 KiB before it: over
real Envoy, with the libraries as PyPI and npm have them."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from extproc.demo.port import LOOPBACK
from tests.e2e.conftest import QUICK
from tests.e2e.pool import StackPool, shares
from tests.e2e.stack import Stack
from tests.fakes.package_index import need_index

pytestmark = [*shares("clients-models"), pytest.mark.timeout(600)]

OPENAIS = ("openai==2.54.0", "openai==3.57.0")
ANTHROPIC = "anthropic==2.14.0"
OPENAI_FOR_NODE = "openai@7.59.0"
SETTINGS: dict[str, Any] = {**QUICK, "routing": {"model_match": "strict"}}
PYTHON = """
text = "the boat " * 20
messages = [{"role": "user", "content": f"row {number} {text}"} for number in range(400)]
function = {"name": "row", "description": "row " * 30, "parameters": {"type": "object"}}
assert len(str(messages)) > 70_000
"""
ASK_OPENAI = """
import openai
client = openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0)
tools = [{"type": "function", "function": function | {"name": f"row{n}"}} for n in range(40)]
for model in models:
    raw = client.chat.completions.with_raw_response.create(
        messages=messages, model=model, max_tokens=1, tools=tools
    )
    print(model, raw.headers["x-coxswain-endpoint"])
    raw = client.responses.with_raw_response.create(
        input=messages, model=model, max_output_tokens=1
    )
    print(model, raw.headers["x-coxswain-endpoint"])
    raw = client.embeddings.with_raw_response.create(input=["row " * 9000] * 2, model=model)
    print(model, raw.headers["x-coxswain-endpoint"])
    raw = client.audio.transcriptions.with_raw_response.create(
        file=("a.wav", b"RIFF" * 30_000), model=model
    )
    print(model, raw.headers["x-coxswain-endpoint"])
try:
    client.chat.completions.create(messages=messages, model="nobody", tools=tools)
except openai.NotFoundError as error:
    print("nobody", error.code)
"""
ASK_ANTHROPIC = """
import anthropic
client = anthropic.Anthropic(base_url=url, api_key="any", max_retries=0)
tools = [{"name": f"row{n}", "description": "row " * 30, "input_schema": {"type": "object"}}
         for n in range(40)]
for model in models:
    raw = client.messages.with_raw_response.create(
        max_tokens=1, messages=messages, model=model, tools=tools
    )
    print(model, raw.headers["x-coxswain-endpoint"])
    try:
        raw = client.messages.with_raw_response.count_tokens(messages=messages, model=model)
    except anthropic.APIStatusError as error:  # the simulator does not count
        raw = error.response
    print(model, raw.headers["x-coxswain-endpoint"])
try:
    client.messages.create(max_tokens=1, messages=messages, model="nobody")
except anthropic.NotFoundError:
    print("nobody", "model_not_found")
"""
ASK_FROM_NODE = """
import OpenAI, { toFile } from "openai";
const [url, ...models] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "any", maxRetries: 0 });
const messages = [...Array(400).keys()].map((number) => (
  { role: "user", content: `row ${number} ` + "the boat ".repeat(20) }));
const tools = [...Array(40).keys()].map((number) => (
  { type: "function", function: { name: `row${number}`, description: "row ".repeat(30) } }));
for (const model of models) {
  const chat = await client.chat.completions.create({ messages, model, max_tokens: 1, tools })
    .asResponse();
  console.log(model, chat.headers.get("x-coxswain-endpoint"));
  const file = await toFile(Buffer.alloc(120_000), "a.wav");
  const speech = await client.audio.transcriptions.create({ file, model }).asResponse();
  console.log(model, speech.headers.get("x-coxswain-endpoint"));
}
try {
  await client.chat.completions.create({ messages, model: "nobody", tools });
} catch (error) {
  console.log("nobody", error.code);
}
"""


@pytest_asyncio.fixture(loop_scope="session")
async def stack(stacks: StackPool) -> AsyncIterator[Stack]:
    """`tiny` and `small`, each with long contexts; other names are unknown."""
    large = ("--context-tokens", "500000", "--prompt-tokens-per-second", "1e9")
    flags = (("--alias", "tiny", *large), ("--alias", "small", *large))
    async with stacks.lend(slots=(2, 2), flags=flags, kind="simulator", settings=SETTINGS) as lent:
        yield lent


async def run(*words: str | Path) -> str:
    process = await asyncio.create_subprocess_exec(*words, stdout=PIPE, stderr=STDOUT)
    out, _ = await process.communicate()
    assert process.returncode == 0, out.decode()
    return out.decode()


def assert_each_reached_its_model(stack: Stack, out: str, requests: int) -> None:
    addresses = dict(zip(("tiny", "small"), (one.address for one in stack.servers), strict=True))
    lines = [tuple(line.split()) for line in out.splitlines()]
    wanted = [(model, addresses[model]) for model in addresses for _ in range(requests)]
    assert lines == [*wanted, ("nobody", "model_not_found")]


@pytest.mark.parametrize(
    ("package", "code", "requests"),
    [*((package, ASK_OPENAI, 4) for package in OPENAIS), (ANTHROPIC, ASK_ANTHROPIC, 2)],
    ids=[*OPENAIS, ANTHROPIC],
)
async def test_a_library_for_python(stack: Stack, package: str, code: str, requests: int) -> None:
    """Chats, responses, embeddings and forms, each key where the library writes it."""
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
    if uv is None:
        pytest.skip("no uv")
    need_index(uv)
    url = f"http://{LOOPBACK}:{stack.envoy_port}"
    script = f"url, models = {url!r}, ['tiny', 'small']\n{PYTHON}{code}"
    words = (uv, "run", "--no-project", "--quiet", "--python", "3.11", "--with", package)
    assert_each_reached_its_model(stack, await run(*words, "python", "-c", script), requests)


async def test_openais_library_for_node(stack: Stack, tmp_path: Path) -> None:
    """It writes keys and fields in the order in which its user does."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("no node with npm")
    need_registry(npm)
    await run(npm, "install", "--silent", "--no-audit", "--prefix", tmp_path, OPENAI_FOR_NODE)
    (tmp_path / "ask.mjs").write_text(ASK_FROM_NODE, encoding="utf-8")
    url = f"http://{LOOPBACK}:{stack.envoy_port}"
    out = await run(node, tmp_path / "ask.mjs", url, "tiny", "small")
    assert_each_reached_its_model(stack, out, 2)


@lru_cache
def need_registry(npm: str) -> None:
    """Skip the test where npm reaches no registry."""
    asked = subprocess.run(
        [npm, "view", OPENAI_FOR_NODE, "name", "--fetch-retries=1", "--fetch-timeout=20000"],
        capture_output=True,
        timeout=120,
        check=False,
    )
    if asked.returncode:
        pytest.skip("npm reaches no registry")
