# mypy: disable-error-code=type-arg
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Greeting(_message.Message):
    __slots__ = ("purpose", "cluster", "token", "front", "leader_id", "epoch", "version", "peer")
    class Purpose(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        PURPOSE_UNSPECIFIED: _ClassVar[Greeting.Purpose]
        PURPOSE_FOLLOW: _ClassVar[Greeting.Purpose]
        PURPOSE_ADMIN: _ClassVar[Greeting.Purpose]
        PURPOSE_HTTP: _ClassVar[Greeting.Purpose]
        PURPOSE_LEARN: _ClassVar[Greeting.Purpose]
        PURPOSE_KEDA: _ClassVar[Greeting.Purpose]
    PURPOSE_UNSPECIFIED: Greeting.Purpose
    PURPOSE_FOLLOW: Greeting.Purpose
    PURPOSE_ADMIN: Greeting.Purpose
    PURPOSE_HTTP: Greeting.Purpose
    PURPOSE_LEARN: Greeting.Purpose
    PURPOSE_KEDA: Greeting.Purpose
    PURPOSE_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    FRONT_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    purpose: Greeting.Purpose
    cluster: str
    token: str
    front: str
    leader_id: str
    epoch: int
    version: int
    peer: str
    def __init__(self, purpose: _Optional[_Union[Greeting.Purpose, str]] = ..., cluster: _Optional[str] = ..., token: _Optional[str] = ..., front: _Optional[str] = ..., leader_id: _Optional[str] = ..., epoch: _Optional[int] = ..., version: _Optional[int] = ..., peer: _Optional[str] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("rejection",)
    REJECTION_FIELD_NUMBER: _ClassVar[int]
    rejection: str
    def __init__(self, rejection: _Optional[str] = ...) -> None: ...

class Batch(_message.Message):
    __slots__ = ("frames",)
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    frames: _containers.RepeatedCompositeFieldContainer[Frame]
    def __init__(self, frames: _Optional[_Iterable[_Union[Frame, _Mapping]]] = ...) -> None: ...

class Frame(_message.Message):
    __slots__ = ("hello", "open", "message", "closed", "gone", "replies", "finish", "fleet", "opened", "ping", "pong", "ended", "read", "taken", "lost")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    REPLIES_FIELD_NUMBER: _ClassVar[int]
    FINISH_FIELD_NUMBER: _ClassVar[int]
    FLEET_FIELD_NUMBER: _ClassVar[int]
    OPENED_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    PONG_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    open: Open
    message: Message
    closed: int
    gone: int
    replies: Replies
    finish: Finish
    fleet: Fleet
    opened: Opened
    ping: Ping
    pong: float
    ended: int
    read: Read
    taken: str
    lost: int
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., open: _Optional[_Union[Open, _Mapping]] = ..., message: _Optional[_Union[Message, _Mapping]] = ..., closed: _Optional[int] = ..., gone: _Optional[int] = ..., replies: _Optional[_Union[Replies, _Mapping]] = ..., finish: _Optional[_Union[Finish, _Mapping]] = ..., fleet: _Optional[_Union[Fleet, _Mapping]] = ..., opened: _Optional[_Union[Opened, _Mapping]] = ..., ping: _Optional[_Union[Ping, _Mapping]] = ..., pong: _Optional[float] = ..., ended: _Optional[int] = ..., read: _Optional[_Union[Read, _Mapping]] = ..., taken: _Optional[str] = ..., lost: _Optional[int] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("front", "version", "fleet", "calls")
    FRONT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    FLEET_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    front: str
    version: int
    fleet: Fleet
    calls: _containers.RepeatedCompositeFieldContainer[HeldCall]
    def __init__(self, front: _Optional[str] = ..., version: _Optional[int] = ..., fleet: _Optional[_Union[Fleet, _Mapping]] = ..., calls: _Optional[_Iterable[_Union[HeldCall, _Mapping]]] = ...) -> None: ...

class HeldCall(_message.Message):
    __slots__ = ("number", "path", "metadata", "exchange_id", "age_s", "state", "heard", "received", "is_closed", "kept", "pool")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_ID_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    HEARD_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    IS_CLOSED_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    number: int
    path: str
    metadata: _containers.RepeatedCompositeFieldContainer[Header]
    exchange_id: str
    age_s: float
    state: State
    heard: int
    received: int
    is_closed: bool
    kept: _containers.RepeatedCompositeFieldContainer[KeptMessage]
    pool: str
    def __init__(self, number: _Optional[int] = ..., path: _Optional[str] = ..., metadata: _Optional[_Iterable[_Union[Header, _Mapping]]] = ..., exchange_id: _Optional[str] = ..., age_s: _Optional[float] = ..., state: _Optional[_Union[State, _Mapping]] = ..., heard: _Optional[int] = ..., received: _Optional[int] = ..., is_closed: _Optional[bool] = ..., kept: _Optional[_Iterable[_Union[KeptMessage, _Mapping]]] = ..., pool: _Optional[str] = ...) -> None: ...

class Header(_message.Message):
    __slots__ = ("name", "text", "binary")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    BINARY_FIELD_NUMBER: _ClassVar[int]
    name: str
    text: str
    binary: bytes
    def __init__(self, name: _Optional[str] = ..., text: _Optional[str] = ..., binary: _Optional[bytes] = ...) -> None: ...

class KeptMessage(_message.Message):
    __slots__ = ("number", "message")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    number: int
    message: bytes
    def __init__(self, number: _Optional[int] = ..., message: _Optional[bytes] = ...) -> None: ...

class State(_message.Message):
    __slots__ = ("queued", "leased", "passing", "over")
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    LEASED_FIELD_NUMBER: _ClassVar[int]
    PASSING_FIELD_NUMBER: _ClassVar[int]
    OVER_FIELD_NUMBER: _ClassVar[int]
    queued: Queued
    leased: Leased
    passing: Nothing
    over: Nothing
    def __init__(self, queued: _Optional[_Union[Queued, _Mapping]] = ..., leased: _Optional[_Union[Leased, _Mapping]] = ..., passing: _Optional[_Union[Nothing, _Mapping]] = ..., over: _Optional[_Union[Nothing, _Mapping]] = ...) -> None: ...

class Nothing(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Queued(_message.Message):
    __slots__ = ("ticket_id", "age_s")
    TICKET_ID_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    ticket_id: int
    age_s: float
    def __init__(self, ticket_id: _Optional[int] = ..., age_s: _Optional[float] = ...) -> None: ...

class Leased(_message.Message):
    __slots__ = ("address", "weight_slots", "asked_slots", "model", "age_s", "waited_s", "fallbacks")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_SLOTS_FIELD_NUMBER: _ClassVar[int]
    ASKED_SLOTS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    WAITED_S_FIELD_NUMBER: _ClassVar[int]
    FALLBACKS_FIELD_NUMBER: _ClassVar[int]
    address: str
    weight_slots: int
    asked_slots: int
    model: str
    age_s: float
    waited_s: float
    fallbacks: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, address: _Optional[str] = ..., weight_slots: _Optional[int] = ..., asked_slots: _Optional[int] = ..., model: _Optional[str] = ..., age_s: _Optional[float] = ..., waited_s: _Optional[float] = ..., fallbacks: _Optional[_Iterable[str]] = ...) -> None: ...

class Open(_message.Message):
    __slots__ = ("number", "path", "metadata", "exchange_id", "age_s", "pool")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_ID_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    number: int
    path: str
    metadata: _containers.RepeatedCompositeFieldContainer[Header]
    exchange_id: str
    age_s: float
    pool: str
    def __init__(self, number: _Optional[int] = ..., path: _Optional[str] = ..., metadata: _Optional[_Iterable[_Union[Header, _Mapping]]] = ..., exchange_id: _Optional[str] = ..., age_s: _Optional[float] = ..., pool: _Optional[str] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("number", "message")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    number: int
    message: bytes
    def __init__(self, number: _Optional[int] = ..., message: _Optional[bytes] = ...) -> None: ...

class Replies(_message.Message):
    __slots__ = ("number", "heard", "is_paused", "state", "replies")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    HEARD_FIELD_NUMBER: _ClassVar[int]
    IS_PAUSED_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REPLIES_FIELD_NUMBER: _ClassVar[int]
    number: int
    heard: int
    is_paused: bool
    state: State
    replies: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, number: _Optional[int] = ..., heard: _Optional[int] = ..., is_paused: _Optional[bool] = ..., state: _Optional[_Union[State, _Mapping]] = ..., replies: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Finish(_message.Message):
    __slots__ = ("number", "status", "text")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    number: int
    status: int
    text: str
    def __init__(self, number: _Optional[int] = ..., status: _Optional[int] = ..., text: _Optional[str] = ...) -> None: ...

class Fleet(_message.Message):
    __slots__ = ("endpoints",)
    class Endpoint(_message.Message):
        __slots__ = ("address", "intent", "added")
        ADDRESS_FIELD_NUMBER: _ClassVar[int]
        INTENT_FIELD_NUMBER: _ClassVar[int]
        ADDED_FIELD_NUMBER: _ClassVar[int]
        address: str
        intent: str
        added: str
        def __init__(self, address: _Optional[str] = ..., intent: _Optional[str] = ..., added: _Optional[str] = ...) -> None: ...
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    endpoints: _containers.RepeatedCompositeFieldContainer[Fleet.Endpoint]
    def __init__(self, endpoints: _Optional[_Iterable[_Union[Fleet.Endpoint, _Mapping]]] = ...) -> None: ...

class Opened(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Read(_message.Message):
    __slots__ = ("exchange_id", "is_whole", "events", "input_tokens", "output_tokens", "cached_tokens", "is_overflow", "prompt_s", "generated_s")
    EXCHANGE_ID_FIELD_NUMBER: _ClassVar[int]
    IS_WHOLE_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    INPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    IS_OVERFLOW_FIELD_NUMBER: _ClassVar[int]
    PROMPT_S_FIELD_NUMBER: _ClassVar[int]
    GENERATED_S_FIELD_NUMBER: _ClassVar[int]
    exchange_id: str
    is_whole: bool
    events: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    is_overflow: bool
    prompt_s: float
    generated_s: float
    def __init__(self, exchange_id: _Optional[str] = ..., is_whole: _Optional[bool] = ..., events: _Optional[int] = ..., input_tokens: _Optional[int] = ..., output_tokens: _Optional[int] = ..., cached_tokens: _Optional[int] = ..., is_overflow: _Optional[bool] = ..., prompt_s: _Optional[float] = ..., generated_s: _Optional[float] = ...) -> None: ...

class Ping(_message.Message):
    __slots__ = ("sent_at", "is_deciding")
    SENT_AT_FIELD_NUMBER: _ClassVar[int]
    IS_DECIDING_FIELD_NUMBER: _ClassVar[int]
    sent_at: float
    is_deciding: bool
    def __init__(self, sent_at: _Optional[float] = ..., is_deciding: _Optional[bool] = ...) -> None: ...

class LearnedBatch(_message.Message):
    __slots__ = ("frames",)
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    frames: _containers.RepeatedCompositeFieldContainer[LearnedFrame]
    def __init__(self, frames: _Optional[_Iterable[_Union[LearnedFrame, _Mapping]]] = ...) -> None: ...

class LearnedFrame(_message.Message):
    __slots__ = ("hash_seed", "endpoint", "answers", "gone")
    HASH_SEED_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    hash_seed: HashSeed
    endpoint: LearnedEndpoint
    answers: LearnedAnswers
    gone: str
    def __init__(self, hash_seed: _Optional[_Union[HashSeed, _Mapping]] = ..., endpoint: _Optional[_Union[LearnedEndpoint, _Mapping]] = ..., answers: _Optional[_Union[LearnedAnswers, _Mapping]] = ..., gone: _Optional[str] = ...) -> None: ...

class HashSeed(_message.Message):
    __slots__ = ("seed", "check")
    SEED_FIELD_NUMBER: _ClassVar[int]
    CHECK_FIELD_NUMBER: _ClassVar[int]
    seed: int
    check: int
    def __init__(self, seed: _Optional[int] = ..., check: _Optional[int] = ...) -> None: ...

class LearnedEndpoint(_message.Message):
    __slots__ = ("address", "learned")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    LEARNED_FIELD_NUMBER: _ClassVar[int]
    address: str
    learned: bytes
    def __init__(self, address: _Optional[str] = ..., learned: _Optional[bytes] = ...) -> None: ...

class Learned(_message.Message):
    __slots__ = ("speeds", "prompt_cache", "sessions", "session_tokens")
    class Values(_message.Message):
        __slots__ = ("values",)
        VALUES_FIELD_NUMBER: _ClassVar[int]
        values: _containers.RepeatedScalarFieldContainer[float]
        def __init__(self, values: _Optional[_Iterable[float]] = ...) -> None: ...
    class PromptCache(_message.Message):
        __slots__ = ("capacity_blocks", "read_blocks", "blocks", "read_at")
        CAPACITY_BLOCKS_FIELD_NUMBER: _ClassVar[int]
        READ_BLOCKS_FIELD_NUMBER: _ClassVar[int]
        BLOCKS_FIELD_NUMBER: _ClassVar[int]
        READ_AT_FIELD_NUMBER: _ClassVar[int]
        capacity_blocks: float
        read_blocks: int
        blocks: _containers.RepeatedScalarFieldContainer[int]
        read_at: _containers.RepeatedScalarFieldContainer[int]
        def __init__(self, capacity_blocks: _Optional[float] = ..., read_blocks: _Optional[int] = ..., blocks: _Optional[_Iterable[int]] = ..., read_at: _Optional[_Iterable[int]] = ...) -> None: ...
    SPEEDS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_CACHE_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    SESSION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    speeds: _containers.RepeatedCompositeFieldContainer[Learned.Values]
    prompt_cache: Learned.PromptCache
    sessions: _containers.RepeatedScalarFieldContainer[str]
    session_tokens: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, speeds: _Optional[_Iterable[_Union[Learned.Values, _Mapping]]] = ..., prompt_cache: _Optional[_Union[Learned.PromptCache, _Mapping]] = ..., sessions: _Optional[_Iterable[str]] = ..., session_tokens: _Optional[_Iterable[float]] = ...) -> None: ...

class LearnedAnswers(_message.Message):
    __slots__ = ("values", "lengths", "loads")
    VALUES_FIELD_NUMBER: _ClassVar[int]
    LENGTHS_FIELD_NUMBER: _ClassVar[int]
    LOADS_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[float]
    lengths: _containers.RepeatedCompositeFieldContainer[LearnedLengths]
    loads: _containers.RepeatedCompositeFieldContainer[LearnedLoads]
    def __init__(self, values: _Optional[_Iterable[float]] = ..., lengths: _Optional[_Iterable[_Union[LearnedLengths, _Mapping]]] = ..., loads: _Optional[_Iterable[_Union[LearnedLoads, _Mapping]]] = ...) -> None: ...

class LearnedLoads(_message.Message):
    __slots__ = ("model", "values")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    model: str
    values: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, model: _Optional[str] = ..., values: _Optional[_Iterable[float]] = ...) -> None: ...

class LearnedLengths(_message.Message):
    __slots__ = ("model", "values")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    model: str
    values: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, model: _Optional[str] = ..., values: _Optional[_Iterable[float]] = ...) -> None: ...
