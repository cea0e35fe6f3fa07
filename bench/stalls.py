"""What a long prefill costs the answer that runs beside it, on a real llama-server.

llama-server puts the next token of each running answer and as much of a prompt as fits into one
batch (`-b`, `--batch-size`), and computes it in steps of `-ub`. So while a prompt is read, answers
beside it get a token for each batch.
"""

import asyncio
import time
from itertools import pairwise
from random import Random
from statistics import median

import httpx

from bench import load
from bench.result import Row, Say, Section
from bench.rig import READY_S, Rig
from extproc.demo.model import ModelShape
from extproc.demo.port import LOOPBACK

SHAPE = ModelShape(embedding=256, layers=8)
SIZES = ((2048, 512), (2048, 64), (512, 512), (128, 128))
"""Batches in tokens: `-b` and `-ub`; the first are llama-server's own."""
WORDS = 1_500
"""Of about six tokens each."""
CONTEXT_TOKENS = 32_768
ROUNDS = 5
WORDS_ONE_OF = ("stroke", "catch", "drive", "finish")


async def measure(say: Say) -> Section:
    """A fresh server for each size of batches."""
    rows = []
    for batch, step in SIZES:
        name = f"-b {batch} -ub {step}"
        say(f"stalls: {name}")
        async with Rig() as rig:
            size = ("-np", "2", "-c", str(2 * CONTEXT_TOKENS), *name.split())
            rows += await _rows(await rig.start_llama_server(SHAPE, *size), name)
    return Section(
        title="Stalls",
        method=f"one llama-server of two slots; an answer streams while a prompt of {WORDS:,} "
        f"words is read in the other slot; medians of {ROUNDS} prompts",
        rows=tuple(rows),
    )


class Answer:
    """An answer that streams on and on; `tokens` are the times at which each came."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.tokens: list[float] = []
        self._client = client
        self._came = asyncio.Event()

    async def run(self) -> None:
        body = {"prompt": "row", "n_predict": 25_000, "ignore_eos": True, "stream": True}
        async with self._client.stream("POST", "/completion", json=body) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: {"):
                    self.tokens.append(time.perf_counter())
                    self._came.set()

    async def more(self, count: int) -> None:
        """Wait for that many more tokens."""
        wanted = len(self.tokens) + count
        async with asyncio.timeout(60):
            while len(self.tokens) < wanted:
                self._came.clear()
                await self._came.wait()


async def _rows(port: int, name: str) -> list[Row]:
    losses, pauses_s, prefills_s = [], [], []
    random = Random(3)
    async with httpx.AsyncClient(
        base_url=f"http://{LOOPBACK}:{port}", timeout=300.0, trust_env=False
    ) as client:
        async with asyncio.timeout(READY_S):
            while (await client.get("/health")).is_error:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.1)
        answer = Answer(client)
        running = asyncio.create_task(answer.run())
        for _ in range(max(1, round(ROUNDS * load.PACE))):
            await answer.more(100)
            alone_s = (answer.tokens[-1] - answer.tokens[-100]) / 99
            began = time.perf_counter()
            await _read(client, random)
            ended = time.perf_counter()
            await answer.more(1)
            beside = [at for at in answer.tokens if began <= at <= ended]
            prefills_s.append(ended - began)
            losses.append(1.0 - len(beside) * alone_s / (ended - began))
            pauses_s.append(max(b - a for a, b in pairwise([began, *beside, answer.tokens[-1]])))
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return [
        Row(what=f"{name}: the answer's loss while it is read", value=f"{median(losses):.2f}"),
        Row(what=f"{name}: longest pause", value=f"{median(pauses_s):.2f} s"),
        Row(what=f"{name}: reading the prompt", value=f"{median(prefills_s):.2f} s"),
    ]


async def _read(client: httpx.AsyncClient, random: Random) -> None:
    prompt = " ".join(random.choices(WORDS_ONE_OF, k=WORDS))
    answer = await client.post("/completion", json={"prompt": prompt, "n_predict": 1})
    if answer.status_code != httpx.codes.OK:
        raise RuntimeError(f"status {answer.status_code}: {answer.text}")
