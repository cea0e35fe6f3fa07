"""Which server a saved slot belongs to: a digest of everything that gives its bytes their meaning.

llama-server's files carry no identity. A server of another model of the same shape takes one
without an error, and answers nonsense. So a file is restored only under the digest under which it
was saved.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

SAMPLES: Final = 64
SAMPLE_BYTES: Final = 4096
MAX_FILES: Final = 256
_PART: Final = re.compile(r"(.*)-(\d{5})-of-(\d{5})(\.gguf)")
_META: Final = ("n_params", "size", "n_vocab", "n_embd", "n_ctx_train", "vocab_type")


def identity_of(
    command: Iterable[str],
    environment: Mapping[str, str],
    props: Mapping[str, Any],
    models: Mapping[str, Any],
) -> str | None:
    """The digest of a running server: its whole command with the content of every file in it, its
    environment, and what `/props` and `/v1/models` say of its model.

    None if its model is no file that can be read here: then nothing proves which model it is.
    Blocks on the disk. The content is sampled: a model has gigabytes.
    """
    model = props.get("model_path")
    if not isinstance(model, str) or (found := _resolved(model)) is None:
        return None
    words = list(command)
    files = {found, *(path for word in words for path in _files_in(word))}
    settings = props.get("default_generation_settings")
    listed = models.get("data")
    meta = listed[0].get("meta") if isinstance(listed, list) and listed else None
    parts = {
        "command": words,
        "environment": dict(sorted(environment.items())),
        "files": sorted(_digest(path) for path in _with_parts(files)),
        "build": props.get("build_info"),
        "model": model,
        "slots": props.get("total_slots"),
        "context": settings.get("n_ctx") if isinstance(settings, Mapping) else None,
        "meta": {key: meta.get(key) for key in _META} if isinstance(meta, Mapping) else None,
    }
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _files_in(word: str) -> Iterable[Path]:
    """The files that an argument names: `x`, `--lora=x`, `x:0.5`, `x,y`."""
    _, _, value = word.partition("=")
    for text in {word, value, *re.split(r"[,:]", value or word)}:
        if text and (found := _resolved(text)) is not None:
            yield found


def _resolved(text: str) -> Path | None:
    try:
        path = Path(text).resolve(strict=True)
    except (OSError, ValueError, RuntimeError):
        return None
    return path if path.is_file() and os.access(path, os.R_OK) else None


def _with_parts(files: Iterable[Path]) -> set[Path]:
    """With all parts of models that are split: a command names the first one alone."""
    found: set[Path] = set()
    for path in files:
        found.add(path)
        if (split := _PART.fullmatch(path.name)) is not None:
            pattern = f"{split[1]}-*-of-{split[3]}{split[4]}"
            found.update(each for each in sorted(path.parent.glob(pattern))[:MAX_FILES])
    return found


def _digest(path: Path) -> str:
    """Path, size, time of change, and blocks from the whole of its content."""
    status = path.stat()
    content = hashlib.sha256()
    with path.open("rb") as file:
        step = max(SAMPLE_BYTES, status.st_size // SAMPLES)
        for start in range(0, status.st_size, step):
            file.seek(start)
            content.update(file.read(SAMPLE_BYTES))
        file.seek(max(0, status.st_size - SAMPLE_BYTES))
        content.update(file.read())
    return f"{path}|{status.st_size}|{status.st_mtime_ns}|{content.hexdigest()}"
