"""Decodes and validates agents' messages; everything that is kept is bounded."""

from collections.abc import Sized
from typing import Final

from google.protobuf.message import Message

from extproc.admin.arguments import MAX_NAME_CHARS, NAME
from extproc.admin.call_errors import invalid
from extproc.core.address import Address, AddressError, is_ip
from extproc.core.fleet.endpoint import EndpointSpec
from extproc.core.observation import (
    MAX_COUNT,
    MAX_ENTRIES,
    MAX_SLOTS,
    MAX_TEXT_CHARS,
    AdapterReading,
    EndedTask,
    Issue,
    ModelReading,
    ModelState,
    Observation,
    ObservationError,
    ScrapeStatus,
    SlotReading,
)
from extproc.pb.coxswain.v1 import agent_pb2 as pb
from extproc.security.secret_file import authorization_of, is_sendable_key
from extproc.security.trust import Trust, are_certificates, reported_trust

MAX_ID_CHARS: Final = 128
MAX_CA_CHARS: Final = 64 * 1024
MAX_KEY_CHARS: Final = 4096

STATUSES: Final = {
    pb.Observation.STATUS_READY: ScrapeStatus.READY,
    pb.Observation.STATUS_LOADING: ScrapeStatus.LOADING,
    pb.Observation.STATUS_ASLEEP: ScrapeStatus.ASLEEP,
    pb.Observation.STATUS_UNREACHABLE: ScrapeStatus.UNREACHABLE,
    pb.Observation.STATUS_FAILED: ScrapeStatus.FAILED,
}


def read_hello(hello: pb.Hello) -> tuple[EndpointSpec, Trust | None]:
    """The endpoint of an agent, and its CA under TLS; raises `CallError`."""
    try:
        address = Address.parse(hello.address[:MAX_NAME_CHARS])
    except AddressError as error:
        raise invalid(f"hello.address: {error}") from None
    if hello.name and (len(hello.name) > MAX_NAME_CHARS or NAME.fullmatch(hello.name) is None):
        raise invalid(
            "hello.name: only letters, digits, '.', '-' and '_' are allowed, and the length is "
            "limited"
        )
    if hello.slots > MAX_SLOTS:
        raise invalid(f"hello.slots: at most {MAX_SLOTS}")
    if not 0 < len(hello.agent_id) <= MAX_ID_CHARS:
        raise invalid(f"hello.agent_id: 1 to {MAX_ID_CHARS} characters")
    if hello.api_key and (len(hello.api_key) > MAX_KEY_CHARS or not is_sendable_key(hello.api_key)):
        raise invalid(f"hello.api_key: visible ASCII, at most {MAX_KEY_CHARS} characters")
    trust = _read_tls(hello.tls, address) if hello.HasField("tls") else None
    spec = EndpointSpec(
        address=address,
        name=hello.name,
        slots=hello.slots or None,
        tls_profile=trust.profile if trust is not None else "",
        server_name=hello.tls.server_name,
        authorization=authorization_of(hello.api_key) if hello.api_key else "",
        is_reported=True,
        kept_models=hello.kept_models,
    )
    return spec, trust


def _read_tls(tls: pb.Tls, address: Address) -> Trust:
    name = tls.server_name
    if name and (len(name) > MAX_NAME_CHARS or NAME.fullmatch(name) is None or is_ip(name)):
        raise invalid(
            "hello.tls.server_name: give a host name, or leave it empty for the IP address"
        )
    if len(tls.ca_pem) > MAX_CA_CHARS:
        raise invalid(f"hello.tls.ca_pem: at most {MAX_CA_CHARS} characters")
    trust = reported_trust(tls.ca_pem, None if name else address.host)
    if tls.ca_pem and not are_certificates(trust.ca_pem):
        raise invalid("hello.tls.ca_pem: not PEM certificates")
    return trust


