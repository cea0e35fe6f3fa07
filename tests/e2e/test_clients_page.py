"""Each block of docs/clients.md and docs/nginx.md runs as it is printed, but for addresses and
files: over a real Envoy and real llama-servers, with the clients' libraries as PyPI has them."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import ssl
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
import yaml

from extproc.demo.port import LOOPBACK, free_port
from tests.docs.pages import page
from tests.e2e.conftest import QUICK
from tests.e2e.pool import StackPool, shares
from tests.e2e.stack import CHAT, Stack, chat, until
from tests.fakes.authority import Authority
from tests.fakes.package_index import need_index
from tests.long_run import in_long_run

pytestmark = [*shares("clients"), pytest.mark.llama, pytest.mark.timeout(600)]

OFFLINE = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
"""LiteLLM loads its table of prices from GitHub otherwise."""
READY_S = 150.0
"""LiteLLM loads for half a minute on a machine that does nothing else."""
MASTER_KEY = {"authorization": "Bearer sk-choose-one"}
ON_THE_PAGE = "127.0.0.1:10000"
OPENAI = "openai==3.54.0"
ANTHROPIC = "anthropic==2.12.0"
LITELLM = "litellm[proxy]==1.106.2"


@pytest_asyncio.fixture(loop_scope="session")
async def stack(llama: None, stacks: StackPool) -> AsyncIterator[Stack]:
    async with stacks.lend(settings=QUICK) as lent:
        yield lent


@pytest_asyncio.fixture(loop_scope="session")
async def simulated(stacks: StackPool) -> AsyncIterator[Stack]:
    """What `make up` starts where no llama-server is built."""
    async with stacks.lend(settings=QUICK, kind="simulator") as lent:
        yield lent


def block(heading: str, stack: Stack) -> str:
    """The first block below a heading, for this stack's Envoy."""
    section = "\n" + page("docs/clients.md").text.partition(f"\n## {heading}\n")[2]
    text = section.partition("\n```")[2].partition("\n")[2].partition("\n```")[0]
    assert ON_THE_PAGE in text or heading == "LiteLLM"
    return text.replace(ON_THE_PAGE, f"{LOOPBACK}:{stack.envoy_port}")


async def run(*words: str | Path) -> str:
    """What a command printed, which must have ended well."""
    process = await asyncio.create_subprocess_exec(*words, stdout=PIPE, stderr=STDOUT)
    out, _ = await process.communicate()
    assert process.returncode == 0, out.decode()
    return out.decode()


@asynccontextmanager
async def serving(url: str, *words: str | Path, ca: Path | None = None) -> AsyncIterator[None]:
    """A server of another project, from its first response until the end."""
    context = ssl.create_default_context(cafile=ca)
    process = await asyncio.create_subprocess_exec(
        *words, stdout=DEVNULL, env={**os.environ, **OFFLINE}
    )
    try:
        async with httpx.AsyncClient(verify=context) as client:

            async def is_ready() -> bool:
                assert process.returncode is None, "it ended by itself"
                try:
                    return (await client.get(url)).status_code == 200
                except httpx.TransportError:
                    return False

            await until(is_ready, READY_S)
        yield
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def with_package(package: str, *words: str | Path) -> list[str | Path]:
    """A command in an environment with one package, which uv has brought: that may take minutes."""
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if uv is None:
        pytest.skip("no uv")
    need_index(uv)
    words_before = [uv, "run", "--no-project", "--quiet", "--python", "3.11", "--with", package]
    await run(*words_before, "python", "-c", "pass")
    return [*words_before, *words]


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no {name}")
    return found


async def ask(url: str, verify: Path) -> list[str]:
    """The events of one stream through a proxy."""
    context = ssl.create_default_context(cafile=verify)
    body = chat(8) | {"stream": True}
    async with httpx.AsyncClient(verify=context, timeout=60) as client:
        answer = await client.post(f"{url}{CHAT}", json=body)
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-coxswain-endpoint"]
    return [line for line in answer.text.splitlines() if line]


async def test_curl(stack: Stack, simulated: Stack) -> None:
    for each in (stack, simulated):
        out = await run("sh", "-ec", block("curl", each))
        assert out.rstrip().endswith("data: [DONE]")


async def test_openais_sdk(stack: Stack, simulated: Stack) -> None:
    """Also the header with the endpoint, a stream, and the list of models."""
    for each in (stack, simulated):
        code = block("OpenAI's Python SDK", each)
        out = await run(*await with_package(OPENAI, "python", "-c", code))
        assert out.split()[0] in {server.address for server in each.servers}


async def test_anthropics_sdk(stack: Stack, simulated: Stack) -> None:
    for each in (stack, simulated):
        code = block("Anthropic's Python SDK", each)
        out = await run(*await with_package(ANTHROPIC, "python", "-c", code))
        assert out.split()[0] in {"max_tokens", "end_turn"}


@in_long_run
async def test_litellm_in_front(stack: Stack, tmp_path: Path) -> None:
    """A whole response and a stream; the header with the endpoint comes through it."""
    config = tmp_path / "litellm.yaml"
    config.write_text(block("LiteLLM", stack), encoding="utf-8")
    port = free_port()
    url = f"http://{LOOPBACK}:{port}"
    words = await with_package(LITELLM, "litellm", "--config", config, "--port", str(port))
    async with (
        serving(f"{url}/health/liveliness", *words),
        httpx.AsyncClient(timeout=60, headers=MASTER_KEY) as client,
    ):
        body = chat(8) | {"model": "local"}
        answer = await client.post(f"{url}{CHAT}", json=body)
        assert answer.status_code == 200, answer.text
        assert answer.json()["usage"]["completion_tokens"] >= 1
        served_by = answer.headers["llm_provider-x-coxswain-endpoint"]
        assert served_by in {server.address for server in stack.servers}
        answer = await client.post(f"{url}{CHAT}", json=body | {"stream": True})
        assert answer.text.rstrip().endswith("data: [DONE]")


