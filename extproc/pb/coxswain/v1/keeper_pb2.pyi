# mypy: disable-error-code=type-arg
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class KeeperMessage(_message.Message):
    __slots__ = ("hello", "status", "log", "replaced")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    REPLACED_FIELD_NUMBER: _ClassVar[int]
    hello: KeeperHello
    status: KeeperStatus
    log: LogLines
    replaced: ReplaceResult
    def __init__(self, hello: _Optional[_Union[KeeperHello, _Mapping]] = ..., status: _Optional[_Union[KeeperStatus, _Mapping]] = ..., log: _Optional[_Union[LogLines, _Mapping]] = ..., replaced: _Optional[_Union[ReplaceResult, _Mapping]] = ...) -> None: ...

class KeeperHello(_message.Message):
    __slots__ = ("machine", "keeper_id", "version", "memory_mb", "models", "pinned")
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    KEEPER_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MB_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    PINNED_FIELD_NUMBER: _ClassVar[int]
    machine: str
    keeper_id: str
    version: str
    memory_mb: int
    models: _containers.RepeatedCompositeFieldContainer[KeptModel]
    pinned: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, machine: _Optional[str] = ..., keeper_id: _Optional[str] = ..., version: _Optional[str] = ..., memory_mb: _Optional[int] = ..., models: _Optional[_Iterable[_Union[KeptModel, _Mapping]]] = ..., pinned: _Optional[_Iterable[str]] = ...) -> None: ...

class KeptModel(_message.Message):
    __slots__ = ("name", "aliases", "slots", "context_tokens", "memory_mb", "ttl_s", "exclusive_with", "address", "is_preloaded")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ALIASES_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MB_FIELD_NUMBER: _ClassVar[int]
    TTL_S_FIELD_NUMBER: _ClassVar[int]
    EXCLUSIVE_WITH_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    IS_PRELOADED_FIELD_NUMBER: _ClassVar[int]
    name: str
    aliases: _containers.RepeatedScalarFieldContainer[str]
    slots: int
    context_tokens: int
    memory_mb: int
    ttl_s: float
    exclusive_with: _containers.RepeatedScalarFieldContainer[str]
    address: str
    is_preloaded: bool
    def __init__(self, name: _Optional[str] = ..., aliases: _Optional[_Iterable[str]] = ..., slots: _Optional[int] = ..., context_tokens: _Optional[int] = ..., memory_mb: _Optional[int] = ..., ttl_s: _Optional[float] = ..., exclusive_with: _Optional[_Iterable[str]] = ..., address: _Optional[str] = ..., is_preloaded: _Optional[bool] = ...) -> None: ...

class KeeperStatus(_message.Message):
    __slots__ = ("models",)
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[KeeperStatus.State]
        STATE_UNLOADED: _ClassVar[KeeperStatus.State]
        STATE_WAITING: _ClassVar[KeeperStatus.State]
        STATE_LOADING: _ClassVar[KeeperStatus.State]
        STATE_LOADED: _ClassVar[KeeperStatus.State]
        STATE_UNLOADING: _ClassVar[KeeperStatus.State]
        STATE_RESTARTING: _ClassVar[KeeperStatus.State]
        STATE_FAILED: _ClassVar[KeeperStatus.State]
    STATE_UNSPECIFIED: KeeperStatus.State
    STATE_UNLOADED: KeeperStatus.State
    STATE_WAITING: KeeperStatus.State
    STATE_LOADING: KeeperStatus.State
    STATE_LOADED: KeeperStatus.State
    STATE_UNLOADING: KeeperStatus.State
    STATE_RESTARTING: KeeperStatus.State
    STATE_FAILED: KeeperStatus.State
    class Model(_message.Message):
        __slots__ = ("name", "state", "state_age_s", "load_s", "exits", "problem", "detail")
        NAME_FIELD_NUMBER: _ClassVar[int]
        STATE_FIELD_NUMBER: _ClassVar[int]
        STATE_AGE_S_FIELD_NUMBER: _ClassVar[int]
        LOAD_S_FIELD_NUMBER: _ClassVar[int]
        EXITS_FIELD_NUMBER: _ClassVar[int]
        PROBLEM_FIELD_NUMBER: _ClassVar[int]
        DETAIL_FIELD_NUMBER: _ClassVar[int]
        name: str
        state: KeeperStatus.State
        state_age_s: float
        load_s: float
        exits: int
        problem: str
        detail: str
        def __init__(self, name: _Optional[str] = ..., state: _Optional[_Union[KeeperStatus.State, str]] = ..., state_age_s: _Optional[float] = ..., load_s: _Optional[float] = ..., exits: _Optional[int] = ..., problem: _Optional[str] = ..., detail: _Optional[str] = ...) -> None: ...
    MODELS_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[KeeperStatus.Model]
    def __init__(self, models: _Optional[_Iterable[_Union[KeeperStatus.Model, _Mapping]]] = ...) -> None: ...

