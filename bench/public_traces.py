"""Traces that others have published, read from a folder. None of them is part of this project:

azure2023/AzureLLMInferenceTrace_{conv,code}.csv   github.com/Azure/AzurePublicDataset, data/;
                                                   CC-BY 4.0, Splitwise, ISCA 2024
mooncake/conversation_trace.jsonl                  github.com/kvcache-ai/Mooncake,
                                                   FAST25-release/traces/; FAST 2025
"""

import csv
import json
from collections.abc import Callable, Mapping
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

BATCH_S: Final = 3.0
"""Mooncake's times come in batches: they are spread over the seconds until the next one."""
MOONCAKE_BLOCK_TOKENS: Final = 512


class TraceRow(NamedTuple):
    """One request: when, the tokens of its prompt and its answer, and the ids of the blocks of its
    prompt; two prompts share their beginning as far as their blocks are equal. `conversation`
    names what a client would hash, empty where a trace does not say it."""

    at_s: float
    prompt_tokens: int
    answer_tokens: int
    blocks: tuple[int, ...] = ()
    conversation: str = ""


def read_azure(path: Path) -> list[TraceRow]:
    """Rows in the order of arrival, from 0 s. Raises `OSError`, and what a damaged file raises."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    times = [datetime.fromisoformat(row["TIMESTAMP"][:26]) for row in rows]
    return [
        TraceRow(
            (at - times[0]).total_seconds(),
            int(row["ContextTokens"]),
            max(1, int(row["GeneratedTokens"])),
        )
        for at, row in zip(times, rows, strict=True)
    ]


def read_mooncake(path: Path) -> list[TraceRow]:
    """The same, with blocks of `MOONCAKE_BLOCK_TOKENS`. Nearly all prompts begin with one of few
    first blocks, so the second names the conversation."""
    random = Random(1)
    with path.open(encoding="utf-8") as file:
        given = [json.loads(line) for line in file]
    rows = []
    for at_ms, batch in groupby(given, key=itemgetter("timestamp")):
        together = list(batch)
        later_s = sorted(random.uniform(0.0, BATCH_S) for _ in together)
        rows += [
            _mooncake_row(at_ms / 1000 + late_s, row)
            for late_s, row in zip(later_s, together, strict=True)
        ]
    return rows


def _mooncake_row(at_s: float, row: Mapping[str, Any]) -> TraceRow:
    blocks = tuple(row["hash_ids"])
    conversation = str(blocks[min(1, len(blocks) - 1)])
    return TraceRow(at_s, row["input_length"], max(1, row["output_length"]), blocks, conversation)


PUBLIC_TRACES: Final[dict[str, tuple[str, Callable[[Path], list[TraceRow]]]]] = {
    "Azure, conversations": ("azure2023/AzureLLMInferenceTrace_conv.csv", read_azure),
    "Azure, code": ("azure2023/AzureLLMInferenceTrace_code.csv", read_azure),
    "Mooncake, conversations": ("mooncake/conversation_trace.jsonl", read_mooncake),
}


def read_public_traces(folder: Path) -> dict[str, list[TraceRow]]:
    """All of them, by name."""
    return {name: read(folder / path) for name, (path, read) in PUBLIC_TRACES.items()}
