"""Parses the JSON responses of llama-server. Pure: bytes in, a reading or a `ParseError` out.

Only the fields that the fleet needs are read; all others are ignored, so a newer llama.cpp that
reports more works. The fields must have the right type and possible values. A response with one
invalid field is rejected as a whole.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final

from extproc.core.observation import (
    MAX_COUNT,
    MAX_ENTRIES,
    MAX_SLOTS,
    AdapterReading,
    EndedTask,
    ModelState,
    SlotReading,
)
from extproc.runners import answers
from extproc.runners.answers import ParseError
from extproc.runners.llama_server.arguments import ContextArguments, context_arguments

MAX_ADAPTERS = 65_536
"""Their ids are smaller: each is an index in the list of the server."""
MAX_ALIASES = 64
MAX_NAMES = 4_096
"""Of all models of one list together, names and aliases; aliases beyond it are not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotsReading:
    """GET /slots. `newest_task` is the highest task number that any slot remembers, None where it
    may have been forgotten.

    `busy` is what the busy ones report about their requests, `ended` what idle ones still do.
    """

    slots: int
    busy_slots: int
    newest_task: int | None
    busy: tuple[SlotReading, ...] = ()
    ended: tuple[EndedTask, ...] = ()
    context_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PropsReading:
    """GET /props. `is_asleep` is None for a build without sleep.

    `max_models` is how many models a router has loaded at once, 0 for no limit. `process` is a
    digest of what differs between processes; `is_process_unique` says
    whether another process of the same build and model is certain to have another one.
    """

    is_router: bool
    total_slots: int | None
    shows_slots: bool
    shows_counters: bool
    is_asleep: bool | None
    model: str | None
    autoloads: bool
    max_models: int
    process: str
    is_process_unique: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """One entry of GET /v1/models. `may_sleep` and `context` only where a router shows the model's
    arguments; `slot_tokens` is the context of one slot, of a model that is loaded."""

    name: str
    aliases: tuple[str, ...]
    status: ModelState
    may_sleep: bool
    context: ContextArguments | None = None
    slot_tokens: int | None = None


def parse_slots(body: bytes) -> SlotsReading:
    """Parse /slots. Raises only `ParseError`."""
    entries = answers.decode(body)
    if not isinstance(entries, list):
        raise ParseError("/slots is not a list")
    if not entries:
        raise ParseError("/slots is an empty list")
    if len(entries) > MAX_SLOTS:
        raise ParseError(f"/slots has more than {MAX_SLOTS} slots")
    busy = 0
    newest: int | None = None
    remembers_ended = False
    readings: list[SlotReading] = []
    ended: list[EndedTask] = []
    for entry in entries:
        if not isinstance(entry, dict):
            raise ParseError("/slots has an entry that is not a slot")
        is_processing = entry.get("is_processing")
        if not isinstance(is_processing, bool):
            raise ParseError("/slots has an entry whose is_processing is not true or false")
        busy += is_processing
        task = entry.get("id_task")
        if type(task) is not int or task > MAX_COUNT:
            continue
        if task >= 0 and (newest is None or task > newest):
            newest = task
        remembers_ended = remembers_ended or (not is_processing and task >= 0)
        if is_processing and len(readings) < MAX_ENTRIES:
            readings.append(_slot_reading(entry, task))
        elif not is_processing and task >= 0 and len(ended) < MAX_ENTRIES:
            held = _count(entry, "n_prompt_tokens")
            if held:
                ended.append(EndedTask(task_id=task, held_tokens=held))
    # Idle slots of some builds forget their tasks. The newest may be one of these: a lower number
    # is then no sign of another process.
    is_newest_known = remembers_ended or busy == len(entries)
    return SlotsReading(
        slots=len(entries),
        busy_slots=busy,
        newest_task=newest if is_newest_known else None,
        busy=tuple(readings),
        ended=tuple(ended),
        context_tokens=_count(entries[0], "n_ctx"),
    )


def parse_adapters(body: bytes) -> tuple[AdapterReading, ...]:
    """Parse /lora-adapters. Raises only `ParseError`.

    A path that ends in no file's name, such as `/`, names no adapter.
    """
    entries = answers.decode(body)
    if not isinstance(entries, list):
        raise ParseError("/lora-adapters is not a list")
    found: dict[str, AdapterReading] = {}
    for entry in entries[:MAX_ENTRIES]:
        path = answers.name(entry.get("path")) if isinstance(entry, dict) else None
        number = _count(entry, "id") if path is not None else None
        if path is None or number is None or number >= MAX_ADAPTERS:
            raise ParseError("/lora-adapters has an entry that is not an adapter")
        name = PurePath(path.replace("\\", "/")).stem
        if name:
            found.setdefault(name, AdapterReading(id=number, name=name))
    return tuple(found.values())


