"""What `coxswain config envoy` and `coxswain up` write into Envoy's configuration."""

from __future__ import annotations

from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from extproc.security.path_rule import PathRule, PathRuleError
from extproc.settings.section import Section
from extproc.settings.values import (
    LIST,
    Count,
    EnvoySeconds,
    IpBind,
    Percent,
    SomeSeconds,
    Target,
    Whole,
)

MIB: Final = 1024 * 1024
MAX_RATE_BYTES_PER_S: Final = 10**12
MAX_HEAP_BYTES: Final = 10**15
"""A petabyte: more is a number in the wrong unit."""


def _path_rule(rule: str) -> str:
    try:
        return str(PathRule.parse(rule))
    except PathRuleError:
        # Its text shows what was written, which may be a key given for the wrong setting.
        raise PydanticCustomError(
            "path_rule",
            "write a rule as `/path`, `/path*`, `/path/*.js` or `POST /path`, in at most 48 "
            "characters without ?, # or %",
        ) from None


RuleText = Annotated[str, AfterValidator(_path_rule)]


class EnvoySettings(Section):
    """What `coxswain config envoy` and `coxswain up` write into Envoy's configuration."""

    discovery: bool = Field(
        default=True,
        description="Whether Envoy learns the endpoints from Coxswain and then fails open. "
        "false: every answer names an address (ORIGINAL_DST), and Envoy fails closed. "
        "The picker and the printed configuration must agree on it.",
    )
    listen: IpBind = Field(
        default="0.0.0.0:10000", description="Where clients call; an IP address and a port."
    )
    admin: IpBind = Field(default="127.0.0.1:9901", description="Envoy's own admin pages.")
    picker: Target | None = Field(
        default=None,
        description="Where Envoy reaches Coxswain's data plane, host:port; by default "
        "listen.grpc, or loopback where that is all interfaces.",
    )
    picker_ca_file: str | None = Field(
        default=None,
        min_length=1,
        description="The authorities, PEM, of Coxswain's certificate (grpc_tls.cert_file); "
        "a path where Envoy runs. By default the system's.",
    )
    picker_cert_file: str | None = Field(
        default=None,
        min_length=1,
        description="Envoy's certificate for Coxswain (grpc_tls.client_ca_file), PEM. Envoy reads "
        "these files when it starts.",
    )
    picker_key_file: str | None = Field(
        default=None, min_length=1, description="That certificate's private key, PEM."
    )
    picker_server_name: str | None = Field(
        default=None,
        min_length=1,
        description="The name in Coxswain's certificate; by default the host in envoy.picker.",
    )
    server_ca_files: Annotated[tuple[str, ...], LIST] = Field(
        default=(),
        description="For `coxswain config envoy --snippet`: the authorities, PEM, of https servers "
        "that may come later, so that Envoy need not be given another configuration then: paths "
        "where Envoy runs, written as the servers' ca_file is, or `system`. Those of known servers "
        "need not be named. The whole configuration gets them from Coxswain.",
    )
    inject_keys: bool = Field(
        default=False,
        description="For `coxswain config envoy --snippet`: whether Envoy can send servers their "
        "keys although none that is known now has inject_key; so that one may come later.",
    )
    countdown: bool = Field(
        default=True,
        description="Whether clients may ask GET /queue/{request-id} where their request stands. "
        "Envoy then reaches listen.http, for this path alone.",
    )
    message_timeout_s: SomeSeconds = Field(
        default=1.0,
        description="How long Envoy waits for a sign of life from Coxswain before it goes on "
        "without. Waiting in line does not count.",
    )
    max_message_timeout_s: SomeSeconds = Field(
        default=3600.0,
        le=3600.0,  # Envoy's own bound
        description="The longest wait in line that Envoy allows, 3600 at most. "
        "queue.timeout_s must stay 5 s below it.",
    )
    end_reports: bool = Field(
        default=True,
        description="Whether Envoy tells which answers broke off, and on whose side.",
    )
    connect_timeout_s: SomeSeconds = Field(
        default=1.0, description="How long Envoy waits for a connection to a server."
    )
    per_try_idle_timeout_s: EnvoySeconds = Field(
        default=300.0,
        description="A server's longest silence before its try is given up; 0 waits for ever.",
    )
    retries: Whole = Field(
        default=3, ge=0, le=10, description="How often Envoy tries again, along the fallbacks."
    )
    body_buffer_bytes: Count = Field(
        default=4 * MIB,
        description="How much of a request's body Envoy keeps while it waits or is tried. "
        "A longer one is sent once, and not again.",
    )
    health_interval_s: SomeSeconds = Field(
        default=2.0, description="Seconds between Envoy's own looks at /health of each server."
    )
    discovery_timeout_s: SomeSeconds = Field(
        default=5.0, description="After this Envoy opens its door, with or without endpoints."
    )
    host_rewrite: bool = Field(
        default=False,
        description="Whether requests carry the endpoint's name as Host. Needs discovery.",
    )
    open_paths: Annotated[tuple[RuleText, ...], LIST] = Field(
        default=(),
        description="What clients may ask of the servers besides model requests, models, health, "
        "properties and the web page: `/path`, `/path*` for all below it, `/path/*.js` for files, "
        "or `POST /path` for one method. All else is answered 403. The picker and the printed "
        "configuration must agree on it.",
    )
    blocked_paths: Annotated[tuple[RuleText, ...], LIST] = Field(
        default=(),
        description="What is answered 403 although it would be open, written the same way: "
        "`GET /` closes the web page. In any case of letters, and below any prefix.",
    )
    request_headers_timeout_s: SomeSeconds = Field(
        default=10.0, description="How long a client may take to send its headers."
    )
    request_body_timeout_s: SomeSeconds = Field(
        default=300.0, description="How long a client may take to send its body."
    )
    request_body_idle_timeout_s: EnvoySeconds = Field(
        default=30.0,
        description="A request for which a slot is held, and of whose body nothing comes for "
        "this long, is refused within twice this time; 0 waits for ever.",
    )
    request_body_min_rate_bytes_per_s: Whole = Field(
        default=125_000,
        ge=0,
        le=MAX_RATE_BYTES_PER_S,
        description="While another request waits for its slot, the body of a request must come "
        "at this rate at least (125,000 is 1 Mbit/s), or the request is refused; 0 sets no "
        "least rate.",
    )
    request_body_grace_s: SomeSeconds = Field(
        default=2.0,
        description="How far a client may fall behind that rate before its slot goes to another "
        "request.",
    )
    connection_idle_timeout_s: SomeSeconds = Field(
        default=300.0, description="When a client's connection without a request is closed."
    )
    max_connections: Whole = Field(
        default=50_000, ge=1, le=10_000_000, description="How many clients may be connected."
    )
    max_heap_bytes: Whole = Field(
        default=4096 * MIB,
        ge=0,
        le=MAX_HEAP_BYTES,
        description="Near this much memory Envoy refuses new requests; 0 sets no bound.",
    )
    access_log: bool = Field(default=True, description="Whether Envoy logs each request.")
    trusted_proxies: Whole = Field(
        default=0, ge=0, le=100, description="How many hops of x-forwarded-for are believed."
    )
    tracing: Target | None = Field(
        default=None,
        description="An OpenTelemetry collector's gRPC port, host:port, for Envoy's own spans.",
    )
    trace_percent: Percent = Field(
        default=100.0, description="How many requests are traced whose caller did not decide it."
    )

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if (self.picker_cert_file is None) != (self.picker_key_file is None):
            raise PydanticCustomError(
                "together", "give picker_cert_file and picker_key_file together"
            )
        problem: Any = None
        if self.message_timeout_s > self.max_message_timeout_s:
            problem = "message_timeout_s must not exceed max_message_timeout_s"
        elif self.host_rewrite and not self.discovery:
            problem = "host_rewrite needs discovery: only there an endpoint has a name"
        if problem is not None:
            raise PydanticCustomError("order", problem)
        return self
