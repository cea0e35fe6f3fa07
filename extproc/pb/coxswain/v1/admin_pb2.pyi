# mypy: disable-error-code=type-arg
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Health(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    HEALTH_UNSPECIFIED: _ClassVar[Health]
    HEALTH_LOADING: _ClassVar[Health]
    HEALTH_READY: _ClassVar[Health]
    HEALTH_DEGRADED: _ClassVar[Health]
    HEALTH_DOWN: _ClassVar[Health]
    HEALTH_ASLEEP: _ClassVar[Health]
    HEALTH_OFF: _ClassVar[Health]

class Intent(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    INTENT_UNSPECIFIED: _ClassVar[Intent]
    INTENT_ACTIVE: _ClassVar[Intent]
    INTENT_DRAINING: _ClassVar[Intent]
    INTENT_DISABLED: _ClassVar[Intent]

class RequestState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REQUEST_STATE_UNSPECIFIED: _ClassVar[RequestState]
    REQUEST_STATE_QUEUED: _ClassVar[RequestState]
    REQUEST_STATE_RUNNING: _ClassVar[RequestState]
    REQUEST_STATE_RESPONDING: _ClassVar[RequestState]
    REQUEST_STATE_PASSING: _ClassVar[RequestState]
    REQUEST_STATE_READING: _ClassVar[RequestState]

class UsageGroup(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    USAGE_GROUP_UNSPECIFIED: _ClassVar[UsageGroup]
    USAGE_GROUP_CLIENT: _ClassVar[UsageGroup]
    USAGE_GROUP_OBJECTIVE: _ClassVar[UsageGroup]
    USAGE_GROUP_MODEL: _ClassVar[UsageGroup]
    USAGE_GROUP_TOTAL: _ClassVar[UsageGroup]
    USAGE_GROUP_TIER: _ClassVar[UsageGroup]
HEALTH_UNSPECIFIED: Health
HEALTH_LOADING: Health
HEALTH_READY: Health
HEALTH_DEGRADED: Health
HEALTH_DOWN: Health
HEALTH_ASLEEP: Health
HEALTH_OFF: Health
INTENT_UNSPECIFIED: Intent
INTENT_ACTIVE: Intent
INTENT_DRAINING: Intent
INTENT_DISABLED: Intent
REQUEST_STATE_UNSPECIFIED: RequestState
REQUEST_STATE_QUEUED: RequestState
REQUEST_STATE_RUNNING: RequestState
REQUEST_STATE_RESPONDING: RequestState
REQUEST_STATE_PASSING: RequestState
REQUEST_STATE_READING: RequestState
USAGE_GROUP_UNSPECIFIED: UsageGroup
USAGE_GROUP_CLIENT: UsageGroup
USAGE_GROUP_OBJECTIVE: UsageGroup
USAGE_GROUP_MODEL: UsageGroup
USAGE_GROUP_TOTAL: UsageGroup
USAGE_GROUP_TIER: UsageGroup

class Slots(_message.Message):
    __slots__ = ("total", "leased", "foreign", "idle", "draining", "unusable")
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    LEASED_FIELD_NUMBER: _ClassVar[int]
    FOREIGN_FIELD_NUMBER: _ClassVar[int]
    IDLE_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    UNUSABLE_FIELD_NUMBER: _ClassVar[int]
    total: int
    leased: int
    foreign: int
    idle: int
    draining: int
    unusable: int
    def __init__(self, total: _Optional[int] = ..., leased: _Optional[int] = ..., foreign: _Optional[int] = ..., idle: _Optional[int] = ..., draining: _Optional[int] = ..., unusable: _Optional[int] = ...) -> None: ...

class Tokens(_message.Message):
    __slots__ = ("total", "held", "reserved", "free", "source")
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    RESERVED_FIELD_NUMBER: _ClassVar[int]
    FREE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    total: int
    held: int
    reserved: int
    free: int
    source: str
    def __init__(self, total: _Optional[int] = ..., held: _Optional[int] = ..., reserved: _Optional[int] = ..., free: _Optional[int] = ..., source: _Optional[str] = ...) -> None: ...

class Model(_message.Message):
    __slots__ = ("name", "aliases", "is_loaded")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ALIASES_FIELD_NUMBER: _ClassVar[int]
    IS_LOADED_FIELD_NUMBER: _ClassVar[int]
    name: str
    aliases: _containers.RepeatedScalarFieldContainer[str]
    is_loaded: bool
    def __init__(self, name: _Optional[str] = ..., aliases: _Optional[_Iterable[str]] = ..., is_loaded: _Optional[bool] = ...) -> None: ...

class Issue(_message.Message):
    __slots__ = ("code", "message", "remedy")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    REMEDY_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    remedy: str
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., remedy: _Optional[str] = ...) -> None: ...

class Endpoint(_message.Message):
    __slots__ = ("address", "name", "hostname", "health", "intent", "slots", "models", "issues", "observed_age_s", "sources", "is_fresh", "is_known_to_envoy", "is_removed", "is_pickable", "leases", "intent_age_s", "tokens", "labels", "runner", "is_foreign_known", "tier", "pool", "unique_name", "is_ejected", "is_waking", "is_going_off")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    INTENT_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    ISSUES_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_AGE_S_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    IS_FRESH_FIELD_NUMBER: _ClassVar[int]
    IS_KNOWN_TO_ENVOY_FIELD_NUMBER: _ClassVar[int]
    IS_REMOVED_FIELD_NUMBER: _ClassVar[int]
    IS_PICKABLE_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    INTENT_AGE_S_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    RUNNER_FIELD_NUMBER: _ClassVar[int]
    IS_FOREIGN_KNOWN_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_NAME_FIELD_NUMBER: _ClassVar[int]
    IS_EJECTED_FIELD_NUMBER: _ClassVar[int]
    IS_WAKING_FIELD_NUMBER: _ClassVar[int]
    IS_GOING_OFF_FIELD_NUMBER: _ClassVar[int]
    address: str
    name: str
    hostname: str
    health: Health
    intent: Intent
    slots: Slots
    models: _containers.RepeatedCompositeFieldContainer[Model]
    issues: _containers.RepeatedCompositeFieldContainer[Issue]
    observed_age_s: float
    sources: _containers.RepeatedScalarFieldContainer[str]
    is_fresh: bool
    is_known_to_envoy: bool
    is_removed: bool
    is_pickable: bool
    leases: int
    intent_age_s: float
    tokens: Tokens
    labels: _containers.ScalarMap[str, str]
    runner: str
    is_foreign_known: bool
    tier: int
    pool: str
    unique_name: str
    is_ejected: bool
    is_waking: bool
    is_going_off: bool
    def __init__(self, address: _Optional[str] = ..., name: _Optional[str] = ..., hostname: _Optional[str] = ..., health: _Optional[_Union[Health, str]] = ..., intent: _Optional[_Union[Intent, str]] = ..., slots: _Optional[_Union[Slots, _Mapping]] = ..., models: _Optional[_Iterable[_Union[Model, _Mapping]]] = ..., issues: _Optional[_Iterable[_Union[Issue, _Mapping]]] = ..., observed_age_s: _Optional[float] = ..., sources: _Optional[_Iterable[str]] = ..., is_fresh: _Optional[bool] = ..., is_known_to_envoy: _Optional[bool] = ..., is_removed: _Optional[bool] = ..., is_pickable: _Optional[bool] = ..., leases: _Optional[int] = ..., intent_age_s: _Optional[float] = ..., tokens: _Optional[_Union[Tokens, _Mapping]] = ..., labels: _Optional[_Mapping[str, str]] = ..., runner: _Optional[str] = ..., is_foreign_known: _Optional[bool] = ..., tier: _Optional[int] = ..., pool: _Optional[str] = ..., unique_name: _Optional[str] = ..., is_ejected: _Optional[bool] = ..., is_waking: _Optional[bool] = ..., is_going_off: _Optional[bool] = ...) -> None: ...

class ListEndpointsRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "pool")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    pool: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., pool: _Optional[str] = ...) -> None: ...

