"""Both orders of the queue over real Envoys and real llama-servers.

Two kinds of chats differ in their system prompt alone, which Coxswain has to learn: one has short
answers, the other long ones. A grammar fixes their lengths, and all name the same `max_tokens`. A
fixed number of clients sends one request after the other, the same ones in each order, so a server
that is disturbed changes the load of none.
"""

import asyncio
import json
import time
from dataclasses import dataclass
from itertools import chain
from random import Random
from statistics import fmean, median

import httpx

from bench import load
from bench.result import Row, Say, Section, at_most
from bench.rig import QUIET, Rig
from extproc.core.queue.flow_order import Discipline
from extproc.demo.model import ModelShape
from extproc.demo.port import LOOPBACK

SERVERS, SLOTS = 2, 2
CONTEXT_TOKENS = 4096
SHAPE = ModelShape(embedding=256, layers=4)
CLIENTS = 14
EACH = 8
"""Requests of each client in a round."""
WARM_UP = 25
"""The same before the first round: sizes are learned from fifty answers on, and kinds of requests
differ when chance does not explain their difference."""
ROUNDS = 5
SHORT_SHARE = 0.8
SHORT, LONG = (4, 30), (150, 350)
"""The least and the most words of an answer of each kind."""
MAX_TOKENS = 400
WORDS = ("stroke", "catch", "drive", "finish", "release", "bow", "stern", "port", "oar", "rigger")
SEED = 5


@dataclass(frozen=True, slots=True)
class Taken:
    """Seconds to the first token, and whether the answer was a short one."""

    first_token_s: float
    is_short: bool


async def measure(say: Say) -> Section:
    """Each round sends the same requests in both orders, one after the other."""
    async with Rig() as rig:
        size = ("-np", str(SLOTS), "-c", str(CONTEXT_TOKENS * SLOTS))
        ports = [await rig.start_llama_server(SHAPE, *size) for _ in range(SERVERS)]
        envoys = {}
        for discipline in Discipline:
            settings = {**QUIET, "queue": {"discipline": discipline.value}}
            _, picker = await rig.start_picker(ports, settings)
            _, envoys[discipline] = await rig.start_envoy(picker)
            say(f"real sizes: learning, {discipline.value}")
            await converse(envoys[discipline], SEED, WARM_UP)
        found: dict[Discipline, list[list[Taken]]] = {each: [] for each in Discipline}
        for number in range(max(1, round(ROUNDS * load.PACE))):
            for discipline, port in envoys.items():
                say(f"real sizes: round {number + 1} of {ROUNDS}, {discipline.value}")
                found[discipline].append(await converse(port, SEED + 1 + number, EACH))
    first_come, by_size = found[Discipline.FIRST_COME], found[Discipline.SHORTEST_EXPECTED]
    return Section(
        title="Short answers first, over real servers",
        method=f"{SERVERS} llama-servers of {SLOTS} slots, {CLIENTS} clients that send one request "
        f"after the other, {SHORT_SHARE:.0%} of them with answers of {SHORT[0]} to {SHORT[1]} "
        f"words, the others {LONG[0]} to {LONG[1]}; medians of {len(by_size)} rounds of each order "
        f"in turn",
        rows=(
            _row("first token, first_come", first_come),
            _row("first token, shortest_expected", by_size),
            at_most(
                "first token, mean, to first_come's",
                median(
                    mean(mine) / mean(theirs)
                    for mine, theirs in zip(by_size, first_come, strict=True)
                ),
                0.75,
            ),
            _row("short answers, first_come", first_come, is_short=True),
            _row("short answers, shortest_expected", by_size, is_short=True),
            _row("long answers, first_come", first_come, is_short=False),
            _row("long answers, shortest_expected", by_size, is_short=False),
        ),
    )


def mean(taken: list[Taken], is_short: bool | None = None) -> float:
    """The mean seconds to the first token, of all or of one kind."""
    return fmean(one.first_token_s for one in taken if is_short in (None, one.is_short))


def _row(what: str, rounds: list[list[Taken]], *, is_short: bool | None = None) -> Row:
    return Row(what=what, value=f"{median(mean(one, is_short) for one in rounds):.2f} s")


async def converse(port: int, seed: int, each: int) -> list[Taken]:
    """All clients, each with its own requests, until the last one has its answers."""
    async with httpx.AsyncClient(
        base_url=f"http://{LOOPBACK}:{port}",
        timeout=300.0,
        trust_env=False,
        limits=httpx.Limits(max_connections=None),
    ) as client:

        async def one(number: int) -> list[Taken]:
            random = Random(1000 * seed + number)
            return [await ask(client, random) for _ in range(each)]

        return list(chain.from_iterable(await asyncio.gather(*map(one, range(CLIENTS)))))


async def ask(client: httpx.AsyncClient, random: Random) -> Taken:
    """One streamed answer, whole. Raises `RuntimeError` for anything else."""
    is_short = random.random() < SHORT_SHARE
    words = random.randint(*(SHORT if is_short else LONG))
    body = {
        "messages": [
            {"role": "system", "content": system_prompt("short" if is_short else "long")},
            {"role": "user", "content": " ".join(random.choices(WORDS, k=20))},
        ],
        "max_tokens": MAX_TOKENS,
        "stream": True,
        "grammar": f'root ::= (" row"){{{words}}}',
    }
    began = time.perf_counter()
    first_at, content = None, []
    async with client.stream("POST", load.PATH, json=body) as answer:
        if answer.status_code != httpx.codes.OK:
            raise RuntimeError(f"status {answer.status_code}: {await answer.aread()!r}")
        async for line in answer.aiter_lines():
            if not line.startswith("data: {"):
                continue
            text = json.loads(line.removeprefix("data: "))["choices"][0]["delta"].get("content")
            if text:
                first_at = first_at or time.perf_counter()
                content.append(text)
    if first_at is None or "".join(content).count("row") != words:
        raise RuntimeError(f"an answer of {len(content)} tokens, not of {words} words")
    return Taken(first_at - began, is_short)


def system_prompt(kind: str) -> str:
    """A long text that is the same for all requests of a kind."""
    random = Random(kind)
    return " ".join(random.choices(WORDS, k=100))