def _slot_reading(entry: dict[str, Any], task: int) -> SlotReading:
    tokens = entry.get("next_token")
    progress = tokens[0] if isinstance(tokens, list) and tokens else {}
    return SlotReading(
        task_id=task,
        prompt_tokens=_count(entry, "n_prompt_tokens"),
        cached_tokens=_count(entry, "n_prompt_tokens_cache"),
        processed_tokens=_count(entry, "n_prompt_tokens_processed"),
        decoded_tokens=_count(progress, "n_decoded"),
        remaining_tokens=_count(progress, "n_remain"),
    )


def _count(entry: object, key: str) -> int | None:
    """The value of `name` if it is a valid count."""
    value = entry.get(key) if isinstance(entry, dict) else None
    return answers.count(value)


def parse_props(body: bytes) -> PropsReading:
    """Parse /props. Raises only `ParseError`."""
    props = answers.decode(body)
    if not isinstance(props, dict):
        raise ParseError("/props is not an object")
    is_router = props.get("role") == "router"
    total = props.get("total_slots")
    if total is not None and not (type(total) is int and 0 < total <= MAX_SLOTS):
        raise ParseError(f"/props has a total_slots that is not 1 to {MAX_SLOTS}")
    is_asleep = props.get("is_sleeping")
    if is_asleep is not None and not isinstance(is_asleep, bool):
        raise ParseError("/props has an is_sleeping that is not true or false")
    if not is_router and total is None:
        raise ParseError("/props has neither total_slots nor the role of a router")
    marker = props.get("media_marker")
    # The marker is random for each process, unless LLAMA_MEDIA_MARKER pins it to a text.
    is_random = isinstance(marker, str) and marker.startswith("<__media_")
    parts = [marker] if is_random else [marker, props.get("build_info"), props.get("model_path")]
    return PropsReading(
        is_router=is_router,
        total_slots=total,
        shows_slots=props.get("endpoint_slots") is not False,
        shows_counters=props.get("endpoint_metrics") is True,
        is_asleep=is_asleep,
        model=answers.name(props.get("model_alias")),
        autoloads=props.get("models_autoload") is True,
        max_models=_count(props, "max_instances") or 0,
        process=_digest(parts),
        is_process_unique=is_random,
    )


def parse_models(body: bytes) -> tuple[ModelEntry, ...]:
    """Read /v1/models, of a plain server or of a router. Raises `ParseError`, nothing else.

    Entries without a usable name are left out: one odd model must not hide the others.
    """
    entry = answers.decode(body)
    entries = entry.get("data") if isinstance(entry, dict) else None
    if not isinstance(entries, list):
        raise ParseError("/v1/models has no list named data")
    models: dict[str, ModelEntry] = {}
    room = MAX_NAMES - min(len(entries), MAX_ENTRIES)
    for entry in entries[:MAX_ENTRIES]:
        name = answers.name(entry.get("id")) if isinstance(entry, dict) else None
        if name is not None and name not in models:
            found = models[name] = _model_entry(name, entry, min(room, MAX_ALIASES))
            room -= len(found.aliases)
    return tuple(models.values())


def _model_entry(name: str, entry: dict[str, Any], most_aliases: int) -> ModelEntry:
    aliases = entry.get("aliases")
    shown = aliases[:most_aliases] if isinstance(aliases, list) else []
    named = [answers.name(alias) for alias in shown]
    status = entry.get("status")
    arguments = status.get("args") if isinstance(status, dict) else None
    is_shown = isinstance(arguments, list) and all(isinstance(one, str) for one in arguments)
    return ModelEntry(
        name=name,
        aliases=tuple(alias for alias in dict.fromkeys(named) if alias not in (None, name)),
        status=_model_status(status),
        may_sleep=isinstance(arguments, list) and "--sleep-idle-seconds" in arguments,
        context=context_arguments(arguments) if isinstance(arguments, list) and is_shown else None,
        slot_tokens=_count(entry.get("meta"), "n_ctx"),
    )


def _model_status(status: object) -> ModelState:
    if not isinstance(status, dict):
        return ModelState.LOADED
    value = status.get("value")
    if value == "unloaded" and status.get("failed") is True:
        return ModelState.FAILED
    # Whatever a later build invents: nothing to ask there.
    return ModelState(value) if value in _STATES else ModelState.UNLOADED


_STATES: Final = frozenset(state.value for state in ModelState)


def _digest(parts: list[object]) -> str:
    """Distinguishes processes without exposing the marker, which protects the server's prompts."""
    text = json.dumps([value if isinstance(value, str) else None for value in parts])
    return hashlib.blake2s(text.encode(), digest_size=8).hexdigest()
