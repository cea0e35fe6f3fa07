"""Authentication. The settings contain the sources of tokens, certificates and keys, not their
values.
"""

from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from extproc.core.budgets import Budget
from extproc.core.client_limits import EVERYBODY, ClientLimit
from extproc.security.address_policy import PRIVATE
from extproc.settings.access import check_one_source
from extproc.settings.endpoint_section import Money
from extproc.settings.section import Section
from extproc.settings.values import (
    EMPTY_SECTION,
    LIST,
    MAP,
    Count,
    File,
    Network,
    Reloadable,
    SomeSeconds,
)


class _TokenSettings(Section):
    """The source of a bearer token."""

    token_env: str | None = None
    token_file: File | None = None
    """The file that holds the token; Coxswain reloads it when it changes."""

    @model_validator(mode="after")
    def _check_token_sources(self) -> Self:
        check_one_source(self.token_env, self.token_file, "token")
        return self


class AdminSettings(_TokenSettings):
    """Authentication of operators at the admin services and reflection."""

    token_env: str | None = Field(default=None, min_length=1)
    """The environment variable that holds the operators' bearer token; by default
    COXSWAIN_ADMIN_TOKEN."""

    api_key_envs: Annotated[Reloadable[tuple[str, ...]], LIST] = ()
    """The environment variables that operators may name as a server's API key with `endpoints add`,
    and so send to any address."""
    api_key_folder: Reloadable[File | None] = None
    """The folder with the API key files that they may name."""


class AgentsSettings(_TokenSettings):
    """Agents: `coxswain agent` runs beside a server and reports its state to the admin port."""

    token_env: str | None = Field(default=None, min_length=1)
    """The environment variable that holds the agents' bearer token; by default
    COXSWAIN_AGENTS_TOKEN. Without a token agents use the operators'."""
    ttl_s: Reloadable[SomeSeconds] = 3.0
    """Seconds without a message from its agent after which an endpoint is down."""
    forget_s: Reloadable[SomeSeconds] = 300.0
    """Seconds without a message from its agent after which an endpoint leaves the fleet."""
    allowed_networks: Annotated[Reloadable[tuple[Network, ...]], LIST] = PRIVATE
    """The networks whose addresses agents may report and operators may add (docs/operations.md)."""
    expected: Count = 0
    """The number of agents to wait for after a start, for at most discovery.grace_s, before the
    fleet is published to Envoy."""


class PortTlsSettings(Section):
    """The certificate of a port, and the CA for client certificates."""

    cert_file: File | None = None
    """The port's certificate chain, PEM."""
    key_file: File | None = None
    """The certificate's private key, PEM."""
    client_ca_file: File | None = None
    """The CA file, PEM, for client certificates, which callers must then present (mutual TLS)."""

    @model_validator(mode="after")
    def _check_complete(self) -> Self:
        if (self.cert_file is None) != (self.key_file is None):
            raise PydanticCustomError("together", "give cert_file and key_file together")
        if self.client_ca_file is not None and self.cert_file is None:
            raise PydanticCustomError("together", "client_ca_file needs cert_file and key_file")
        return self


class GrpcTlsSettings(PortTlsSettings):
    """TLS on the data plane's port, where Envoy connects. Coxswain reloads the files when they
    change."""


class AdminTlsSettings(PortTlsSettings):
    """TLS on the admin port. Coxswain reloads the files when they change."""


def _some_names(names: tuple[str, ...]) -> tuple[str, ...]:
    if not names or "" in names:
        raise PydanticCustomError("empty", "name at least one, or leave it out to allow all")
    return names


Names = Annotated[tuple[str, ...], LIST, AfterValidator(_some_names)]


class BudgetSettings(Section):
    """What a client may spend until the budget is used up."""

    tokens: Annotated[int, Field(ge=1, le=10**15)] | None = None
    """The tokens of prompts and responses in that time, by UTC, after which requests get 429
    `budget-used-up` (docs/keys.md). Requires usage.path."""
    cost: Annotated[Money, Field(gt=0)] | None = None
    """The cost in that time by the prices of the endpoints. Requires usage.path."""

    def for_core(self) -> Budget | None:
        """The same for the core; None if it bounds nothing."""
        if self.tokens is None and self.cost is None:
            return None
        return Budget(tokens=self.tokens, cost=self.cost)


