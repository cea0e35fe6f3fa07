# mypy: disable-error-code=type-arg
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AgentMessage(_message.Message):
    __slots__ = ("echo", "held_s", "hello", "observation", "deregistration")
    ECHO_FIELD_NUMBER: _ClassVar[int]
    HELD_S_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_FIELD_NUMBER: _ClassVar[int]
    DEREGISTRATION_FIELD_NUMBER: _ClassVar[int]
    echo: int
    held_s: float
    hello: Hello
    observation: Observation
    deregistration: Deregistration
    def __init__(self, echo: _Optional[int] = ..., held_s: _Optional[float] = ..., hello: _Optional[_Union[Hello, _Mapping]] = ..., observation: _Optional[_Union[Observation, _Mapping]] = ..., deregistration: _Optional[_Union[Deregistration, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("address", "name", "slots", "agent_id", "version", "tls", "api_key", "kept_models")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TLS_FIELD_NUMBER: _ClassVar[int]
    API_KEY_FIELD_NUMBER: _ClassVar[int]
    KEPT_MODELS_FIELD_NUMBER: _ClassVar[int]
    address: str
    name: str
    slots: int
    agent_id: str
    version: str
    tls: Tls
    api_key: str
    kept_models: int
    def __init__(self, address: _Optional[str] = ..., name: _Optional[str] = ..., slots: _Optional[int] = ..., agent_id: _Optional[str] = ..., version: _Optional[str] = ..., tls: _Optional[_Union[Tls, _Mapping]] = ..., api_key: _Optional[str] = ..., kept_models: _Optional[int] = ...) -> None: ...

class Tls(_message.Message):
    __slots__ = ("server_name", "ca_pem")
    SERVER_NAME_FIELD_NUMBER: _ClassVar[int]
    CA_PEM_FIELD_NUMBER: _ClassVar[int]
    server_name: str
    ca_pem: str
    def __init__(self, server_name: _Optional[str] = ..., ca_pem: _Optional[str] = ...) -> None: ...

class Observation(_message.Message):
    __slots__ = ("began_ago_s", "answered_ago_s", "status", "slots", "busy_slots", "models", "issues", "instance", "busy", "context_tokens", "adapters", "awaits_adapters", "ended", "shared_tokens", "runner", "apis", "is_full")
    class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATUS_UNSPECIFIED: _ClassVar[Observation.Status]
        STATUS_READY: _ClassVar[Observation.Status]
        STATUS_LOADING: _ClassVar[Observation.Status]
        STATUS_ASLEEP: _ClassVar[Observation.Status]
        STATUS_UNREACHABLE: _ClassVar[Observation.Status]
        STATUS_FAILED: _ClassVar[Observation.Status]
    STATUS_UNSPECIFIED: Observation.Status
    STATUS_READY: Observation.Status
    STATUS_LOADING: Observation.Status
    STATUS_ASLEEP: Observation.Status
    STATUS_UNREACHABLE: Observation.Status
    STATUS_FAILED: Observation.Status
    class Model(_message.Message):
        __slots__ = ("name", "aliases", "is_loaded", "slots", "busy_slots", "is_loading", "state", "shared_tokens", "may_be_loading")
        NAME_FIELD_NUMBER: _ClassVar[int]
        ALIASES_FIELD_NUMBER: _ClassVar[int]
        IS_LOADED_FIELD_NUMBER: _ClassVar[int]
        SLOTS_FIELD_NUMBER: _ClassVar[int]
        BUSY_SLOTS_FIELD_NUMBER: _ClassVar[int]
        IS_LOADING_FIELD_NUMBER: _ClassVar[int]
        STATE_FIELD_NUMBER: _ClassVar[int]
        SHARED_TOKENS_FIELD_NUMBER: _ClassVar[int]
        MAY_BE_LOADING_FIELD_NUMBER: _ClassVar[int]
        name: str
        aliases: _containers.RepeatedScalarFieldContainer[str]
        is_loaded: bool
        slots: int
        busy_slots: int
        is_loading: bool
        state: str
        shared_tokens: int
        may_be_loading: bool
        def __init__(self, name: _Optional[str] = ..., aliases: _Optional[_Iterable[str]] = ..., is_loaded: _Optional[bool] = ..., slots: _Optional[int] = ..., busy_slots: _Optional[int] = ..., is_loading: _Optional[bool] = ..., state: _Optional[str] = ..., shared_tokens: _Optional[int] = ..., may_be_loading: _Optional[bool] = ...) -> None: ...
    class Issue(_message.Message):
        __slots__ = ("code", "message", "remedy")
        CODE_FIELD_NUMBER: _ClassVar[int]
        MESSAGE_FIELD_NUMBER: _ClassVar[int]
        REMEDY_FIELD_NUMBER: _ClassVar[int]
        code: str
        message: str
        remedy: str
        def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., remedy: _Optional[str] = ...) -> None: ...
    class Slot(_message.Message):
        __slots__ = ("task_id", "prompt_tokens", "cached_tokens", "decoded_tokens", "remaining_tokens", "model", "processed_tokens")
        TASK_ID_FIELD_NUMBER: _ClassVar[int]
        PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
        CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
        DECODED_TOKENS_FIELD_NUMBER: _ClassVar[int]
        REMAINING_TOKENS_FIELD_NUMBER: _ClassVar[int]
        MODEL_FIELD_NUMBER: _ClassVar[int]
        PROCESSED_TOKENS_FIELD_NUMBER: _ClassVar[int]
        task_id: int
        prompt_tokens: int
        cached_tokens: int
        decoded_tokens: int
        remaining_tokens: int
        model: str
        processed_tokens: int
        def __init__(self, task_id: _Optional[int] = ..., prompt_tokens: _Optional[int] = ..., cached_tokens: _Optional[int] = ..., decoded_tokens: _Optional[int] = ..., remaining_tokens: _Optional[int] = ..., model: _Optional[str] = ..., processed_tokens: _Optional[int] = ...) -> None: ...
    class EndedTask(_message.Message):
        __slots__ = ("task_id", "held_tokens", "model")
        TASK_ID_FIELD_NUMBER: _ClassVar[int]
        HELD_TOKENS_FIELD_NUMBER: _ClassVar[int]
        MODEL_FIELD_NUMBER: _ClassVar[int]
        task_id: int
        held_tokens: int
        model: str
        def __init__(self, task_id: _Optional[int] = ..., held_tokens: _Optional[int] = ..., model: _Optional[str] = ...) -> None: ...
    class Adapter(_message.Message):
        __slots__ = ("id", "name")
        ID_FIELD_NUMBER: _ClassVar[int]
        NAME_FIELD_NUMBER: _ClassVar[int]
        id: int
        name: str
        def __init__(self, id: _Optional[int] = ..., name: _Optional[str] = ...) -> None: ...
    class Adapters(_message.Message):
        __slots__ = ("adapters",)
        ADAPTERS_FIELD_NUMBER: _ClassVar[int]
        adapters: _containers.RepeatedCompositeFieldContainer[Observation.Adapter]
        def __init__(self, adapters: _Optional[_Iterable[_Union[Observation.Adapter, _Mapping]]] = ...) -> None: ...
    BEGAN_AGO_S_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_AGO_S_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    BUSY_SLOTS_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    ISSUES_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    BUSY_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ADAPTERS_FIELD_NUMBER: _ClassVar[int]
    AWAITS_ADAPTERS_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    SHARED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    RUNNER_FIELD_NUMBER: _ClassVar[int]
    APIS_FIELD_NUMBER: _ClassVar[int]
    IS_FULL_FIELD_NUMBER: _ClassVar[int]
    began_ago_s: float
    answered_ago_s: float
    status: Observation.Status
    slots: int
    busy_slots: int
    models: _containers.RepeatedCompositeFieldContainer[Observation.Model]
    issues: _containers.RepeatedCompositeFieldContainer[Observation.Issue]
    instance: str
    busy: _containers.RepeatedCompositeFieldContainer[Observation.Slot]
    context_tokens: int
    adapters: Observation.Adapters
    awaits_adapters: bool
    ended: _containers.RepeatedCompositeFieldContainer[Observation.EndedTask]
    shared_tokens: int
    runner: str
    apis: _containers.RepeatedScalarFieldContainer[str]
    is_full: bool
    def __init__(self, began_ago_s: _Optional[float] = ..., answered_ago_s: _Optional[float] = ..., status: _Optional[_Union[Observation.Status, str]] = ..., slots: _Optional[int] = ..., busy_slots: _Optional[int] = ..., models: _Optional[_Iterable[_Union[Observation.Model, _Mapping]]] = ..., issues: _Optional[_Iterable[_Union[Observation.Issue, _Mapping]]] = ..., instance: _Optional[str] = ..., busy: _Optional[_Iterable[_Union[Observation.Slot, _Mapping]]] = ..., context_tokens: _Optional[int] = ..., adapters: _Optional[_Union[Observation.Adapters, _Mapping]] = ..., awaits_adapters: _Optional[bool] = ..., ended: _Optional[_Iterable[_Union[Observation.EndedTask, _Mapping]]] = ..., shared_tokens: _Optional[int] = ..., runner: _Optional[str] = ..., apis: _Optional[_Iterable[str]] = ..., is_full: _Optional[bool] = ...) -> None: ...

class Deregistration(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PickerMessage(_message.Message):
    __slots__ = ("number", "scrape_priority", "scrape_now", "is_drained")
    class ScrapePriority(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        SCRAPE_PRIORITY_UNSPECIFIED: _ClassVar[PickerMessage.ScrapePriority]
        SCRAPE_PRIORITY_IDLE: _ClassVar[PickerMessage.ScrapePriority]
        SCRAPE_PRIORITY_STEADY: _ClassVar[PickerMessage.ScrapePriority]
        SCRAPE_PRIORITY_HIGH: _ClassVar[PickerMessage.ScrapePriority]
    SCRAPE_PRIORITY_UNSPECIFIED: PickerMessage.ScrapePriority
    SCRAPE_PRIORITY_IDLE: PickerMessage.ScrapePriority
    SCRAPE_PRIORITY_STEADY: PickerMessage.ScrapePriority
    SCRAPE_PRIORITY_HIGH: PickerMessage.ScrapePriority
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    SCRAPE_PRIORITY_FIELD_NUMBER: _ClassVar[int]
    SCRAPE_NOW_FIELD_NUMBER: _ClassVar[int]
    IS_DRAINED_FIELD_NUMBER: _ClassVar[int]
    number: int
    scrape_priority: PickerMessage.ScrapePriority
    scrape_now: bool
    is_drained: bool
    def __init__(self, number: _Optional[int] = ..., scrape_priority: _Optional[_Union[PickerMessage.ScrapePriority, str]] = ..., scrape_now: _Optional[bool] = ..., is_drained: _Optional[bool] = ...) -> None: ...
