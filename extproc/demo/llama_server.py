"""Finds a `llama-server`: configured, on PATH, or in the cache of `llama_build`."""

import os
import shutil
from pathlib import Path

LLAMA_CPP_PYTHON = "0.3.36"
"""The release of llama-cpp-python whose source distribution carries the llama.cpp that we build."""

LLAMA_SERVER_VARIABLE = "COXSWAIN_LLAMA_SERVER"


class LlamaServerError(Exception):
    """A `llama-server` was named but is not there, or could not be built; the text has a remedy."""


def cache_folder() -> Path:
    """The folder that holds every cached build (it may not exist yet)."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The base directory specification says to ignore a relative path.
    root = Path(base) if base.startswith("/") else Path.home() / ".cache"
    return root / "coxswain" / "llama-server"


def cached_llama_server() -> Path:
    """Where the build of the pinned release lies, whether it was made yet or not."""
    return cache_folder() / LLAMA_CPP_PYTHON / "bin" / "llama-server"


def find_llama_server() -> Path | None:
    """Find a runnable `llama-server`: $COXSWAIN_LLAMA_SERVER, then PATH, then our cache.

    Reads the environment and the file system, starts nothing. None when there is none.
    Raises `LlamaServerError` when the variable names something that cannot be run: who
    names a server wants that one and no other.
    """
    named = os.environ.get(LLAMA_SERVER_VARIABLE, "")
    if named:
        if not _is_executable(Path(named)):
            raise LlamaServerError(
                f"{LLAMA_SERVER_VARIABLE} is set to {named}, which is not an executable file; "
                "correct it or unset it"
            )
        return Path(named)
    on_path = shutil.which("llama-server")
    if on_path is not None:
        return Path(on_path)
    cached = cached_llama_server()
    return cached if _is_executable(cached) else None


def _is_executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
