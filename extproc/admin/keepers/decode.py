"""Decodes and validates keepers' messages; everything that is kept is bounded."""

import math
from typing import Final

from extproc.admin.agents.decode import MAX_ID_CHARS
from extproc.admin.arguments import MAX_NAME_CHARS, NAME
from extproc.admin.call_errors import invalid
from extproc.core.address import Address, AddressError
from extproc.core.observation import MAX_SLOTS
from extproc.core.placement.machine import KeptMachine, KeptModel, KeptState, KeptStatus
from extproc.pb.coxswain.v1 import keeper_pb2 as pb

MAX_MODELS: Final = 1000
MAX_ALIASES: Final = 100
MAX_MB: Final = 100_000_000
MAX_SECONDS: Final = 7 * 24 * 3600.0
MAX_PROBLEM_CHARS: Final = 1000
MAX_DETAIL_CHARS: Final = 32_768

STATES: Final = {
    pb.KeeperStatus.STATE_UNLOADED: KeptState.UNLOADED,
    pb.KeeperStatus.STATE_WAITING: KeptState.WAITING,
    pb.KeeperStatus.STATE_LOADING: KeptState.LOADING,
    pb.KeeperStatus.STATE_LOADED: KeptState.LOADED,
    pb.KeeperStatus.STATE_UNLOADING: KeptState.UNLOADING,
    pb.KeeperStatus.STATE_RESTARTING: KeptState.RESTARTING,
    pb.KeeperStatus.STATE_FAILED: KeptState.FAILED,
}


def read_hello(hello: pb.KeeperHello) -> KeptMachine:
    """The machine of a keeper, its models unloaded; raises `CallError`."""
    if len(hello.machine) > MAX_NAME_CHARS or NAME.fullmatch(hello.machine) is None:
        raise invalid(
            "hello.machine: letters, digits, '.', '-' and '_' are allowed, and a letter or digit "
            "at each end"
        )
    if not 0 < len(hello.keeper_id) <= MAX_ID_CHARS:
        raise invalid(f"hello.keeper_id: 1 to {MAX_ID_CHARS} characters")
    if hello.memory_mb > MAX_MB:
        raise invalid(f"hello.memory_mb: at most {MAX_MB}")
    if not 0 < len(hello.models) <= MAX_MODELS:
        raise invalid(f"hello.models: 1 to {MAX_MODELS}")
    models: dict[str, KeptModel] = {}
    for message in hello.models:
        model = _read_model(message)
        if models.setdefault(model.name, model) is not model:
            raise invalid("hello.models: two models have one name")
    names = set(models)
    if any(not model.exclusive_with <= names for model in models.values()):
        raise invalid("hello.models.exclusive_with: no such model")
    return KeptMachine(
        name=hello.machine,
        memory_mb=hello.memory_mb,
        models=models,
        version=hello.version[:MAX_ID_CHARS],
        pinned=frozenset(names.intersection(hello.pinned)),
    )


def _read_model(message: pb.KeptModel) -> KeptModel:
    _check_name(message.name, "hello.models.name")
    if len(message.aliases) > MAX_ALIASES:
        raise invalid(f"hello.models.aliases: at most {MAX_ALIASES}")
    for alias in message.aliases:
        _check_name(alias, "hello.models.aliases")
    if not 0 < message.slots <= MAX_SLOTS:
        raise invalid(f"hello.models.slots: 1 to {MAX_SLOTS}")
    if message.memory_mb > MAX_MB:
        raise invalid(f"hello.models.memory_mb: at most {MAX_MB}")
    try:
        address = Address.parse(message.address[:MAX_NAME_CHARS])
    except AddressError as error:
        raise invalid(f"hello.models.address: {error}") from None
    return KeptModel(
        name=message.name,
        address=address,
        memory_mb=message.memory_mb,
        aliases=tuple(message.aliases),
        slots=message.slots,
        context_tokens=message.context_tokens,
        ttl_s=_seconds(message.ttl_s, "hello.models.ttl_s"),
        exclusive_with=frozenset(message.exclusive_with),
        is_preloaded=message.is_preloaded,
    )


def read_status(status: pb.KeeperStatus, machine: KeptMachine, now: float) -> dict[str, KeptStatus]:
    """The states of the models of `machine`; raises `CallError` for an unknown model."""
    found: dict[str, KeptStatus] = {}
    for one in status.models:
        state = STATES.get(one.state)
        if one.name not in machine.models or state is None:
            raise invalid("status.models: an unknown model or state")
        age_s = _seconds(min(one.state_age_s, MAX_SECONDS), "status.models.state_age_s")
        load_s = _seconds(one.load_s, "status.models.load_s") if one.HasField("load_s") else None
        found[one.name] = KeptStatus(
            state=state,
            since=now - age_s,
            load_s=load_s,
            exits=one.exits,
            problem=one.problem[:MAX_PROBLEM_CHARS],
            detail=one.detail[:MAX_DETAIL_CHARS],
        )
    return found


def _check_name(name: str, field: str) -> None:
    if not 0 < len(name) <= MAX_NAME_CHARS or not name.isprintable():
        raise invalid(f"{field}: 1 to {MAX_NAME_CHARS} printable characters")


def _seconds(value: float, field: str) -> float:
    if not math.isfinite(value) or not 0 <= value <= MAX_SECONDS:
        raise invalid(f"{field}: 0 to {MAX_SECONDS:g} seconds")
    return value