class LogLines(_message.Message):
    __slots__ = ("id", "lines", "dropped", "is_last")
    ID_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    IS_LAST_FIELD_NUMBER: _ClassVar[int]
    id: int
    lines: _containers.RepeatedScalarFieldContainer[str]
    dropped: int
    is_last: bool
    def __init__(self, id: _Optional[int] = ..., lines: _Optional[_Iterable[str]] = ..., dropped: _Optional[int] = ..., is_last: _Optional[bool] = ...) -> None: ...

class KeeperCommand(_message.Message):
    __slots__ = ("wanted", "logs", "ended_logs", "replacements")
    WANTED_FIELD_NUMBER: _ClassVar[int]
    LOGS_FIELD_NUMBER: _ClassVar[int]
    ENDED_LOGS_FIELD_NUMBER: _ClassVar[int]
    REPLACEMENTS_FIELD_NUMBER: _ClassVar[int]
    wanted: Wanted
    logs: _containers.RepeatedCompositeFieldContainer[LogRequest]
    ended_logs: _containers.RepeatedScalarFieldContainer[int]
    replacements: _containers.RepeatedCompositeFieldContainer[ReplaceRequest]
    def __init__(self, wanted: _Optional[_Union[Wanted, _Mapping]] = ..., logs: _Optional[_Iterable[_Union[LogRequest, _Mapping]]] = ..., ended_logs: _Optional[_Iterable[int]] = ..., replacements: _Optional[_Iterable[_Union[ReplaceRequest, _Mapping]]] = ...) -> None: ...

class ReplaceRequest(_message.Message):
    __slots__ = ("id", "model", "cmd", "memory_mb", "is_revert", "must_load")
    ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CMD_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MB_FIELD_NUMBER: _ClassVar[int]
    IS_REVERT_FIELD_NUMBER: _ClassVar[int]
    MUST_LOAD_FIELD_NUMBER: _ClassVar[int]
    id: int
    model: str
    cmd: _containers.RepeatedScalarFieldContainer[str]
    memory_mb: int
    is_revert: bool
    must_load: bool
    def __init__(self, id: _Optional[int] = ..., model: _Optional[str] = ..., cmd: _Optional[_Iterable[str]] = ..., memory_mb: _Optional[int] = ..., is_revert: _Optional[bool] = ..., must_load: _Optional[bool] = ...) -> None: ...

class ReplaceResult(_message.Message):
    __slots__ = ("id", "problem", "is_proved")
    ID_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    IS_PROVED_FIELD_NUMBER: _ClassVar[int]
    id: int
    problem: str
    is_proved: bool
    def __init__(self, id: _Optional[int] = ..., problem: _Optional[str] = ..., is_proved: _Optional[bool] = ...) -> None: ...

class Wanted(_message.Message):
    __slots__ = ("models", "retried", "pinned")
    MODELS_FIELD_NUMBER: _ClassVar[int]
    RETRIED_FIELD_NUMBER: _ClassVar[int]
    PINNED_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedScalarFieldContainer[str]
    retried: _containers.RepeatedScalarFieldContainer[str]
    pinned: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, models: _Optional[_Iterable[str]] = ..., retried: _Optional[_Iterable[str]] = ..., pinned: _Optional[_Iterable[str]] = ...) -> None: ...

class LogRequest(_message.Message):
    __slots__ = ("id", "model", "lines", "is_followed")
    ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    IS_FOLLOWED_FIELD_NUMBER: _ClassVar[int]
    id: int
    model: str
    lines: int
    is_followed: bool
    def __init__(self, id: _Optional[int] = ..., model: _Optional[str] = ..., lines: _Optional[int] = ..., is_followed: _Optional[bool] = ...) -> None: ...