async def test_what_open_webui_sends(stack: Stack) -> None:
    """As version 0.12.4 sent it, with the settings of the page: users and chats are known by their
    headers, and a response that is stopped frees its slot."""
    set_ = dict(re.findall(r"^export (\w+)=(.*)$", block("Open WebUI", stack), re.MULTILINE))
    headers = {
        "authorization": f"Bearer {set_['OPENAI_API_KEY']}",
        "x-openwebui-auth-type": "jwt",
        "x-openwebui-user-name": "User",
        set_["FORWARD_USER_INFO_HEADER_USER_ID"]: "e19ee464-572d-43e3-ad27-c9edb0a56764",
        "x-openwebui-user-email": "admin@localhost",
        "x-openwebui-user-role": "admin",
        set_["FORWARD_SESSION_INFO_HEADER_CHAT_ID"]: "local:243d4479-62b1-4791-949c-fdb43721d0a3",
        "user-agent": "Python/3.11 aiohttp/3.14.5",
    }
    url = set_["OPENAI_API_BASE_URL"]
    models = (await stack.client.get(f"{url}/models", headers=headers)).json()
    body = chat(8, stream=True) | {"model": models["data"][0]["id"]}
    served_by = set()
    for _ in range(4):
        answer = await stack.client.post(f"{url}/chat/completions", json=body, headers=headers)
        assert answer.text.rstrip().endswith("data: [DONE]")
        served_by.add(answer.headers["x-coxswain-endpoint"])
    assert len(served_by) == 1, "a chat stays where it is cached"
    long = body | {"max_tokens": 10**6}
    async with stack.client.stream(
        "POST", f"{url}/chat/completions", json=long, headers=headers
    ) as answer:
        await anext(answer.aiter_lines())
        await stack.until(lambda status: status["slots"]["leased"] == 1)
    await stack.until(lambda status: status["slots"]["idle"] == status["slots"]["total"])
    assert [await server.busy() for server in stack.servers] == [0] * len(stack.servers)


def nginx_config(folder: Path, http: str) -> Path:
    """A file for a process that writes nowhere else."""
    folders = "".join(
        f"{kind}_temp_path {folder}/{kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    config = folder / "nginx.conf"
    config.write_text(
        f"daemon off; pid {folder}/pid; error_log stderr; events {{}}\n"
        f"http {{ access_log off; {folders}\n{http}\n}}\n"
    )
    return config


async def test_nginx_with_tls_in_front(stack: Stack, tmp_path: Path) -> None:
    nginx = program("nginx")
    authority = Authority(tmp_path)
    pair = authority.issue("proxy")
    port = free_port()
    server = block("nginx with TLS", stack)
    for printed, own in (
        ("443 ssl", f"{LOOPBACK}:{port} ssl"),
        ("/etc/nginx/llm.example.com.crt", str(pair.cert)),
        ("/etc/nginx/llm.example.com.key", str(pair.key)),
    ):
        assert printed in server
        server = server.replace(printed, own)
    config = nginx_config(tmp_path, server)
    url = f"https://{LOOPBACK}:{port}"
    words = (nginx, "-p", tmp_path, "-c", config)
    async with serving(f"{url}/v1/models", *words, ca=authority.ca):
        assert (await ask(url, authority.ca))[-1] == "data: [DONE]"


async def test_nginx_with_least_conn(stack: Stack, tmp_path: Path) -> None:
    """It works before, for the servers that the settings name after. Both count each other."""
    before, settings, *_ = (
        each.text for each in page("docs/nginx.md").blocks() if each.language in {"nginx", "yaml"}
    )
    replaced = re.findall(r"server ([\d.]+:\d+)", before)
    assert yaml.safe_load(settings)["endpoints"] == replaced
    for printed, server in zip(replaced, stack.servers, strict=True):
        before = before.replace(printed, server.address)
    port = free_port()
    config = nginx_config(tmp_path, before.replace("listen 8000", f"listen {LOOPBACK}:{port}"))
    async with serving(
        f"http://{LOOPBACK}:{port}/v1/models", program("nginx"), "-p", tmp_path, "-c", config
    ):
        url = f"http://{LOOPBACK}:{port}{CHAT}"

        async def ask_on() -> None:
            """An answer may end before a busy machine looks at the slots."""
            while True:
                answer = await stack.client.post(url, json=chat(10**6, stream=True))
                assert answer.status_code == 200

        async with asyncio.TaskGroup() as group:
            foreign = group.create_task(ask_on())
            await stack.until(
                lambda status: (
                    sum(one["slots"]["foreign"] for one in status["endpoints"].values()) == 1
                )
            )
            assert (await stack.ask()).headers["x-coxswain-endpoint"]
            foreign.cancel()


async def test_caddy_with_tls_in_front(stack: Stack, tmp_path: Path) -> None:
    caddy = program("caddy")
    authority = Authority(tmp_path)
    pair = authority.issue("proxy")
    url = f"https://{LOOPBACK}:{free_port()}"
    site = block("Caddy with TLS", stack)
    assert site.startswith("llm.example.com {\n")
    site = site.replace("llm.example.com {\n", f"{url} {{\n    tls {pair.cert} {pair.key}\n")
    config = tmp_path / "Caddyfile"
    config.write_text(f"{{\n    admin off\n    auto_https off\n}}\n{site}\n")
    words = (caddy, "run", "--config", config, "--adapter", "caddyfile")
    async with serving(f"{url}/v1/models", *words, ca=authority.ca):
        assert (await ask(url, authority.ca))[-1] == "data: [DONE]"
