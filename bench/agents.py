"""Agents that start all at once, over real Envoy, the picker and real llama-servers that were
started plainly: the order of arrival and started sessions first, in turns, with the same calls.

What was cached is what the servers say of each answer. Beside the slots they keep no prompts, as a
tiny model's would all fit into what a real one's 8 GiB cannot hold.
"""

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final

import aiohttp

from bench import load
from bench.result import Row, Say, Section, at_least, at_most, measured
from bench.rig import Rig
from extproc.demo.llama_server import LlamaServerError, find_llama_server
from extproc.demo.model import ModelShape, write_model
from extproc.demo.port import LOOPBACK, free_ports

SERVERS = 2
CONTEXT_TOKENS = 16_384
SHAPE = ModelShape(embedding=256, layers=6, heads=8)
AGENTS = 32
CALLS = (4, 8)
TASK_CHARS, MORE_CHARS = 1_000, 250
"""About a token each."""
ANSWER_TOKENS = 24
PAUSES_S = (0.2, 2.0)
ROUNDS = 2
LONGEST_WAIT_S = 900
ORDERS: Final[dict[str, dict[str, Any]]] = {
    "first come": {"discipline": "first_come"},
    "started first": {"discipline": "started_first", "max_overtaken_s": LONGEST_WAIT_S},
}
SEED = 3
CHAT = "/v1/chat/completions"


@dataclass(slots=True)
class Played:
    """What became of the calls of one run, in tokens and seconds."""

    cached: int = 0
    prompts: int = 0
    makespan_s: float = 0.0
    agents_s: list[float] = field(default_factory=list)
    later_waits_s: list[float] = field(default_factory=list)

    @property
    def share(self) -> float:
        return self.cached / self.prompts

    def row(self, what: str) -> Row:
        value = (
            f"cached {100 * self.share:.0f}%; makespan {self.makespan_s:.0f} s; an agent "
            f"p50 {median(self.agents_s):.1f} s; later calls wait {fmean(self.later_waits_s):.1f} s"
        )
        return Row(what=what, value=value)


async def measure(say: Say) -> Section:
    """Each order as often, in turns. Raises `LlamaServerError` without a llama-server."""
    binary = find_llama_server()
    if binary is None:
        raise LlamaServerError("llama-server was not found; `make llama` builds it")
    agents = max(8, round(AGENTS * load.PACE))
    runs: dict[str, list[Played]] = {name: [] for name in ORDERS}
    for number in range(ROUNDS):
        for name, order in ORDERS.items():
            say(f"agents: round {number + 1} of {ROUNDS}, {name}")
            runs[name].append(await _play(binary, order, agents, SEED + number))
    return _section(runs, agents)


def _section(runs: dict[str, list[Played]], agents: int) -> Section:
    usual, started = runs.values()

    def ratio(of: Callable[[Played], float]) -> float:
        return median(of(new) / of(old) for new, old in zip(started, usual, strict=True))

    low, high = CALLS
    return Section(
        title="Agents on real servers",
        method=f"{SERVERS} llama-servers, started plainly but for a context of {CONTEXT_TOKENS:,} "
        f"tokens and no prompts kept beside the slots; {agents} agents at once, of {low} to {high} "
        f"calls with prompts of {TASK_CHARS:,} tokens that grow by {MORE_CHARS} and the answer of "
        f"{ANSWER_TOKENS}, and pauses of {PAUSES_S[0]:g} to {PAUSES_S[1]:g} s; {ROUNDS} pairs, "
        "medians",
        rows=(
            *(
                one.row(f"round {number}, {name}")
                for number, pair in enumerate(zip(*runs.values(), strict=True), 1)
                for name, one in zip(runs, pair, strict=True)
            ),
            at_least("share of cached tokens / first come's", ratio(lambda one: one.share), 1.0),
            at_most("makespan / first come's", ratio(lambda one: one.makespan_s), 1.0),
            at_most("p50 of an agent's time", ratio(lambda one: median(one.agents_s)), 1.0),
            measured("wait of later calls", ratio(lambda one: fmean(one.later_waits_s))),
        ),
    )


async def _play(binary: Path, order: dict[str, Any], agents: int, seed: int) -> Played:
    """One run, with servers that have cached nothing yet."""
    played = Played()
    async with Rig() as rig, aiohttp.ClientSession(timeout=aiohttp.ClientTimeout()) as session:
        model = rig.folder / "model.gguf"
        write_model(model, SHAPE)
        servers = free_ports(SERVERS)
        for port in servers:
            command: list[str | Path] = [binary, "--model", model, "--port", str(port)]
            command += ["--ctx-size", str(CONTEXT_TOKENS), "--cache-ram", "0"]
            command += ["--threads", "1", "--no-webui"]
            await rig.start_listening(f"server-{port}", command, port)
        queue = {**order, "timeout_s": LONGEST_WAIT_S}
        timeouts = {"max_message_timeout_s": 2 * LONGEST_WAIT_S}
        settings = {"log": {"level": "warning"}, "queue": queue, "envoy": timeouts}
        _, grpc = await rig.start_picker(servers, settings)
        _, envoy = await rig.start_envoy(grpc)
        url = f"http://{LOOPBACK}:{envoy}{CHAT}"
        await _until_served(session, url)
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number in range(agents):
                source = random.Random(1000 * seed + number)
                group.create_task(_agent(session, url, source, f"agent-{number}", played))
        played.makespan_s = time.perf_counter() - began
    return played


async def _until_served(session: aiohttp.ClientSession, url: str) -> None:
    """Until both servers have loaded their model and Envoy knows them, nothing can be compared."""
    body = {"messages": [{"role": "user", "content": "begin"}], "max_tokens": 1}
    async with asyncio.timeout(60.0):
        seen: set[str] = set()
        while len(seen) < SERVERS:
            async with asyncio.TaskGroup() as group:
                asked = [group.create_task(_ask(session, url, body)) for _ in range(2 * SERVERS)]
            seen |= {one.result()[1].get("x-coxswain-endpoint", "") for one in asked} - {""}


async def _ask(
    session: aiohttp.ClientSession, url: str, body: dict[str, Any], session_id: str = ""
) -> tuple[dict[str, Any], dict[str, str]]:
    headers = {"x-session-id": session_id} if session_id else {}
    async with session.post(url, json=body, headers=headers) as answer:
        return await answer.json(), dict(answer.headers)


async def _agent(
    session: aiohttp.ClientSession, url: str, source: random.Random, name: str, played: Played
) -> None:
    """Call after call, with a longer prompt each time."""
    began = time.perf_counter()
    messages = [{"role": "user", "content": _text(source, TASK_CHARS)}]
    for call in range(source.randint(*CALLS)):
        body = {"messages": messages, "max_tokens": ANSWER_TOKENS, "ignore_eos": True}
        answer, headers = await _ask(session, url, body, name)
        timings = answer["timings"]
        played.cached += timings["cache_n"]
        played.prompts += timings["cache_n"] + timings["prompt_n"]
        if call:
            played.later_waits_s.append(float(headers["x-coxswain-queue-ms"]) / 1000)
        said = {"role": "assistant", "content": answer["choices"][0]["message"]["content"]}
        messages = [*messages, said, {"role": "user", "content": _text(source, MORE_CHARS)}]
        await asyncio.sleep(source.uniform(*PAUSES_S))
    played.agents_s.append(time.perf_counter() - began)


def _text(source: random.Random, chars: int) -> str:
    return "".join(source.choice("abcdefghij ") for _ in range(chars))
