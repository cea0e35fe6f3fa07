"""Compares a keeper's file with the machine that it is for: programs, files, memory.

What it finds stops no keeper: a model's file may arrive before its model is wanted. Reads the disk.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from extproc.keeper.launchers import Launcher, launcher_of
from extproc.keeper.models_file import PORT_MACRO, ModelEntry, ModelsFile
from extproc.keeper.slot_store import StoreError, check_folder

_FILE_FLAGS: Final = frozenset(
    {
        *("--model", "-m", "--model-draft", "-md", "--mmproj", "-mm", "--lora"),
        *("--chat-template-file", "--grammar-file", "--api-key-file"),
    }
)


def misfits(file: ModelsFile, environment: Mapping[str, str]) -> list[str]:
    """What does not fit this machine, each with the key that it is about. `environment` is the
    keeper's."""
    found = []
    if not file.memory_mb:
        found.append("memory_mb: 0: no model fits; write the memory of this machine")
    if file.save_slots is not None:
        try:
            check_folder(file.save_slots)
        except StoreError as error:
            found.append(str(error))
    for name, entry in file.models.items():
        where = f"models.{name}"
        if not entry.memory_mb:
            found.append(
                f"{where}.memory_mb: 0: it would be loaded beside any other; write what it takes"
            )
        if entry.api_key_env and not environment.get(entry.api_key_env, "").strip():
            found.append(
                f"{where}.api_key_env: the variable {entry.api_key_env} is empty or not set"
            )
        found += (f"{where}.cmd: {text}" for text in _of_command(entry, environment))
    return found


def _of_command(entry: ModelEntry, environment: Mapping[str, str]) -> Iterator[str]:
    path = entry.env.get("PATH", environment.get("PATH", os.defpath))
    if shutil.which(entry.cmd[0], path=path) is None:
        yield f"there is no program {entry.cmd[0]}"
    launcher = launcher_of(entry.cmd)
    if launcher is not None:
        yield from _of_launcher(entry, launcher)
        return
    for file in _files_of(entry):
        if not Path(file).is_file():
            yield f"there is no file {file}"


def _of_launcher(entry: ModelEntry, launcher: Launcher) -> Iterator[str]:
    name = launcher.program
    if not launcher.can_serve:
        yield f"{name}: {launcher.advice}"
    elif launcher.is_detached:
        yield f"{name}: it leaves its container in the background: remove -d"
    elif entry.port is None and not any(PORT_MACRO in word for word in entry.cmd):
        yield f"{name}: nothing is added to it, and it does not say {PORT_MACRO}; {launcher.advice}"


def _files_of(entry: ModelEntry) -> Iterator[str]:
    """The files that the command names."""
    if model := entry.env.get("LLAMA_ARG_MODEL"):
        yield model
    for index, word in enumerate(entry.cmd):
        flag, equals, value = word.partition("=")
        if flag in _FILE_FLAGS:
            following = entry.cmd[index + 1 : index + 2]
            yield from (value,) if equals else following