class BudgetsSettings(Section):
    """Budgets of a client, by UTC. Requires usage.path."""

    daily: Annotated[BudgetSettings, EMPTY_SECTION] = BudgetSettings()
    monthly: Annotated[BudgetSettings, EMPTY_SECTION] = BudgetSettings()


class ClientLimitSettings(Section):
    """The limits of one client, named as in clients.keys_file; `*` stands for all others. Requests
    above them get 429 `rate-limited`, or `budget-used-up`; those above the limits of sessions and
    flows wait."""

    requests: Count | None = None
    """The highest number of its requests at once, running and queued."""
    queued: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    """The highest number of its queued requests; 0 queues none."""
    requests_per_session: Count | None = None
    """The highest number of requests at once of each of its sessions: those with one
    `x-session-id` that run, or are next in the queue. Further ones are queued and held back until
    one of these ends. A request without this header is in none."""
    requests_per_flow: Count | None = None
    """The same for each of its flows: requests with one `x-gateway-inference-fairness-id`."""
    tokens_per_minute: Annotated[int, Field(ge=1, le=10**12)] | None = None
    """The tokens of prompts and responses that it may use in a minute, counted after each response.
    Requires usage.path."""
    models: Names | None = None
    """The only models that it may use and sees in /v1/models; others get 404 `model-not-found`
    (docs/keys.md)."""
    objectives: Names | None = None
    """The only objectives that its requests may name; others get 403 `objective-not-allowed`. The
    first is that of requests that name none (docs/keys.md)."""
    budgets: Annotated[BudgetsSettings, EMPTY_SECTION] = BudgetsSettings()

    def for_core(self) -> ClientLimit:
        """The same for the core."""
        return ClientLimit(
            requests=self.requests,
            queued=self.queued,
            tokens_per_minute=self.tokens_per_minute,
            models=None if self.models is None else frozenset(self.models),
            objectives=self.objectives,
            daily=self.budgets.daily.for_core(),
            monthly=self.budgets.monthly.for_core(),
            per_session=self.requests_per_session,
            per_flow=self.requests_per_flow,
        )

    @property
    def needs_keys(self) -> bool:
        """Whether it has a limit of more than sessions and flows, which is by the name of a key."""
        without = {"requests_per_session": None, "requests_per_flow": None}
        return self.model_copy(update=without) != ClientLimitSettings()


class ClientsSettings(Section):
    """API keys of clients, which the picker checks, and limits of clients."""

    keys_file: File | None = None
    """The file with the API keys of clients, which `coxswain keys` manages: `name sha256:DIGEST` or
    `name key` in each line, then `expires=2026-12-31` if it ends. Envoy then serves nobody while no
    picker answers: print its configuration again and restart it when you set this first
    (docs/clients.md)."""
    batches: Reloadable[str | None] = Field(default=None, min_length=1)
    """The client with whose key `coxswain batch run` sends lines, which count as requests of the
    client that their fairness id names. Required where envoy.batches is set and keys are
    checked."""
    limits: Annotated[Reloadable[dict[str, ClientLimitSettings]], MAP] = Field(default={})
    """The limits of clients by name, each with the keys below. Requires keys_file, except for
    requests_per_session and requests_per_flow of `*`, which hold for everybody without it."""

    @model_validator(mode="after")
    def _check_limits(self) -> Self:
        if self.keys_file is None and any(
            name != EVERYBODY or limit.needs_keys for name, limit in self.limits.items()
        ):
            raise PydanticCustomError("together", "limits needs keys_file, which names the clients")
        if self.batches is not None and self.keys_file is None:
            raise PydanticCustomError("together", "batches needs keys_file, which names the client")
        return self

    def limits_for_core(self) -> dict[str, ClientLimit]:
        """The limits by client's name."""
        return {name: limit.for_core() for name, limit in self.limits.items()}
