"""llama-server's JSON responses, built from the state of the simulator. Pure."""

import hashlib
import math

from extproc.demo.simulator.body import Json
from extproc.demo.simulator.options import SimulatorOptions
from extproc.demo.simulator.slots import Slot, Slots, Task
from extproc.demo.vocabulary import CHAT_TEMPLATE, WORDS

FINGERPRINT = "coxswain-simulator"
EMBEDDING_LENGTH = 32


def word(task: Task, number: int) -> str:
    """The text of a token; the first one says that the response is simulated."""
    if number == 0:
        return "(simulated answer)"
    return " " + WORDS[(task.id * 7 + number * 11) % len(WORDS)]


def text_of(task: Task) -> str:
    """The text that a task has generated so far."""
    return "".join(word(task, number) for number in range(task.decoded))


def slots(table: Slots, options: SimulatorOptions) -> list[Json]:
    return [_slot(slot, options) for slot in table.all]


def _slot(slot: Slot, options: SimulatorOptions) -> Json:
    fields: Json = {
        "id": slot.id,
        "n_ctx": options.context_tokens,
        "speculative": False,
        "is_processing": slot.is_processing,
    }
    task = slot.last
    if task is None:
        return fields
    decoded = task.decoded if slot.is_processing else 0
    fields |= {
        "id_task": task.id,
        "n_prompt_tokens": slot.held_tokens,
        "n_prompt_tokens_processed": task.prompt_tokens - task.cached_tokens,
        "n_prompt_tokens_cache": task.cached_tokens,
        "params": {**_PARAMS, **task.params, "max_tokens": task.tokens, "n_predict": task.tokens},
        "next_token": [
            {
                "has_next_token": slot.is_processing,
                "has_new_line": False,
                "n_remain": task.tokens - decoded if slot.is_processing else -1,
                "n_decoded": decoded,
            }
        ],
    }
    return fields


def props(options: SimulatorOptions) -> Json:
    return {
        "default_generation_settings": {
            "params": {**_PARAMS, "max_tokens": -1, "n_predict": -1},
            "n_ctx": options.context_tokens,
        },
        "total_slots": options.slots,
        "model_alias": options.alias,
        "model_ftype": "simulated",
        "model_path": f"{options.alias}.simulated",
        "modalities": {"vision": False, "video": False, "audio": False},
        "endpoint_slots": options.shows_slots,
        "endpoint_props": False,
        "endpoint_metrics": options.shows_metrics,
        "ui": False,
        "chat_template": CHAT_TEMPLATE,
        "bos_token": "<s>",
        "eos_token": "</s>",
        "build_info": FINGERPRINT,
        "is_sleeping": False,
    }


def metrics(slots: Slots) -> str:
    """Of all that llama-server serves there, the gauges of requests."""
    gauges = {
        "processing": sum(slot.is_processing for slot in slots.all),
        "deferred": slots.deferred,
    }
    return "".join(
        f"# HELP llamacpp:requests_{name} Number of requests {name}\n"
        f"# TYPE llamacpp:requests_{name} gauge\n"
        f"llamacpp:requests_{name} {count}\n"
        for name, count in gauges.items()
    )


def models(options: SimulatorOptions, started_at: int) -> Json:
    meta = {"n_vocab": 257, "n_ctx": options.context_tokens, "n_ctx_train": options.context_tokens}
    entry = {"id": options.alias, "aliases": [options.alias], "tags": [], "object": "model"}
    name = {"name": options.alias, "model": options.alias, "type": "model"}
    return {
        "models": [{**name, "capabilities": ["completion"]}],
        "object": "list",
        "data": [{**entry, "created": started_at, "owned_by": "llamacpp", "meta": meta}],
    }


def timings(task: Task) -> Json:
    read_ms = (task.prefilled_at - task.began_at) * 1000
    generation_ms = max(0.0, task.ended_at - task.prefilled_at) * 1000
    read = task.prompt_tokens - task.cached_tokens
    return {
        "cache_n": task.cached_tokens,
        "prompt_n": read,
        "prompt_ms": read_ms,
        "prompt_per_token_ms": read_ms / read,
        "prompt_per_second": 1000 * read / max(read_ms, 1e-6),
        "predicted_n": task.decoded,
        "predicted_ms": generation_ms,
        "predicted_per_token_ms": generation_ms / max(1, task.decoded),
        "predicted_per_second": 1000 * task.decoded / max(generation_ms, 1e-6),
    }


def usage(tasks: list[Task]) -> Json:
    prompt = tasks[0].prompt_tokens
    generated = sum(task.decoded for task in tasks)
    return {
        "completion_tokens": generated,
        "prompt_tokens": prompt,
        "total_tokens": prompt + generated,
        "prompt_tokens_details": {"cached_tokens": tasks[0].cached_tokens},
    }


def completion(task: Task, options: SimulatorOptions, *, content: str) -> Json:
    """llama.cpp's own `/completion`, whole or as the last event of a stream."""
    return {
        "index": 0,
        "content": content,
        "tokens": [],
        "id_slot": task.slot_id,
        "stop": True,
        "model": options.alias,
        "tokens_predicted": task.decoded,
        "tokens_evaluated": task.prompt_tokens,
        "generation_settings": {**_PARAMS, **task.params, "n_predict": task.tokens},
        "truncated": False,
        "stop_type": "limit",
        "stopping_word": "",
        "tokens_cached": task.prompt_tokens + task.decoded,
        "timings": timings(task),
        "system_fingerprint": FINGERPRINT,
    }


def completion_event(task: Task, number: int) -> Json:
    return {
        "index": 0,
        "content": word(task, number),
        "tokens": [number],
        "stop": False,
        "id_slot": -1,
        "tokens_predicted": number + 1,
        "tokens_evaluated": task.prompt_tokens,
    }


def embedding(text: bytes) -> list[float]:
    """A unit vector that is the same for the same text."""
    digest = hashlib.blake2b(text, digest_size=EMBEDDING_LENGTH).digest()
    raw = [byte - 127.5 for byte in digest]
    length = math.hypot(*raw)
    return [value / length for value in raw]


def similarity(one: bytes, other: bytes) -> float:
    """The product of both vectors: 1 for equal texts."""
    return math.fsum(a * b for a, b in zip(embedding(one), embedding(other), strict=True))


_PARAMS: Json = {
    "seed": 4294967295,
    "temperature": 0.800000011920929,
    "top_k": 40,
    "top_p": 0.949999988079071,
    "min_p": 0.05000000074505806,
    "n_keep": 0,
    "n_discard": 0,
    "ignore_eos": True,
    "stream": False,
    "lora": [],
}