def read_observation(
    observation: pb.Observation, address: Address, began_at: float, answered_at: float
) -> Observation:
    """The observation of the agent of `address`; raises `CallError`."""
    status = STATUSES.get(observation.status)
    if status is None:
        raise invalid("observation.status: unknown value")
    _check_count(observation.models, "models")
    _check_count(observation.busy, "busy")
    _check_count(observation.ended, "ended")
    _check_count(observation.apis, "apis")
    _check_count(observation.adapters.adapters, "adapters")
    try:
        return Observation(
            address=address,
            began_at=began_at,
            answered_at=answered_at,
            status=status,
            slots=_optional(observation, "slots"),
            busy_slots=_optional(observation, "busy_slots"),
            models=tuple(_model(model) for model in observation.models),
            issues=tuple(_issue(issue) for issue in observation.issues[:20]),
            instance=observation.instance[:MAX_ID_CHARS]
            if observation.HasField("instance")
            else None,
            slot_readings=tuple(_slot(slot) for slot in observation.busy),
            ended_tasks=tuple(
                _ended(task) for task in observation.ended if task.held_tokens <= MAX_COUNT
            ),
            context_tokens=_tokens(observation, "context_tokens"),
            shared_tokens=_tokens(observation, "shared_tokens"),
            adapters=tuple(_adapter(adapter) for adapter in observation.adapters.adapters)
            if observation.HasField("adapters")
            else None,
            awaits_adapters=observation.awaits_adapters,
            runner=_text(observation.runner),
            is_full=observation.is_full,
            apis=frozenset(map(_text, observation.apis)) if observation.runner else None,
        )
    except ObservationError as error:
        raise invalid(f"observation: {error}") from None


def _model(model: pb.Observation.Model) -> ModelReading:
    _check_count(model.aliases, "aliases")
    return ModelReading(
        name=_text(model.name),
        aliases=tuple(map(_text, model.aliases)),
        is_loaded=model.is_loaded,
        is_loading=model.is_loading,
        may_be_loading=model.may_be_loading,
        slots=_optional(model, "slots"),
        busy_slots=_optional(model, "busy_slots"),
        reported=_STATES.get(model.state),
        shared_tokens=_tokens(model, "shared_tokens"),
    )


_STATES: Final = {state.value: state for state in ModelState}


def _issue(issue: pb.Observation.Issue) -> Issue:
    return Issue(code=_text(issue.code), message=_text(issue.message), remedy=_text(issue.remedy))


def _ended(task: pb.Observation.EndedTask) -> EndedTask:
    return EndedTask(task_id=task.task_id, held_tokens=task.held_tokens, model=_text(task.model))


def _slot(slot: pb.Observation.Slot) -> SlotReading:
    return SlotReading(
        task_id=slot.task_id,
        prompt_tokens=_tokens(slot, "prompt_tokens"),
        cached_tokens=_tokens(slot, "cached_tokens"),
        processed_tokens=_tokens(slot, "processed_tokens"),
        decoded_tokens=_tokens(slot, "decoded_tokens"),
        remaining_tokens=_tokens(slot, "remaining_tokens"),
        model=_text(slot.model),
    )


def _adapter(adapter: pb.Observation.Adapter) -> AdapterReading:
    return AdapterReading(id=adapter.id, name=_text(adapter.name))


def _optional(message: Message, field: str) -> int | None:
    return getattr(message, field) if message.HasField(field) else None


def _tokens(message: Message, field: str) -> int | None:
    """A number of tokens; what no context holds counts as not reported."""
    count = _optional(message, field)
    return None if count is None or count > MAX_COUNT else count


def _text(text: str) -> str:
    """In one line and of bounded length: it is logged and shown."""
    cut = text[:MAX_TEXT_CHARS]
    return cut if cut.isprintable() else " ".join(cut.split())


def _check_count(entries: Sized, field: str) -> None:
    if len(entries) > MAX_ENTRIES:
        raise invalid(f"observation.{field}: at most {MAX_ENTRIES}")
