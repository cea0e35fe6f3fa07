# mypy: disable-error-code=type-arg
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AgentMessage(_message.Message):
    __slots__ = ("echo", "held_s", "hello", "look", "leaving")
    ECHO_FIELD_NUMBER: _ClassVar[int]
    HELD_S_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    LOOK_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    echo: int
    held_s: float
    hello: Hello
    look: Look
    leaving: Leaving
    def __init__(self, echo: _Optional[int] = ..., held_s: _Optional[float] = ..., hello: _Optional[_Union[Hello, _Mapping]] = ..., look: _Optional[_Union[Look, _Mapping]] = ..., leaving: _Optional[_Union[Leaving, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("address", "name", "slots", "agent_id", "version", "tls", "api_key")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TLS_FIELD_NUMBER: _ClassVar[int]
    API_KEY_FIELD_NUMBER: _ClassVar[int]
    address: str
    name: str
    slots: int
    agent_id: str
    version: str
    tls: Tls
    api_key: str
    def __init__(self, address: _Optional[str] = ..., name: _Optional[str] = ..., slots: _Optional[int] = ..., agent_id: _Optional[str] = ..., version: _Optional[str] = ..., tls: _Optional[_Union[Tls, _Mapping]] = ..., api_key: _Optional[str] = ...) -> None: ...

class Tls(_message.Message):
    __slots__ = ("server_name", "authorities")
    SERVER_NAME_FIELD_NUMBER: _ClassVar[int]
    AUTHORITIES_FIELD_NUMBER: _ClassVar[int]
    server_name: str
    authorities: str
    def __init__(self, server_name: _Optional[str] = ..., authorities: _Optional[str] = ...) -> None: ...

class Look(_message.Message):
    __slots__ = ("began_ago_s", "answered_ago_s", "sight", "slots", "busy_slots", "models", "issues", "instance", "busy", "context_tokens", "adapters", "awaits_adapters")
    class Sight(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        SIGHT_UNSPECIFIED: _ClassVar[Look.Sight]
        SIGHT_READY: _ClassVar[Look.Sight]
        SIGHT_LOADING: _ClassVar[Look.Sight]
        SIGHT_ASLEEP: _ClassVar[Look.Sight]
        SIGHT_UNREACHABLE: _ClassVar[Look.Sight]
        SIGHT_FAILED: _ClassVar[Look.Sight]
    SIGHT_UNSPECIFIED: Look.Sight
    SIGHT_READY: Look.Sight
    SIGHT_LOADING: Look.Sight
    SIGHT_ASLEEP: Look.Sight
    SIGHT_UNREACHABLE: Look.Sight
    SIGHT_FAILED: Look.Sight
    class Model(_message.Message):
        __slots__ = ("name", "aliases", "is_loaded", "slots", "busy_slots", "is_loading")
        NAME_FIELD_NUMBER: _ClassVar[int]
        ALIASES_FIELD_NUMBER: _ClassVar[int]
        IS_LOADED_FIELD_NUMBER: _ClassVar[int]
        SLOTS_FIELD_NUMBER: _ClassVar[int]
        BUSY_SLOTS_FIELD_NUMBER: _ClassVar[int]
        IS_LOADING_FIELD_NUMBER: _ClassVar[int]
        name: str
        aliases: _containers.RepeatedScalarFieldContainer[str]
        is_loaded: bool
        slots: int
        busy_slots: int
        is_loading: bool
        def __init__(self, name: _Optional[str] = ..., aliases: _Optional[_Iterable[str]] = ..., is_loaded: _Optional[bool] = ..., slots: _Optional[int] = ..., busy_slots: _Optional[int] = ..., is_loading: _Optional[bool] = ...) -> None: ...
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
        adapters: _containers.RepeatedCompositeFieldContainer[Look.Adapter]
        def __init__(self, adapters: _Optional[_Iterable[_Union[Look.Adapter, _Mapping]]] = ...) -> None: ...
    BEGAN_AGO_S_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_AGO_S_FIELD_NUMBER: _ClassVar[int]
    SIGHT_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    BUSY_SLOTS_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    ISSUES_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    BUSY_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ADAPTERS_FIELD_NUMBER: _ClassVar[int]
    AWAITS_ADAPTERS_FIELD_NUMBER: _ClassVar[int]
    began_ago_s: float
    answered_ago_s: float
    sight: Look.Sight
    slots: int
    busy_slots: int
    models: _containers.RepeatedCompositeFieldContainer[Look.Model]
    issues: _containers.RepeatedCompositeFieldContainer[Look.Issue]
    instance: str
    busy: _containers.RepeatedCompositeFieldContainer[Look.Slot]
    context_tokens: int
    adapters: Look.Adapters
    awaits_adapters: bool
    def __init__(self, began_ago_s: _Optional[float] = ..., answered_ago_s: _Optional[float] = ..., sight: _Optional[_Union[Look.Sight, str]] = ..., slots: _Optional[int] = ..., busy_slots: _Optional[int] = ..., models: _Optional[_Iterable[_Union[Look.Model, _Mapping]]] = ..., issues: _Optional[_Iterable[_Union[Look.Issue, _Mapping]]] = ..., instance: _Optional[str] = ..., busy: _Optional[_Iterable[_Union[Look.Slot, _Mapping]]] = ..., context_tokens: _Optional[int] = ..., adapters: _Optional[_Union[Look.Adapters, _Mapping]] = ..., awaits_adapters: _Optional[bool] = ...) -> None: ...

class Leaving(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PickerMessage(_message.Message):
    __slots__ = ("number", "attention", "look_now", "is_drained")
    class Attention(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ATTENTION_UNSPECIFIED: _ClassVar[PickerMessage.Attention]
        ATTENTION_IDLE: _ClassVar[PickerMessage.Attention]
        ATTENTION_STEADY: _ClassVar[PickerMessage.Attention]
        ATTENTION_RESTLESS: _ClassVar[PickerMessage.Attention]
    ATTENTION_UNSPECIFIED: PickerMessage.Attention
    ATTENTION_IDLE: PickerMessage.Attention
    ATTENTION_STEADY: PickerMessage.Attention
    ATTENTION_RESTLESS: PickerMessage.Attention
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ATTENTION_FIELD_NUMBER: _ClassVar[int]
    LOOK_NOW_FIELD_NUMBER: _ClassVar[int]
    IS_DRAINED_FIELD_NUMBER: _ClassVar[int]
    number: int
    attention: PickerMessage.Attention
    look_now: bool
    is_drained: bool
    def __init__(self, number: _Optional[int] = ..., attention: _Optional[_Union[PickerMessage.Attention, str]] = ..., look_now: _Optional[bool] = ..., is_drained: _Optional[bool] = ...) -> None: ...
