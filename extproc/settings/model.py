"""The settings themselves: names, types, defaults and what each one means.

A `Settings` built in code reads no file and no environment; `load_settings` does.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from extproc.settings.discovery_section import DiscoverySettings
from extproc.settings.envoy_section import EnvoySettings
from extproc.settings.objective_section import ObjectiveSettings, Targets
from extproc.settings.safety_section import (
    AdminSettings,
    AdminTlsSettings,
    AgentsSettings,
    ClientsSettings,
    GrpcTlsSettings,
)
from extproc.settings.section import Section
from extproc.settings.values import (
    EMPTY_SECTION,
    LIST,
    Bind,
    Count,
    PositiveCount,
    Seconds,
    Server,
    Share,
    SomeSeconds,
    Target,
    Whole,
    split_host_port,
)

HTTPS: Final = "https://"


class ListenSettings(Section):
    """Where Coxswain listens. Port 0 takes any free one."""

    grpc: Bind = Field(
        default="127.0.0.1:9002",
        description="The data plane, for Envoy: ext_proc, endpoint discovery and health. "
        "Keep it away from clients: who reaches it steers traffic.",
    )
    admin: Bind = Field(
        default="127.0.0.1:9003",
        description="The admin gRPC services, for operators and agents.",
    )
    http: Bind = Field(
        default="127.0.0.1:9090",
        description="The status pages over HTTP: the dashboard at /, /metrics, /healthz, /readyz, "
        "/status, and /queue/{request-id}.",
    )
    insecure: bool = Field(
        default=False,
        description="Listen beyond loopback with neither token nor mutual TLS; --insecure.",
    )


class EndpointSettings(Section):
    """One llama-server. A plain `host:port` in the list is short for its `address`."""

    address: Server = Field(
        description="Where the server listens: host:port, or https://host:port. "
        "The host is an IP address or a name."
    )
    name: str | None = Field(
        default=None,
        min_length=1,
        max_length=253,
        pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$",
        description="What to call it in logs and metrics, instead of its address.",
    )
    slots: PositiveCount | None = Field(
        default=None,
        description="How many slots it has, for a server that does not tell "
        "(started with --no-slots and without /props).",
    )
    api_key_env: str | None = Field(
        default=None,
        min_length=1,
        description="The environment variable that holds the server's API key (--api-key).",
    )
    api_key_file: str | None = Field(
        default=None,
        min_length=1,
        description="The file that holds the server's API key; blanks around it do not count.",
    )
    inject_key: bool = Field(
        default=False,
        description="Whether Envoy sends this server its API key with each request, so that "
        "clients need not know it. Needs envoy.discovery; print Envoy's configuration anew.",
    )
    ca_file: str | None = Field(
        default=None,
        min_length=1,
        description="For https: the authorities to trust, PEM, here and where Envoy runs; "
        "by default the system's.",
    )
    server_name: str | None = Field(
        default=None,
        min_length=1,
        max_length=253,
        description="For https: the name in the server's certificate; by default the host.",
    )

    @model_validator(mode="before")
    @classmethod
    def _read_short_form(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"address": value}
        if not isinstance(value, dict | EndpointSettings):
            raise PydanticCustomError("endpoint", "write host:port, or a section with an address")
        return value

    @model_validator(mode="after")
    def _check_key_sources(self) -> Self:
        if self.api_key_env is not None and self.api_key_file is not None:
            raise PydanticCustomError("one_of", "give api_key_env or api_key_file, not both")
        if self.inject_key and self.api_key_env is None and self.api_key_file is None:
            raise PydanticCustomError("together", "inject_key needs api_key_env or api_key_file")
        if not self.is_tls and (self.ca_file is not None or self.server_name is not None):
            raise PydanticCustomError("together", "ca_file and server_name are for https://")
        return self

    @property
    def host(self) -> str:
        """The IP address or name, without brackets."""
        return split_host_port(self.address.removeprefix(HTTPS))[0]

    @property
    def port(self) -> int:
        """The port."""
        return split_host_port(self.address.removeprefix(HTTPS))[1]

    @property
    def is_tls(self) -> bool:
        """Whether the server speaks TLS."""
        return self.address.startswith(HTTPS)

    @property
    def tls_profile(self) -> str:
        """By which name Envoy knows how to speak TLS to it; empty for in the clear.

        Servers with the same authorities and the same name in their certificate share one.
        """
        if not self.is_tls:
            return ""
        content = f"{self.ca_file or ''}|{self.server_name or self.host}"
        return f"tls-{sha256(content.encode()).hexdigest()[:12]}"


class QueueSettings(Section):
    """The line in which requests wait for a free slot."""

    max_requests: Count = Field(
        default=1024,
        description="How many requests may wait. One more is answered 429; 0 lets nobody wait.",
    )
    timeout_s: Seconds = Field(
        default=60.0,
        description="The longest wait in seconds, then 504. A request may ask for less with "
        "the header x-coxswain-queue-timeout-ms, never for more.",
    )


class LedgerSettings(Section):
    """How slots are counted."""

    draining_cap_s: Seconds = Field(
        default=10.0,
        description="How long a slot whose client left stays taken, in seconds, "
        "when no look at the server shows it free earlier.",
    )
    blind_draining_cap_s: Seconds = Field(
        default=1.0,
        description="The same, for a server that does not show its slots.",
    )


class ScraperSettings(Section):
    """How Coxswain looks at the servers."""

    fast_interval_s: SomeSeconds = Field(
        default=0.2,
        description="Seconds between two looks while a server has strangers on it or comes up.",
    )
    slow_interval_s: SomeSeconds = Field(
        default=2.0,
        description="Seconds between two looks while our own requests explain all that is busy.",
    )
    jitter: Share = Field(
        default=0.1,
        description="By which share each interval is varied, so that the looks spread out.",
    )
    connect_timeout_s: SomeSeconds = Field(
        default=1.0, description="Seconds to wait for a connection to a server."
    )
    read_timeout_s: SomeSeconds = Field(
        default=3.0, description="Seconds to wait for an answer to anything but /slots."
    )
    slots_read_timeout_s: SomeSeconds = Field(
        default=30.0,
        description="Seconds to wait for /slots, which a server answers between decode steps: "
        "a long prefill stalls it.",
    )
    write_timeout_s: SomeSeconds = Field(
        default=2.0, description="Seconds to wait until a question is sent."
    )
    pool_timeout_s: SomeSeconds = Field(
        default=2.0, description="Seconds to wait for a free connection of the pool."
    )
    patience_s: SomeSeconds = Field(
        default=1.0,
        description="After this many seconds without an answer a server's /slots counts as slow. "
        "Slow is not down; the question lives on.",
    )
    stale_after_s: SomeSeconds = Field(
        default=6.0,
        description="The age in seconds from which on an observation is old: "
        "its server is then used only when no other is free.",
    )
    failures_to_down: PositiveCount = Field(
        default=3, description="How many failed looks in a row make a server down."
    )

    @model_validator(mode="after")
    def _check_intervals(self) -> Self:
        if self.fast_interval_s > self.slow_interval_s:
            raise PydanticCustomError("order", "fast_interval_s must not exceed slow_interval_s")
        if self.stale_after_s <= self.slow_interval_s:
            raise PydanticCustomError(
                "order", "stale_after_s must exceed slow_interval_s, or all servers are stale"
            )
        return self


class RoutingSettings(Section):
    """What of a request decides where it goes."""

    read_body: Literal["auto", "never"] = Field(
        default="auto",
        description="Whether the beginning of a body is read: model, prompt, n, adapter. `auto` "
        "reads what may be JSON and takes a slot; `never` decides by the headers alone, and "
        "every request then counts as one slot. Envoy must allow mode overrides.",
    )
    body_limit_bytes: Whole = Field(
        default=65_536,
        ge=1,
        le=16 * 1024 * 1024,
        description="How much of a body is read at most. The rest passes by unread.",
    )
    body_errors: Literal["lenient", "strict"] = Field(
        default="lenient",
        description="What becomes of a body that cannot be read: `lenient` routes it without "
        "what could not be read, `strict` answers 400.",
    )
    model_match: Literal["lenient", "strict"] = Field(
        default="lenient",
        description="What becomes of a model that no endpoint reports: `lenient` sends it "
        "anywhere, as llama-server itself ignores the name; `strict` answers 404 when none ever "
        "reported it, and waits when those that did are gone.",
    )


class PickerSettings(Section):
    """How an endpoint is chosen."""

    fallbacks: Whole = Field(
        default=2,
        ge=0,
        le=2,
        description="How many further endpoints Envoy may try when the chosen one fails.",
    )


class LogSettings(Section):
    """What Coxswain writes to stderr."""

    format: Literal["human", "json"] = Field(
        default="human", description="`human` for eyes, `json` for machines, one event a line."
    )
    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The least serious kind of event that is written."
    )


class StatsdSettings(Section):
    """StatsD gauges slots_idle, slots_processing and requests_buffered, over UDP."""

    addr: Target | None = Field(
        default=None, description="Where StatsD listens, host:port. Without it nothing is sent."
    )
    prefix: str = Field(
        default="coxswain",
        max_length=200,
        pattern=r"^[A-Za-z0-9_.-]*$",
        description="What stands before the names: coxswain makes coxswain.slots_idle.",
    )
    interval_s: SomeSeconds = Field(default=10.0, description="Seconds between two reports.")

    @property
    def host(self) -> str:
        """The IP address or name of `addr`; empty without one."""
        return split_host_port(self.addr)[0] if self.addr is not None else ""

    @property
    def port(self) -> int:
        """The port of `addr`; 0 without one."""
        return split_host_port(self.addr)[1] if self.addr is not None else 0


class Settings(BaseSettings):
    """All settings of Coxswain."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        case_sensitive=True,
        hide_input_in_errors=True,
        title="Coxswain settings",
    )

    endpoints: Annotated[tuple[EndpointSettings, ...], LIST] = Field(
        default=(),
        description="The llama-servers: a list of host:port, or of sections with the keys below. "
        "In the environment: host:port,host:port. May be empty; endpoints can come later.",
    )
    discovery: Annotated[DiscoverySettings, EMPTY_SECTION] = DiscoverySettings()
    listen: Annotated[ListenSettings, EMPTY_SECTION] = ListenSettings()
    queue: Annotated[QueueSettings, EMPTY_SECTION] = QueueSettings()
    ledger: Annotated[LedgerSettings, EMPTY_SECTION] = LedgerSettings()
    scraper: Annotated[ScraperSettings, EMPTY_SECTION] = ScraperSettings()
    routing: Annotated[RoutingSettings, EMPTY_SECTION] = RoutingSettings()
    picker: Annotated[PickerSettings, EMPTY_SECTION] = PickerSettings()
    envoy: Annotated[EnvoySettings, EMPTY_SECTION] = EnvoySettings()
    log: Annotated[LogSettings, EMPTY_SECTION] = LogSettings()
    statsd: Annotated[StatsdSettings, EMPTY_SECTION] = StatsdSettings()
    admin: Annotated[AdminSettings, EMPTY_SECTION] = AdminSettings()
    agents: Annotated[AgentsSettings, EMPTY_SECTION] = AgentsSettings()
    grpc_tls: Annotated[GrpcTlsSettings, EMPTY_SECTION] = GrpcTlsSettings()
    admin_tls: Annotated[AdminTlsSettings, EMPTY_SECTION] = AdminTlsSettings()
    clients: Annotated[ClientsSettings, EMPTY_SECTION] = ClientsSettings()
    models: dict[str, Targets] = Field(
        default={},
        description="Other names for models: `chat: tiny`, or split by weight: "
        "`chat: {tiny: 90, small: 10}`. It decides where a request goes; its body stays as it is.",
    )
    objectives: dict[str, ObjectiveSettings] = Field(
        default={},
        description="The services that share the fleet, by name, each with the keys below.",
    )
    response_headers: bool = Field(
        default=True,
        description="Whether answers carry x-coxswain-endpoint, x-coxswain-queue-ms "
        "and x-coxswain-attempts.",
    )
    drain_timeout_s: Seconds = Field(
        default=30.0,
        description="On SIGTERM: how long running requests may still take, in seconds.",
    )

    @model_validator(mode="after")
    def _check_waits(self) -> Self:
        if self.queue.timeout_s > self.envoy.max_message_timeout_s:
            raise PydanticCustomError(
                "order",
                "queue.timeout_s must not exceed envoy.max_message_timeout_s, "
                "or Envoy gives up on requests that still wait",
            )
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003  # the base class's signature
        init_settings: PydanticBaseSettingsSource,
        *_: Any,
        **__: Any,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what the code itself gives; `load_settings` adds the outside world."""
        return (init_settings,)