class ListEndpointsResponse(_message.Message):
    __slots__ = ("endpoints", "next_page_token", "total")
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    endpoints: _containers.RepeatedCompositeFieldContainer[Endpoint]
    next_page_token: str
    total: int
    def __init__(self, endpoints: _Optional[_Iterable[_Union[Endpoint, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., total: _Optional[int] = ...) -> None: ...

class WatchEndpointsRequest(_message.Message):
    __slots__ = ("pool",)
    POOL_FIELD_NUMBER: _ClassVar[int]
    pool: str
    def __init__(self, pool: _Optional[str] = ...) -> None: ...

class WatchEndpointsResponse(_message.Message):
    __slots__ = ("changed", "removed", "is_snapshot_complete")
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    IS_SNAPSHOT_COMPLETE_FIELD_NUMBER: _ClassVar[int]
    changed: _containers.RepeatedCompositeFieldContainer[Endpoint]
    removed: _containers.RepeatedScalarFieldContainer[str]
    is_snapshot_complete: bool
    def __init__(self, changed: _Optional[_Iterable[_Union[Endpoint, _Mapping]]] = ..., removed: _Optional[_Iterable[str]] = ..., is_snapshot_complete: _Optional[bool] = ...) -> None: ...

class WatchFleetRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchFleetResponse(_message.Message):
    __slots__ = ("slots", "busy_slots", "context_tokens", "models")
    class Model(_message.Message):
        __slots__ = ("name", "aliases", "is_loaded", "slots", "busy_slots")
        NAME_FIELD_NUMBER: _ClassVar[int]
        ALIASES_FIELD_NUMBER: _ClassVar[int]
        IS_LOADED_FIELD_NUMBER: _ClassVar[int]
        SLOTS_FIELD_NUMBER: _ClassVar[int]
        BUSY_SLOTS_FIELD_NUMBER: _ClassVar[int]
        name: str
        aliases: _containers.RepeatedScalarFieldContainer[str]
        is_loaded: bool
        slots: int
        busy_slots: int
        def __init__(self, name: _Optional[str] = ..., aliases: _Optional[_Iterable[str]] = ..., is_loaded: _Optional[bool] = ..., slots: _Optional[int] = ..., busy_slots: _Optional[int] = ...) -> None: ...
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    BUSY_SLOTS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    slots: int
    busy_slots: int
    context_tokens: int
    models: _containers.RepeatedCompositeFieldContainer[WatchFleetResponse.Model]
    def __init__(self, slots: _Optional[int] = ..., busy_slots: _Optional[int] = ..., context_tokens: _Optional[int] = ..., models: _Optional[_Iterable[_Union[WatchFleetResponse.Model, _Mapping]]] = ...) -> None: ...

class AddEndpointRequest(_message.Message):
    __slots__ = ("address", "name", "slots", "ca_file", "server_name", "api_key_env", "api_key_file", "inject_key", "may_sleep", "kind", "pool")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    CA_FILE_FIELD_NUMBER: _ClassVar[int]
    SERVER_NAME_FIELD_NUMBER: _ClassVar[int]
    API_KEY_ENV_FIELD_NUMBER: _ClassVar[int]
    API_KEY_FILE_FIELD_NUMBER: _ClassVar[int]
    INJECT_KEY_FIELD_NUMBER: _ClassVar[int]
    MAY_SLEEP_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    address: str
    name: str
    slots: int
    ca_file: str
    server_name: str
    api_key_env: str
    api_key_file: str
    inject_key: bool
    may_sleep: bool
    kind: str
    pool: str
    def __init__(self, address: _Optional[str] = ..., name: _Optional[str] = ..., slots: _Optional[int] = ..., ca_file: _Optional[str] = ..., server_name: _Optional[str] = ..., api_key_env: _Optional[str] = ..., api_key_file: _Optional[str] = ..., inject_key: _Optional[bool] = ..., may_sleep: _Optional[bool] = ..., kind: _Optional[str] = ..., pool: _Optional[str] = ...) -> None: ...

class AddEndpointResponse(_message.Message):
    __slots__ = ("endpoint",)
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    endpoint: Endpoint
    def __init__(self, endpoint: _Optional[_Union[Endpoint, _Mapping]] = ...) -> None: ...

class RemoveEndpointRequest(_message.Message):
    __slots__ = ("address",)
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    address: str
    def __init__(self, address: _Optional[str] = ...) -> None: ...

class RemoveEndpointResponse(_message.Message):
    __slots__ = ("running", "remaining_sources")
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    REMAINING_SOURCES_FIELD_NUMBER: _ClassVar[int]
    running: int
    remaining_sources: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, running: _Optional[int] = ..., remaining_sources: _Optional[_Iterable[str]] = ...) -> None: ...

class DrainRequest(_message.Message):
    __slots__ = ("address", "deadline_s")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_S_FIELD_NUMBER: _ClassVar[int]
    address: str
    deadline_s: float
    def __init__(self, address: _Optional[str] = ..., deadline_s: _Optional[float] = ...) -> None: ...

class DrainResponse(_message.Message):
    __slots__ = ("state", "running", "running_at_start", "elapsed_s")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[DrainResponse.State]
        STATE_DRAINING: _ClassVar[DrainResponse.State]
        STATE_DRAINED: _ClassVar[DrainResponse.State]
        STATE_DEADLINE_PASSED: _ClassVar[DrainResponse.State]
        STATE_CALLED_OFF: _ClassVar[DrainResponse.State]
    STATE_UNSPECIFIED: DrainResponse.State
    STATE_DRAINING: DrainResponse.State
    STATE_DRAINED: DrainResponse.State
    STATE_DEADLINE_PASSED: DrainResponse.State
    STATE_CALLED_OFF: DrainResponse.State
    STATE_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    RUNNING_AT_START_FIELD_NUMBER: _ClassVar[int]
    ELAPSED_S_FIELD_NUMBER: _ClassVar[int]
    state: DrainResponse.State
    running: int
    running_at_start: int
    elapsed_s: float
    def __init__(self, state: _Optional[_Union[DrainResponse.State, str]] = ..., running: _Optional[int] = ..., running_at_start: _Optional[int] = ..., elapsed_s: _Optional[float] = ...) -> None: ...

class ActivateRequest(_message.Message):
    __slots__ = ("address",)
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    address: str
    def __init__(self, address: _Optional[str] = ...) -> None: ...

class ActivateResponse(_message.Message):
    __slots__ = ("endpoint",)
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    endpoint: Endpoint
    def __init__(self, endpoint: _Optional[_Union[Endpoint, _Mapping]] = ...) -> None: ...

class DisableRequest(_message.Message):
    __slots__ = ("address",)
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    address: str
    def __init__(self, address: _Optional[str] = ...) -> None: ...

class DisableResponse(_message.Message):
    __slots__ = ("endpoint",)
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    endpoint: Endpoint
    def __init__(self, endpoint: _Optional[_Union[Endpoint, _Mapping]] = ...) -> None: ...

class Request(_message.Message):
    __slots__ = ("exchange_id", "request_id", "state", "endpoint", "model", "criticality", "objective", "age_s", "waited_s", "queue_position", "expected_s", "weight_slots", "queued", "wait_reason", "endpoint_name", "note", "client", "pool")
    EXCHANGE_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CRITICALITY_FIELD_NUMBER: _ClassVar[int]
    OBJECTIVE_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    WAITED_S_FIELD_NUMBER: _ClassVar[int]
    QUEUE_POSITION_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_S_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_SLOTS_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    WAIT_REASON_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_NAME_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    exchange_id: str
    request_id: str
    state: RequestState
    endpoint: str
    model: str
    criticality: str
    objective: str
    age_s: float
    waited_s: float
    queue_position: int
    expected_s: float
    weight_slots: int
    queued: int
    wait_reason: str
    endpoint_name: str
    note: str
    client: str
    pool: str
    def __init__(self, exchange_id: _Optional[str] = ..., request_id: _Optional[str] = ..., state: _Optional[_Union[RequestState, str]] = ..., endpoint: _Optional[str] = ..., model: _Optional[str] = ..., criticality: _Optional[str] = ..., objective: _Optional[str] = ..., age_s: _Optional[float] = ..., waited_s: _Optional[float] = ..., queue_position: _Optional[int] = ..., expected_s: _Optional[float] = ..., weight_slots: _Optional[int] = ..., queued: _Optional[int] = ..., wait_reason: _Optional[str] = ..., endpoint_name: _Optional[str] = ..., note: _Optional[str] = ..., client: _Optional[str] = ..., pool: _Optional[str] = ...) -> None: ...

class ListRequestsRequest(_message.Message):
    __slots__ = ("limit", "states", "endpoint", "client", "model", "pool")
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    limit: int
    states: _containers.RepeatedScalarFieldContainer[RequestState]
    endpoint: str
    client: str
    model: str
    pool: str
    def __init__(self, limit: _Optional[int] = ..., states: _Optional[_Iterable[_Union[RequestState, str]]] = ..., endpoint: _Optional[str] = ..., client: _Optional[str] = ..., model: _Optional[str] = ..., pool: _Optional[str] = ...) -> None: ...

class ListRequestsResponse(_message.Message):
    __slots__ = ("requests", "total_running", "total_queued", "total")
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_RUNNING_FIELD_NUMBER: _ClassVar[int]
    TOTAL_QUEUED_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[Request]
    total_running: int
    total_queued: int
    total: int
    def __init__(self, requests: _Optional[_Iterable[_Union[Request, _Mapping]]] = ..., total_running: _Optional[int] = ..., total_queued: _Optional[int] = ..., total: _Optional[int] = ...) -> None: ...

class WatchQueueRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class WatchQueueResponse(_message.Message):
    __slots__ = ("state", "queue_position", "queued", "expected_s", "waited_s", "endpoint", "exchange_id", "endpoint_name", "note")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[WatchQueueResponse.State]
        STATE_QUEUED: _ClassVar[WatchQueueResponse.State]
        STATE_SERVED: _ClassVar[WatchQueueResponse.State]
        STATE_GONE: _ClassVar[WatchQueueResponse.State]
    STATE_UNSPECIFIED: WatchQueueResponse.State
    STATE_QUEUED: WatchQueueResponse.State
    STATE_SERVED: WatchQueueResponse.State
    STATE_GONE: WatchQueueResponse.State
    STATE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_POSITION_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_S_FIELD_NUMBER: _ClassVar[int]
    WAITED_S_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_ID_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_NAME_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    state: WatchQueueResponse.State
    queue_position: int
    queued: int
    expected_s: float
    waited_s: float
    endpoint: str
    exchange_id: str
    endpoint_name: str
    note: str
    def __init__(self, state: _Optional[_Union[WatchQueueResponse.State, str]] = ..., queue_position: _Optional[int] = ..., queued: _Optional[int] = ..., expected_s: _Optional[float] = ..., waited_s: _Optional[float] = ..., endpoint: _Optional[str] = ..., exchange_id: _Optional[str] = ..., endpoint_name: _Optional[str] = ..., note: _Optional[str] = ...) -> None: ...

class RequestRecord(_message.Message):
    __slots__ = ("exchange_id", "request_id", "state", "client", "model", "objective", "criticality", "path", "endpoint", "endpoint_name", "tier", "outcome", "reason", "status", "attempts", "ended_at", "duration_s", "arrival_s", "waited_s", "queued_before", "place", "place_of", "place_after_s", "waits", "wait_note", "server_s", "first_token_s", "is_stream", "is_cold", "is_counted", "prompt_tokens", "cached_tokens", "generated_tokens", "seen_s", "prompt_s", "generated_s", "pool", "is_servers_fault", "is_overflow")
    class WaitsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    EXCHANGE_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    OBJECTIVE_FIELD_NUMBER: _ClassVar[int]
    CRITICALITY_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_NAME_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    DURATION_S_FIELD_NUMBER: _ClassVar[int]
    ARRIVAL_S_FIELD_NUMBER: _ClassVar[int]
    WAITED_S_FIELD_NUMBER: _ClassVar[int]
    QUEUED_BEFORE_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    PLACE_OF_FIELD_NUMBER: _ClassVar[int]
    PLACE_AFTER_S_FIELD_NUMBER: _ClassVar[int]
    WAITS_FIELD_NUMBER: _ClassVar[int]
    WAIT_NOTE_FIELD_NUMBER: _ClassVar[int]
    SERVER_S_FIELD_NUMBER: _ClassVar[int]
    FIRST_TOKEN_S_FIELD_NUMBER: _ClassVar[int]
    IS_STREAM_FIELD_NUMBER: _ClassVar[int]
    IS_COLD_FIELD_NUMBER: _ClassVar[int]
    IS_COUNTED_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    GENERATED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SEEN_S_FIELD_NUMBER: _ClassVar[int]
    PROMPT_S_FIELD_NUMBER: _ClassVar[int]
    GENERATED_S_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    IS_SERVERS_FAULT_FIELD_NUMBER: _ClassVar[int]
    IS_OVERFLOW_FIELD_NUMBER: _ClassVar[int]
    exchange_id: str
    request_id: str
    state: str
    client: str
    model: str
    objective: str
    criticality: str
    path: str
    endpoint: str
    endpoint_name: str
    tier: int
    outcome: str
    reason: str
    status: int
    attempts: int
    ended_at: float
    duration_s: float
    arrival_s: float
    waited_s: float
    queued_before: int
    place: int
    place_of: int
    place_after_s: float
    waits: _containers.ScalarMap[str, float]
    wait_note: str
    server_s: float
    first_token_s: float
    is_stream: bool
    is_cold: bool
    is_counted: bool
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    seen_s: float
    prompt_s: float
    generated_s: float
    pool: str
    is_servers_fault: bool
    is_overflow: bool
    def __init__(self, exchange_id: _Optional[str] = ..., request_id: _Optional[str] = ..., state: _Optional[str] = ..., client: _Optional[str] = ..., model: _Optional[str] = ..., objective: _Optional[str] = ..., criticality: _Optional[str] = ..., path: _Optional[str] = ..., endpoint: _Optional[str] = ..., endpoint_name: _Optional[str] = ..., tier: _Optional[int] = ..., outcome: _Optional[str] = ..., reason: _Optional[str] = ..., status: _Optional[int] = ..., attempts: _Optional[int] = ..., ended_at: _Optional[float] = ..., duration_s: _Optional[float] = ..., arrival_s: _Optional[float] = ..., waited_s: _Optional[float] = ..., queued_before: _Optional[int] = ..., place: _Optional[int] = ..., place_of: _Optional[int] = ..., place_after_s: _Optional[float] = ..., waits: _Optional[_Mapping[str, float]] = ..., wait_note: _Optional[str] = ..., server_s: _Optional[float] = ..., first_token_s: _Optional[float] = ..., is_stream: _Optional[bool] = ..., is_cold: _Optional[bool] = ..., is_counted: _Optional[bool] = ..., prompt_tokens: _Optional[int] = ..., cached_tokens: _Optional[int] = ..., generated_tokens: _Optional[int] = ..., seen_s: _Optional[float] = ..., prompt_s: _Optional[float] = ..., generated_s: _Optional[float] = ..., pool: _Optional[str] = ..., is_servers_fault: _Optional[bool] = ..., is_overflow: _Optional[bool] = ...) -> None: ...

class ListRecordsRequest(_message.Message):
    __slots__ = ("since_s", "client", "model", "endpoint", "outcome", "limit", "after", "instance", "pool")
    SINCE_S_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    since_s: float
    client: str
    model: str
    endpoint: str
    outcome: str
    limit: int
    after: int
    instance: str
    pool: str
    def __init__(self, since_s: _Optional[float] = ..., client: _Optional[str] = ..., model: _Optional[str] = ..., endpoint: _Optional[str] = ..., outcome: _Optional[str] = ..., limit: _Optional[int] = ..., after: _Optional[int] = ..., instance: _Optional[str] = ..., pool: _Optional[str] = ...) -> None: ...

class ListRecordsResponse(_message.Message):
    __slots__ = ("records", "total", "last", "instance")
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    records: _containers.RepeatedCompositeFieldContainer[RequestRecord]
    total: int
    last: int
    instance: str
    def __init__(self, records: _Optional[_Iterable[_Union[RequestRecord, _Mapping]]] = ..., total: _Optional[int] = ..., last: _Optional[int] = ..., instance: _Optional[str] = ...) -> None: ...

class ShowRequestRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class ShowRequestResponse(_message.Message):
    __slots__ = ("record", "parts", "summary", "beside", "others", "others_mean", "others_most", "same_id", "cause")
    class Part(_message.Message):
        __slots__ = ("name", "seconds", "text", "is_exact")
        NAME_FIELD_NUMBER: _ClassVar[int]
        SECONDS_FIELD_NUMBER: _ClassVar[int]
        TEXT_FIELD_NUMBER: _ClassVar[int]
        IS_EXACT_FIELD_NUMBER: _ClassVar[int]
        name: str
        seconds: float
        text: str
        is_exact: bool
        def __init__(self, name: _Optional[str] = ..., seconds: _Optional[float] = ..., text: _Optional[str] = ..., is_exact: _Optional[bool] = ...) -> None: ...
    RECORD_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    BESIDE_FIELD_NUMBER: _ClassVar[int]
    OTHERS_FIELD_NUMBER: _ClassVar[int]
    OTHERS_MEAN_FIELD_NUMBER: _ClassVar[int]
    OTHERS_MOST_FIELD_NUMBER: _ClassVar[int]
    SAME_ID_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    record: RequestRecord
    parts: _containers.RepeatedCompositeFieldContainer[ShowRequestResponse.Part]
    summary: str
    beside: str
    others: int
    others_mean: float
    others_most: int
    same_id: _containers.RepeatedScalarFieldContainer[str]
    cause: str
    def __init__(self, record: _Optional[_Union[RequestRecord, _Mapping]] = ..., parts: _Optional[_Iterable[_Union[ShowRequestResponse.Part, _Mapping]]] = ..., summary: _Optional[str] = ..., beside: _Optional[str] = ..., others: _Optional[int] = ..., others_mean: _Optional[float] = ..., others_most: _Optional[int] = ..., same_id: _Optional[_Iterable[str]] = ..., cause: _Optional[str] = ...) -> None: ...

class ListEventsRequest(_message.Message):
    __slots__ = ("since_s", "endpoint", "model", "kind", "limit", "after", "instance", "client", "outcome")
    SINCE_S_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    since_s: float
    endpoint: str
    model: str
    kind: str
    limit: int
    after: int
    instance: str
    client: str
    outcome: str
    def __init__(self, since_s: _Optional[float] = ..., endpoint: _Optional[str] = ..., model: _Optional[str] = ..., kind: _Optional[str] = ..., limit: _Optional[int] = ..., after: _Optional[int] = ..., instance: _Optional[str] = ..., client: _Optional[str] = ..., outcome: _Optional[str] = ...) -> None: ...

class FleetEvent(_message.Message):
    __slots__ = ("number", "at", "kind", "text", "endpoint", "endpoint_name", "model", "client", "exchange_id")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_NAME_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_ID_FIELD_NUMBER: _ClassVar[int]
    number: int
    at: float
    kind: str
    text: str
    endpoint: str
    endpoint_name: str
    model: str
    client: str
    exchange_id: str
    def __init__(self, number: _Optional[int] = ..., at: _Optional[float] = ..., kind: _Optional[str] = ..., text: _Optional[str] = ..., endpoint: _Optional[str] = ..., endpoint_name: _Optional[str] = ..., model: _Optional[str] = ..., client: _Optional[str] = ..., exchange_id: _Optional[str] = ...) -> None: ...

class ListEventsResponse(_message.Message):
    __slots__ = ("events", "last", "instance")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[FleetEvent]
    last: int
    instance: str
    def __init__(self, events: _Optional[_Iterable[_Union[FleetEvent, _Mapping]]] = ..., last: _Optional[int] = ..., instance: _Optional[str] = ...) -> None: ...

class CancelRequestRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class CancelRequestResponse(_message.Message):
    __slots__ = ("request",)
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    request: Request
    def __init__(self, request: _Optional[_Union[Request, _Mapping]] = ...) -> None: ...

class ExplainRequest(_message.Message):
    __slots__ = ("method", "path", "headers", "body", "client", "pool")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    METHOD_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    method: str
    path: str
    headers: _containers.ScalarMap[str, str]
    body: bytes
    client: str
    pool: str
    def __init__(self, method: _Optional[str] = ..., path: _Optional[str] = ..., headers: _Optional[_Mapping[str, str]] = ..., body: _Optional[bytes] = ..., client: _Optional[str] = ..., pool: _Optional[str] = ...) -> None: ...

class ExplainResponse(_message.Message):
    __slots__ = ("decision", "reason", "chosen", "queue_position", "expected_s", "candidates", "resolved", "chosen_name", "note")
    class Decision(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DECISION_UNSPECIFIED: _ClassVar[ExplainResponse.Decision]
        DECISION_PICKED: _ClassVar[ExplainResponse.Decision]
        DECISION_QUEUED: _ClassVar[ExplainResponse.Decision]
        DECISION_REJECTED: _ClassVar[ExplainResponse.Decision]
        DECISION_PASSED: _ClassVar[ExplainResponse.Decision]
    DECISION_UNSPECIFIED: ExplainResponse.Decision
    DECISION_PICKED: ExplainResponse.Decision
    DECISION_QUEUED: ExplainResponse.Decision
    DECISION_REJECTED: ExplainResponse.Decision
    DECISION_PASSED: ExplainResponse.Decision
    class Score(_message.Message):
        __slots__ = ("name", "value", "detail")
        NAME_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        DETAIL_FIELD_NUMBER: _ClassVar[int]
        name: str
        value: float
        detail: str
        def __init__(self, name: _Optional[str] = ..., value: _Optional[float] = ..., detail: _Optional[str] = ...) -> None: ...
    class Candidate(_message.Message):
        __slots__ = ("address", "name", "filtered", "scores", "rank")
        ADDRESS_FIELD_NUMBER: _ClassVar[int]
        NAME_FIELD_NUMBER: _ClassVar[int]
        FILTERED_FIELD_NUMBER: _ClassVar[int]
        SCORES_FIELD_NUMBER: _ClassVar[int]
        RANK_FIELD_NUMBER: _ClassVar[int]
        address: str
        name: str
        filtered: _containers.RepeatedScalarFieldContainer[str]
        scores: _containers.RepeatedCompositeFieldContainer[ExplainResponse.Score]
        rank: int
        def __init__(self, address: _Optional[str] = ..., name: _Optional[str] = ..., filtered: _Optional[_Iterable[str]] = ..., scores: _Optional[_Iterable[_Union[ExplainResponse.Score, _Mapping]]] = ..., rank: _Optional[int] = ...) -> None: ...
    class ResolvedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    DECISION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CHOSEN_FIELD_NUMBER: _ClassVar[int]
    QUEUE_POSITION_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_S_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    RESOLVED_FIELD_NUMBER: _ClassVar[int]
    CHOSEN_NAME_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    decision: ExplainResponse.Decision
    reason: str
    chosen: str
    queue_position: int
    expected_s: float
    candidates: _containers.RepeatedCompositeFieldContainer[ExplainResponse.Candidate]
    resolved: _containers.ScalarMap[str, str]
    chosen_name: str
    note: str
    def __init__(self, decision: _Optional[_Union[ExplainResponse.Decision, str]] = ..., reason: _Optional[str] = ..., chosen: _Optional[str] = ..., queue_position: _Optional[int] = ..., expected_s: _Optional[float] = ..., candidates: _Optional[_Iterable[_Union[ExplainResponse.Candidate, _Mapping]]] = ..., resolved: _Optional[_Mapping[str, str]] = ..., chosen_name: _Optional[str] = ..., note: _Optional[str] = ...) -> None: ...

class GetSettingsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetSettingsResponse(_message.Message):
    __slots__ = ("json", "file")
    JSON_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    json: str
    file: str
    def __init__(self, json: _Optional[str] = ..., file: _Optional[str] = ...) -> None: ...

class ReloadSettingsRequest(_message.Message):
    __slots__ = ("dry_run",)
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    dry_run: bool
    def __init__(self, dry_run: _Optional[bool] = ...) -> None: ...

class ReloadSettingsResponse(_message.Message):
    __slots__ = ("applied", "needs_restart")
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    NEEDS_RESTART_FIELD_NUMBER: _ClassVar[int]
    applied: _containers.RepeatedScalarFieldContainer[str]
    needs_restart: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, applied: _Optional[_Iterable[str]] = ..., needs_restart: _Optional[_Iterable[str]] = ...) -> None: ...

class GetStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStatusResponse(_message.Message):
    __slots__ = ("version", "uptime_s", "is_ready", "not_ready", "problems", "slots", "endpoints_by_health", "endpoints_by_intent", "queue", "running", "exchanges", "outcomes", "bypassed", "fleet_version", "envoys", "spill", "pools", "scale", "machines", "models", "processes", "takes_actions")
    class Pool(_message.Message):
        __slots__ = ("name", "is_default", "endpoints", "pickable", "slots", "running", "queued")
        NAME_FIELD_NUMBER: _ClassVar[int]
        IS_DEFAULT_FIELD_NUMBER: _ClassVar[int]
        ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
        PICKABLE_FIELD_NUMBER: _ClassVar[int]
        SLOTS_FIELD_NUMBER: _ClassVar[int]
        RUNNING_FIELD_NUMBER: _ClassVar[int]
        QUEUED_FIELD_NUMBER: _ClassVar[int]
        name: str
        is_default: bool
        endpoints: int
        pickable: int
        slots: Slots
        running: int
        queued: int
        def __init__(self, name: _Optional[str] = ..., is_default: _Optional[bool] = ..., endpoints: _Optional[int] = ..., pickable: _Optional[int] = ..., slots: _Optional[_Union[Slots, _Mapping]] = ..., running: _Optional[int] = ..., queued: _Optional[int] = ...) -> None: ...
    class Bound(_message.Message):
        __slots__ = ("kind", "name", "running", "max_running", "queued", "max_queued", "queue_timeout_s", "is_lifo")
        KIND_FIELD_NUMBER: _ClassVar[int]
        NAME_FIELD_NUMBER: _ClassVar[int]
        RUNNING_FIELD_NUMBER: _ClassVar[int]
        MAX_RUNNING_FIELD_NUMBER: _ClassVar[int]
        QUEUED_FIELD_NUMBER: _ClassVar[int]
        MAX_QUEUED_FIELD_NUMBER: _ClassVar[int]
        QUEUE_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
        IS_LIFO_FIELD_NUMBER: _ClassVar[int]
        kind: str
        name: str
        running: int
        max_running: int
        queued: int
        max_queued: int
        queue_timeout_s: float
        is_lifo: bool
        def __init__(self, kind: _Optional[str] = ..., name: _Optional[str] = ..., running: _Optional[int] = ..., max_running: _Optional[int] = ..., queued: _Optional[int] = ..., max_queued: _Optional[int] = ..., queue_timeout_s: _Optional[float] = ..., is_lifo: _Optional[bool] = ...) -> None: ...
    class Envoy(_message.Message):
        __slots__ = ("node_id", "acknowledged_version")
        NODE_ID_FIELD_NUMBER: _ClassVar[int]
        ACKNOWLEDGED_VERSION_FIELD_NUMBER: _ClassVar[int]
        node_id: str
        acknowledged_version: int
        def __init__(self, node_id: _Optional[str] = ..., acknowledged_version: _Optional[int] = ...) -> None: ...
    class ModelQueue(_message.Message):
        __slots__ = ("model", "queued", "by_reason", "idle_slots")
        class ByReasonEntry(_message.Message):
            __slots__ = ("key", "value")
            KEY_FIELD_NUMBER: _ClassVar[int]
            VALUE_FIELD_NUMBER: _ClassVar[int]
            key: str
            value: int
            def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
        MODEL_FIELD_NUMBER: _ClassVar[int]
        QUEUED_FIELD_NUMBER: _ClassVar[int]
        BY_REASON_FIELD_NUMBER: _ClassVar[int]
        IDLE_SLOTS_FIELD_NUMBER: _ClassVar[int]
        model: str
        queued: int
        by_reason: _containers.ScalarMap[str, int]
        idle_slots: int
        def __init__(self, model: _Optional[str] = ..., queued: _Optional[int] = ..., by_reason: _Optional[_Mapping[str, int]] = ..., idle_slots: _Optional[int] = ...) -> None: ...
    class Queue(_message.Message):
        __slots__ = ("queued", "max_requests", "body_bytes", "max_body_bytes", "by_criticality", "longest_wait_s", "expected_s", "models", "bounds", "idle_note", "order", "max_overtaken_s")
        class ByCriticalityEntry(_message.Message):
            __slots__ = ("key", "value")
            KEY_FIELD_NUMBER: _ClassVar[int]
            VALUE_FIELD_NUMBER: _ClassVar[int]
            key: str
            value: int
            def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
        QUEUED_FIELD_NUMBER: _ClassVar[int]
        MAX_REQUESTS_FIELD_NUMBER: _ClassVar[int]
        BODY_BYTES_FIELD_NUMBER: _ClassVar[int]
        MAX_BODY_BYTES_FIELD_NUMBER: _ClassVar[int]
        BY_CRITICALITY_FIELD_NUMBER: _ClassVar[int]
        LONGEST_WAIT_S_FIELD_NUMBER: _ClassVar[int]
        EXPECTED_S_FIELD_NUMBER: _ClassVar[int]
        MODELS_FIELD_NUMBER: _ClassVar[int]
        BOUNDS_FIELD_NUMBER: _ClassVar[int]
        IDLE_NOTE_FIELD_NUMBER: _ClassVar[int]
        ORDER_FIELD_NUMBER: _ClassVar[int]
        MAX_OVERTAKEN_S_FIELD_NUMBER: _ClassVar[int]
        queued: int
        max_requests: int
        body_bytes: int
        max_body_bytes: int
        by_criticality: _containers.ScalarMap[str, int]
        longest_wait_s: float
        expected_s: float
        models: _containers.RepeatedCompositeFieldContainer[GetStatusResponse.ModelQueue]
        bounds: _containers.RepeatedCompositeFieldContainer[GetStatusResponse.Bound]
        idle_note: str
        order: str
        max_overtaken_s: float
        def __init__(self, queued: _Optional[int] = ..., max_requests: _Optional[int] = ..., body_bytes: _Optional[int] = ..., max_body_bytes: _Optional[int] = ..., by_criticality: _Optional[_Mapping[str, int]] = ..., longest_wait_s: _Optional[float] = ..., expected_s: _Optional[float] = ..., models: _Optional[_Iterable[_Union[GetStatusResponse.ModelQueue, _Mapping]]] = ..., bounds: _Optional[_Iterable[_Union[GetStatusResponse.Bound, _Mapping]]] = ..., idle_note: _Optional[str] = ..., order: _Optional[str] = ..., max_overtaken_s: _Optional[float] = ...) -> None: ...
    class Spill(_message.Message):
        __slots__ = ("running", "spilled", "closed")
        RUNNING_FIELD_NUMBER: _ClassVar[int]
        SPILLED_FIELD_NUMBER: _ClassVar[int]
        CLOSED_FIELD_NUMBER: _ClassVar[int]
        running: int
        spilled: int
        closed: str
        def __init__(self, running: _Optional[int] = ..., spilled: _Optional[int] = ..., closed: _Optional[str] = ...) -> None: ...
    class Process(_message.Message):
        __slots__ = ("name", "role", "pid", "age_s", "connections", "calls", "number")
        NAME_FIELD_NUMBER: _ClassVar[int]
        ROLE_FIELD_NUMBER: _ClassVar[int]
        PID_FIELD_NUMBER: _ClassVar[int]
        AGE_S_FIELD_NUMBER: _ClassVar[int]
        CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
        CALLS_FIELD_NUMBER: _ClassVar[int]
        NUMBER_FIELD_NUMBER: _ClassVar[int]
        name: str
        role: str
        pid: int
        age_s: float
        connections: int
        calls: int
        number: int
        def __init__(self, name: _Optional[str] = ..., role: _Optional[str] = ..., pid: _Optional[int] = ..., age_s: _Optional[float] = ..., connections: _Optional[int] = ..., calls: _Optional[int] = ..., number: _Optional[int] = ...) -> None: ...
    class Takeover(_message.Message):
        __slots__ = ("seconds", "running", "queued", "fronts")
        SECONDS_FIELD_NUMBER: _ClassVar[int]
        RUNNING_FIELD_NUMBER: _ClassVar[int]
        QUEUED_FIELD_NUMBER: _ClassVar[int]
        FRONTS_FIELD_NUMBER: _ClassVar[int]
        seconds: float
        running: int
        queued: int
        fronts: int
        def __init__(self, seconds: _Optional[float] = ..., running: _Optional[int] = ..., queued: _Optional[int] = ..., fronts: _Optional[int] = ...) -> None: ...
    class Member(_message.Message):
        __slots__ = ("name", "address", "version", "fronts", "is_leading")
        NAME_FIELD_NUMBER: _ClassVar[int]
        ADDRESS_FIELD_NUMBER: _ClassVar[int]
        VERSION_FIELD_NUMBER: _ClassVar[int]
        FRONTS_FIELD_NUMBER: _ClassVar[int]
        IS_LEADING_FIELD_NUMBER: _ClassVar[int]
        name: str
        address: str
        version: str
        fronts: int
        is_leading: bool
        def __init__(self, name: _Optional[str] = ..., address: _Optional[str] = ..., version: _Optional[str] = ..., fronts: _Optional[int] = ..., is_leading: _Optional[bool] = ...) -> None: ...
    class Cluster(_message.Message):
        __slots__ = ("member", "leader", "epoch", "elections", "is_in_touch", "engine_error", "members", "is_leading")
        MEMBER_FIELD_NUMBER: _ClassVar[int]
        LEADER_FIELD_NUMBER: _ClassVar[int]
        EPOCH_FIELD_NUMBER: _ClassVar[int]
        ELECTIONS_FIELD_NUMBER: _ClassVar[int]
        IS_IN_TOUCH_FIELD_NUMBER: _ClassVar[int]
        ENGINE_ERROR_FIELD_NUMBER: _ClassVar[int]
        MEMBERS_FIELD_NUMBER: _ClassVar[int]
        IS_LEADING_FIELD_NUMBER: _ClassVar[int]
        member: str
        leader: str
        epoch: int
        elections: int
        is_in_touch: bool
        engine_error: str
        members: _containers.RepeatedCompositeFieldContainer[GetStatusResponse.Member]
        is_leading: bool
        def __init__(self, member: _Optional[str] = ..., leader: _Optional[str] = ..., epoch: _Optional[int] = ..., elections: _Optional[int] = ..., is_in_touch: _Optional[bool] = ..., engine_error: _Optional[str] = ..., members: _Optional[_Iterable[_Union[GetStatusResponse.Member, _Mapping]]] = ..., is_leading: _Optional[bool] = ...) -> None: ...
    class Processes(_message.Message):
        __slots__ = ("fronts", "takeovers", "takeovers_by_reason", "restarts", "members", "last_takeover", "cluster")
        class TakeoversByReasonEntry(_message.Message):
            __slots__ = ("key", "value")
            KEY_FIELD_NUMBER: _ClassVar[int]
            VALUE_FIELD_NUMBER: _ClassVar[int]
            key: str
            value: int
            def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
        class RestartsEntry(_message.Message):
            __slots__ = ("key", "value")
            KEY_FIELD_NUMBER: _ClassVar[int]
            VALUE_FIELD_NUMBER: _ClassVar[int]
            key: str
            value: int
            def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
        FRONTS_FIELD_NUMBER: _ClassVar[int]
        TAKEOVERS_FIELD_NUMBER: _ClassVar[int]
        TAKEOVERS_BY_REASON_FIELD_NUMBER: _ClassVar[int]
        RESTARTS_FIELD_NUMBER: _ClassVar[int]
        MEMBERS_FIELD_NUMBER: _ClassVar[int]
        LAST_TAKEOVER_FIELD_NUMBER: _ClassVar[int]
        CLUSTER_FIELD_NUMBER: _ClassVar[int]
        fronts: int
        takeovers: int
        takeovers_by_reason: _containers.ScalarMap[str, int]
        restarts: _containers.ScalarMap[str, int]
        members: _containers.RepeatedCompositeFieldContainer[GetStatusResponse.Process]
        last_takeover: GetStatusResponse.Takeover
        cluster: GetStatusResponse.Cluster
        def __init__(self, fronts: _Optional[int] = ..., takeovers: _Optional[int] = ..., takeovers_by_reason: _Optional[_Mapping[str, int]] = ..., restarts: _Optional[_Mapping[str, int]] = ..., members: _Optional[_Iterable[_Union[GetStatusResponse.Process, _Mapping]]] = ..., last_takeover: _Optional[_Union[GetStatusResponse.Takeover, _Mapping]] = ..., cluster: _Optional[_Union[GetStatusResponse.Cluster, _Mapping]] = ...) -> None: ...
    class EndpointsByHealthEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class EndpointsByIntentEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class OutcomesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    UPTIME_S_FIELD_NUMBER: _ClassVar[int]
    IS_READY_FIELD_NUMBER: _ClassVar[int]
    NOT_READY_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_BY_HEALTH_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_BY_INTENT_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    EXCHANGES_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    BYPASSED_FIELD_NUMBER: _ClassVar[int]
    FLEET_VERSION_FIELD_NUMBER: _ClassVar[int]
    ENVOYS_FIELD_NUMBER: _ClassVar[int]
    SPILL_FIELD_NUMBER: _ClassVar[int]
    POOLS_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    MACHINES_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    TAKES_ACTIONS_FIELD_NUMBER: _ClassVar[int]
    version: str
    uptime_s: float
    is_ready: bool
    not_ready: _containers.RepeatedScalarFieldContainer[str]
    problems: _containers.RepeatedScalarFieldContainer[str]
    slots: Slots
    endpoints_by_health: _containers.ScalarMap[str, int]
    endpoints_by_intent: _containers.ScalarMap[str, int]
    queue: GetStatusResponse.Queue
    running: int
    exchanges: int
    outcomes: _containers.ScalarMap[str, int]
    bypassed: int
    fleet_version: int
    envoys: _containers.RepeatedCompositeFieldContainer[GetStatusResponse.Envoy]
    spill: GetStatusResponse.Spill
    pools: _containers.RepeatedCompositeFieldContainer[GetStatusResponse.Pool]
    scale: _containers.RepeatedCompositeFieldContainer[ModelScale]
    machines: _containers.RepeatedCompositeFieldContainer[Machine]
    models: _containers.RepeatedCompositeFieldContainer[PlacedModel]
    processes: GetStatusResponse.Processes
    takes_actions: bool
    def __init__(self, version: _Optional[str] = ..., uptime_s: _Optional[float] = ..., is_ready: _Optional[bool] = ..., not_ready: _Optional[_Iterable[str]] = ..., problems: _Optional[_Iterable[str]] = ..., slots: _Optional[_Union[Slots, _Mapping]] = ..., endpoints_by_health: _Optional[_Mapping[str, int]] = ..., endpoints_by_intent: _Optional[_Mapping[str, int]] = ..., queue: _Optional[_Union[GetStatusResponse.Queue, _Mapping]] = ..., running: _Optional[int] = ..., exchanges: _Optional[int] = ..., outcomes: _Optional[_Mapping[str, int]] = ..., bypassed: _Optional[int] = ..., fleet_version: _Optional[int] = ..., envoys: _Optional[_Iterable[_Union[GetStatusResponse.Envoy, _Mapping]]] = ..., spill: _Optional[_Union[GetStatusResponse.Spill, _Mapping]] = ..., pools: _Optional[_Iterable[_Union[GetStatusResponse.Pool, _Mapping]]] = ..., scale: _Optional[_Iterable[_Union[ModelScale, _Mapping]]] = ..., machines: _Optional[_Iterable[_Union[Machine, _Mapping]]] = ..., models: _Optional[_Iterable[_Union[PlacedModel, _Mapping]]] = ..., processes: _Optional[_Union[GetStatusResponse.Processes, _Mapping]] = ..., takes_actions: _Optional[bool] = ...) -> None: ...

class ListModelsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PlacedModel(_message.Message):
    __slots__ = ("machine", "name", "aliases", "state", "state_age_s", "address", "memory_mb", "slots", "running", "load_s", "exits", "problem", "detail", "is_wanted", "is_pinned", "queued", "last_change", "pool")
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ALIASES_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    STATE_AGE_S_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MB_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    LOAD_S_FIELD_NUMBER: _ClassVar[int]
    EXITS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    IS_WANTED_FIELD_NUMBER: _ClassVar[int]
    IS_PINNED_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    LAST_CHANGE_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    machine: str
    name: str
    aliases: _containers.RepeatedScalarFieldContainer[str]
    state: str
    state_age_s: float
    address: str
    memory_mb: int
    slots: int
    running: int
    load_s: float
    exits: int
    problem: str
    detail: str
    is_wanted: bool
    is_pinned: bool
    queued: int
    last_change: str
    pool: str
    def __init__(self, machine: _Optional[str] = ..., name: _Optional[str] = ..., aliases: _Optional[_Iterable[str]] = ..., state: _Optional[str] = ..., state_age_s: _Optional[float] = ..., address: _Optional[str] = ..., memory_mb: _Optional[int] = ..., slots: _Optional[int] = ..., running: _Optional[int] = ..., load_s: _Optional[float] = ..., exits: _Optional[int] = ..., problem: _Optional[str] = ..., detail: _Optional[str] = ..., is_wanted: _Optional[bool] = ..., is_pinned: _Optional[bool] = ..., queued: _Optional[int] = ..., last_change: _Optional[str] = ..., pool: _Optional[str] = ...) -> None: ...

class Machine(_message.Message):
    __slots__ = ("name", "memory_mb", "used_mb", "is_connected", "version", "is_router", "max_models", "used_models", "power", "pool")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MB_FIELD_NUMBER: _ClassVar[int]
    USED_MB_FIELD_NUMBER: _ClassVar[int]
    IS_CONNECTED_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    IS_ROUTER_FIELD_NUMBER: _ClassVar[int]
    MAX_MODELS_FIELD_NUMBER: _ClassVar[int]
    USED_MODELS_FIELD_NUMBER: _ClassVar[int]
    POWER_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    name: str
    memory_mb: int
    used_mb: int
    is_connected: bool
    version: str
    is_router: bool
    max_models: int
    used_models: int
    power: str
    pool: str
    def __init__(self, name: _Optional[str] = ..., memory_mb: _Optional[int] = ..., used_mb: _Optional[int] = ..., is_connected: _Optional[bool] = ..., version: _Optional[str] = ..., is_router: _Optional[bool] = ..., max_models: _Optional[int] = ..., used_models: _Optional[int] = ..., power: _Optional[str] = ..., pool: _Optional[str] = ...) -> None: ...

class ListModelsResponse(_message.Message):
    __slots__ = ("models", "machines")
    MODELS_FIELD_NUMBER: _ClassVar[int]
    MACHINES_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[PlacedModel]
    machines: _containers.RepeatedCompositeFieldContainer[Machine]
    def __init__(self, models: _Optional[_Iterable[_Union[PlacedModel, _Mapping]]] = ..., machines: _Optional[_Iterable[_Union[Machine, _Mapping]]] = ...) -> None: ...

class LoadModelRequest(_message.Message):
    __slots__ = ("model", "pin")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PIN_FIELD_NUMBER: _ClassVar[int]
    model: str
    pin: bool
    def __init__(self, model: _Optional[str] = ..., pin: _Optional[bool] = ...) -> None: ...

class LoadModelResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class UnloadModelRequest(_message.Message):
    __slots__ = ("model",)
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model: str
    def __init__(self, model: _Optional[str] = ...) -> None: ...

class UnloadModelResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class UnpinModelRequest(_message.Message):
    __slots__ = ("model",)
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model: str
    def __init__(self, model: _Optional[str] = ...) -> None: ...

class UnpinModelResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReplaceModelRequest(_message.Message):
    __slots__ = ("model", "cmd", "memory_mb", "is_dry_run")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CMD_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MB_FIELD_NUMBER: _ClassVar[int]
    IS_DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    model: str
    cmd: _containers.RepeatedScalarFieldContainer[str]
    memory_mb: int
    is_dry_run: bool
    def __init__(self, model: _Optional[str] = ..., cmd: _Optional[_Iterable[str]] = ..., memory_mb: _Optional[int] = ..., is_dry_run: _Optional[bool] = ...) -> None: ...

class ReplaceModelResponse(_message.Message):
    __slots__ = ("machine", "text", "is_end", "is_failed")
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    IS_END_FIELD_NUMBER: _ClassVar[int]
    IS_FAILED_FIELD_NUMBER: _ClassVar[int]
    machine: str
    text: str
    is_end: bool
    is_failed: bool
    def __init__(self, machine: _Optional[str] = ..., text: _Optional[str] = ..., is_end: _Optional[bool] = ..., is_failed: _Optional[bool] = ...) -> None: ...

class WatchLogRequest(_message.Message):
    __slots__ = ("model", "lines", "follow")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    model: str
    lines: int
    follow: bool
    def __init__(self, model: _Optional[str] = ..., lines: _Optional[int] = ..., follow: _Optional[bool] = ...) -> None: ...

class WatchLogResponse(_message.Message):
    __slots__ = ("lines", "dropped")
    LINES_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    lines: _containers.RepeatedScalarFieldContainer[str]
    dropped: int
    def __init__(self, lines: _Optional[_Iterable[str]] = ..., dropped: _Optional[int] = ...) -> None: ...

class ListUsageRequest(_message.Message):
    __slots__ = ("since_s", "by", "limit")
    SINCE_S_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    since_s: float
    by: _containers.RepeatedScalarFieldContainer[UsageGroup]
    limit: int
    def __init__(self, since_s: _Optional[float] = ..., by: _Optional[_Iterable[_Union[UsageGroup, str]]] = ..., limit: _Optional[int] = ...) -> None: ...

class Usage(_message.Message):
    __slots__ = ("client", "objective", "model", "requests", "rejected", "uncounted", "prompt_tokens", "cached_tokens", "generated_tokens", "slot_s", "tier", "cost")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    OBJECTIVE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    UNCOUNTED_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    GENERATED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SLOT_S_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    client: str
    objective: str
    model: str
    requests: int
    rejected: int
    uncounted: int
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    slot_s: float
    tier: str
    cost: float
    def __init__(self, client: _Optional[str] = ..., objective: _Optional[str] = ..., model: _Optional[str] = ..., requests: _Optional[int] = ..., rejected: _Optional[int] = ..., uncounted: _Optional[int] = ..., prompt_tokens: _Optional[int] = ..., cached_tokens: _Optional[int] = ..., generated_tokens: _Optional[int] = ..., slot_s: _Optional[float] = ..., tier: _Optional[str] = ..., cost: _Optional[float] = ...) -> None: ...

class ListUsageResponse(_message.Message):
    __slots__ = ("usage", "total")
    USAGE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    usage: _containers.RepeatedCompositeFieldContainer[Usage]
    total: int
    def __init__(self, usage: _Optional[_Iterable[_Union[Usage, _Mapping]]] = ..., total: _Optional[int] = ...) -> None: ...

class ListScaleRequest(_message.Message):
    __slots__ = ("objective", "pool")
    OBJECTIVE_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    objective: str
    pool: str
    def __init__(self, objective: _Optional[str] = ..., pool: _Optional[str] = ...) -> None: ...

class ListScaleResponse(_message.Message):
    __slots__ = ("models",)
    MODELS_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[ModelScale]
    def __init__(self, models: _Optional[_Iterable[_Union[ModelScale, _Mapping]]] = ...) -> None: ...

class ModelScale(_message.Message):
    __slots__ = ("model", "wanted", "servers", "cause", "meaning", "queued_slots", "busy_slots", "arrivals_per_s", "service_s", "slots", "pool")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    SERVERS_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    MEANING_FIELD_NUMBER: _ClassVar[int]
    QUEUED_SLOTS_FIELD_NUMBER: _ClassVar[int]
    BUSY_SLOTS_FIELD_NUMBER: _ClassVar[int]
    ARRIVALS_PER_S_FIELD_NUMBER: _ClassVar[int]
    SERVICE_S_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    model: str
    wanted: int
    servers: int
    cause: str
    meaning: str
    queued_slots: int
    busy_slots: int
    arrivals_per_s: float
    service_s: float
    slots: float
    pool: str
    def __init__(self, model: _Optional[str] = ..., wanted: _Optional[int] = ..., servers: _Optional[int] = ..., cause: _Optional[str] = ..., meaning: _Optional[str] = ..., queued_slots: _Optional[int] = ..., busy_slots: _Optional[int] = ..., arrivals_per_s: _Optional[float] = ..., service_s: _Optional[float] = ..., slots: _Optional[float] = ..., pool: _Optional[str] = ...) -> None: ...
