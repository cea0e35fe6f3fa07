"""The models of `coxswain up --models`: tiny ones on a machine with memory for one of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import yaml

from extproc.demo.llama_server import LlamaServerError, find_llama_server
from extproc.demo.own_module import own_module
from extproc.demo.port import LOOPBACK, free_ports

FILE: Final = "models.yaml"
MACHINE: Final = "this-machine"
MEMORY_MB: Final = 100
"""Of the machine; each model takes 60, so that there is memory for one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptModels:
    """The models by name, the keeper's file, and a sentence for people."""

    names: tuple[str, ...]
    file: Path
    sentence: str

    def keeper_command(self, picker: str) -> list[str]:
        """Run the keeper of these models; `picker` is its admin port."""
        return [
            *own_module("extproc.cli"),
            "keeper",
            *("--picker", picker),
            *("--models", str(self.file)),
            *("--advertise", LOOPBACK),
            *("--name", MACHINE),
        ]


def write_kept_models(slots: Sequence[int], folder: Path) -> KeptModels:
    """Write a model for each number of slots, and the keeper's file; starts nothing.

    Raises `LlamaServerError` without a llama-server, `OSError` when a file cannot be written.
    """
    binary = find_llama_server()
    if binary is None:
        raise LlamaServerError(
            "--models needs a llama-server: put one on PATH, or build one with `make llama`"
        )
    if find_spec("gguf") is None:
        raise LlamaServerError("--models needs the package gguf; `pip install gguf`")
    from extproc.demo.model import ModelShape, write_model  # noqa: PLC0415  # gguf may be missing

    models = {}
    for number, (port, count) in enumerate(zip(free_ports(len(slots)), slots, strict=True), 1):
        name = f"tiny-{number}"
        path = folder / f"{name}.gguf"
        write_model(path, ModelShape(seed=number), name=name)
        models[name] = {
            "cmd": [str(binary), "--model", str(path), "--threads", "1"],
            "memory_mb": 60,
            "slots": count,
            "context_tokens": 4096,
            "port": port,
        }
    file = folder / FILE
    content = {"memory_mb": MEMORY_MB, "models": models}
    file.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return KeptModels(
        names=tuple(models),
        file=file,
        sentence=f"Models: {', '.join(models)}, tiny and random, on a keeper with memory for one "
        f"({binary}).",
    )
