"""The file of a keeper: the models of one machine, and how to start a llama-server for each.

It is checked as the settings are: every mistake is reported with its line.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError
from pydantic_core import PydanticCustomError

from extproc.core.address import MAX_PORT
from extproc.core.observation import MAX_SLOTS
from extproc.keeper.command_line import split_command
from extproc.settings.keys import problem_of
from extproc.settings.problems import KeyPath, Problem, SettingsError, dotted
from extproc.settings.section import Section
from extproc.settings.yaml_file import Document, parse_yaml, read_yaml

MAX_MODELS: Final = 1000
MAX_NAME_CHARS: Final = 253
MAX_MB: Final = 100_000_000
PORT_MACRO: Final = "${PORT}"
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _name(text: str) -> str:
    if not 0 < len(text) <= MAX_NAME_CHARS or not text.isprintable() or text != text.strip():
        raise PydanticCustomError(
            "name", f"a name has 1 to {MAX_NAME_CHARS} printable characters, without outer blanks"
        )
    return text


def _variable(text: str) -> str:
    if _VARIABLE.fullmatch(text) is None:
        raise PydanticCustomError("variable", "the name of an environment variable is expected")
    return text


def _words(value: object) -> object:
    """A command is a list of arguments, or a text: see `command_line`."""
    if not isinstance(value, str):
        return value
    try:
        return split_command(value)
    except ValueError as error:
        raise PydanticCustomError(
            "command", "this is not a command: {reason}", {"reason": str(error)}
        ) from None


Name = Annotated[str, AfterValidator(_name)]
Variable = Annotated[str, AfterValidator(_variable)]
Command = Annotated[tuple[str, ...], BeforeValidator(_words), Field(min_length=1)]


class ModelEntry(Section):
    """One model. Its server is started with `cmd`."""

    cmd: Command
    """The command: a list, or a text that is split into arguments without a shell. `${PORT}` and
    `${HOST}` stand for where the server must listen."""
    slots: int = Field(default=1, ge=1, le=MAX_SLOTS)
    """The number of requests that it serves at once, `--parallel`."""
    context_tokens: int = Field(default=0, ge=0, le=10**9)
    """The context of one slot. 0 leaves it to the command."""
    memory_mb: int = Field(ge=0, le=MAX_MB)
    """The memory that it takes while it is loaded, in MiB."""
    aliases: tuple[Name, ...] = ()
    """Further names under which clients may ask for it."""
    ttl_s: float = Field(default=0.0, ge=0, le=7 * 24 * 3600)
    """Seconds without requests after which it is unloaded; 0 for never."""
    env: dict[Variable, str] = Field(default_factory=dict)
    """Environment variables of its server, besides those of the keeper."""
    preload: bool = False
    """Whether to load it when the keeper starts."""
    exclusive_with: tuple[Name, ...] = ()
    """Models that must not be loaded at the same time, whatever the memory."""
    port: int | None = Field(default=None, ge=1, le=MAX_PORT)
    """The port of its server; by default the next one from `first_port`."""
    api_key_env: Variable | None = None
    """The environment variable of the keeper with the server's API key, if the command sets one."""
    load_timeout_s: float = Field(default=600.0, gt=0, le=7 * 24 * 3600)
    """Seconds in which the server must be ready."""


class ModelsFile(Section):
    """The content of the file. `models` are in the order of the file."""

    memory_mb: int = Field(ge=0, le=MAX_MB)
    """The memory that all loaded models may take together, in MiB."""
    first_port: int = Field(default=5800, ge=1, le=MAX_PORT)
    """The port of the first model; the others have the following ones."""
    save_slots: Path | None = None
    """The folder in which prompt caches are kept while their model is not loaded; none are kept
    without it. Only the keeper's user may have access."""
    save_slots_mb: int = Field(default=10_240, ge=1, le=MAX_MB)
    """What the files in that folder may take together, in MiB; the oldest are deleted first."""
    models: dict[Name, ModelEntry] = Field(min_length=1, max_length=MAX_MODELS)
    """The models by name."""

    def ports(self, before: Mapping[str, int] = MappingProxyType({})) -> dict[str, int]:
        """The port of each model. One model keeps its port of `before`, and no other gets it while
        the keeper runs, so what is known about an address is about one model."""
        taken = {entry.port for entry in self.models.values() if entry.port is not None}
        kept = {name: port for name, port in before.items() if port not in taken}
        taken |= set(before.values())
        ports: dict[str, int] = {}
        following = self.first_port
        for name, entry in self.models.items():
            if entry.port is not None:
                ports[name] = entry.port
                continue
            if name in kept:
                ports[name] = kept[name]
                continue
            while following in taken:
                following += 1
            ports[name] = following
            following += 1
        return ports


def read_models(file: Path) -> ModelsFile:
    """Read a keeper's file. Blocks on the disk; raises `SettingsError` with every mistake."""
    return _checked(read_yaml(file))


def parse_models(content: bytes, name: str) -> ModelsFile:
    """The same for its content; problems are reported under `name`."""
    return _checked(parse_yaml(content, name))


def _checked(document: Document) -> ModelsFile:
    try:
        found = ModelsFile.model_validate(document.values)
    except ValidationError as error:
        raise SettingsError(
            problem_of(detail, ModelsFile, document.place_of(detail["loc"]))
            for detail in error.errors(include_url=False)
        ) from None
    problems = [
        Problem(where=document.place_of(path), key=dotted(path), message=text)
        for path, text in _contradictions(found)
    ]
    if problems:
        raise SettingsError(problems)
    return found


def _contradictions(file: ModelsFile) -> list[tuple[KeyPath, str]]:
    """What each value allows by itself, and all of them together do not."""
    found: list[tuple[KeyPath, str]] = []
    if file.save_slots is not None and not file.save_slots.is_absolute():
        found.append((("save_slots",), "write the whole path, which begins with /"))
    owner = {name: name for name in file.models}
    preloaded_mb = 0
    for name, entry in file.models.items():
        path: KeyPath = ("models", name)
        for index, alias in enumerate(entry.aliases):
            if owner.setdefault(alias, name) != name or alias == name:
                text = f"{alias} is a name of the model {owner[alias]} already"
                found.append(((*path, "aliases", index), text))
        found += [
            ((*path, "exclusive_with", index), f"there is no other model {other}")
            for index, other in enumerate(entry.exclusive_with)
            if other not in file.models or other == name
        ]
        if entry.memory_mb > file.memory_mb:
            text = f"it is larger than the machine's memory_mb, {file.memory_mb}"
            found.append(((*path, "memory_mb"), text))
        if _has_fixed_port(entry.cmd):
            text = f"write --port {PORT_MACRO}: the keeper chooses the port"
            found.append(((*path, "cmd"), text))
        preloaded_mb += entry.memory_mb if entry.preload else 0
    if preloaded_mb > file.memory_mb:
        text = f"the preloaded models take {preloaded_mb} MiB, more than memory_mb"
        found.append((("models",), text))
    ports = file.ports()
    by_port: dict[int, str] = {}
    for name, port in ports.items():
        if by_port.setdefault(port, name) != name:
            found.append((("models", name, "port"), f"{port} is the port of {by_port[port]}"))
        if port > MAX_PORT:
            found.append((("first_port",), "there are more models than ports after it"))
    return found


def _has_fixed_port(words: tuple[str, ...]) -> bool:
    if any(PORT_MACRO in word for word in words):
        return False
    return any(word == "--port" or word.startswith("--port=") for word in words)
