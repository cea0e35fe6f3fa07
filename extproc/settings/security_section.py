"""Who may call. Settings name where tokens, certificates and keys are, never what they are."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from extproc.security.address_policy import PRIVATE
from extproc.settings.access import check_one_source
from extproc.settings.section import Section
from extproc.settings.values import LIST, Count, File, Network, SomeSeconds


class _TokenSettings(Section):
    """A bearer token that callers show, and where it is."""

    token_env: str | None = None
    token_file: File | None = Field(
        default=None,
        description="The file that holds it; read again when it changes.",
    )

    @model_validator(mode="after")
    def _check_token_sources(self) -> Self:
        check_one_source(self.token_env, self.token_file, "token")
        return self


class AdminSettings(_TokenSettings):
    """What operators must show to call the admin services, and to read reflection."""

    token_env: str | None = Field(
        default=None,
        min_length=1,
        description="The environment variable that holds the operators' bearer token. "
        "Without any of these two, COXSWAIN_ADMIN_TOKEN where it is set.",
    )

    api_key_envs: Annotated[tuple[str, ...], LIST] = Field(
        default=(),
        description="The environment variables that an operator may name as a server's API key "
        "with `endpoints add`. Who may add endpoints can have these keys sent anywhere.",
    )
    api_key_folder: File | None = Field(
        default=None,
        description="The folder with the files that an operator may name so.",
    )


class AgentsSettings(_TokenSettings):
    """Agents: `coxswain agent` beside a server, reporting what it sees to the admin port."""

    token_env: str | None = Field(
        default=None,
        min_length=1,
        description="The environment variable that holds the agents' bearer token. "
        "Without any of these two, COXSWAIN_AGENTS_TOKEN where it is set, and else agents "
        "show the operators' token.",
    )
    ttl_s: SomeSeconds = Field(
        default=3.0,
        description="After this many seconds without a word from its agent an endpoint is down.",
    )
    forget_s: SomeSeconds = Field(
        default=300.0,
        description="After this many seconds without a word it is no longer in the fleet.",
    )
    allowed_networks: Annotated[tuple[Network, ...], LIST] = Field(
        default=PRIVATE,
        description="In which networks an address must be that an agent reports, or an operator "
        "adds with `endpoints add`. Its own address a caller may always name, and loopback from "
        "loopback; link-local addresses and ports of Envoy and Coxswain nobody.",
    )
    expected: Count = Field(
        default=0,
        description="For how many agents to wait after a start, for at most discovery.grace_s, "
        "before Envoy is told the fleet.",
    )


class _PortTlsSettings(Section):
    """The certificate that a port shows, and whose it wants to see."""

    cert_file: File | None = Field(default=None, description="The port's certificate chain, PEM.")
    key_file: File | None = Field(default=None, description="The certificate's private key, PEM.")
    client_ca_file: File | None = Field(
        default=None,
        description="The authorities, PEM, of which callers must show a certificate (mutual TLS).",
    )

    @model_validator(mode="after")
    def _check_complete(self) -> Self:
        if (self.cert_file is None) != (self.key_file is None):
            raise PydanticCustomError("together", "give cert_file and key_file together")
        if self.client_ca_file is not None and self.cert_file is None:
            raise PydanticCustomError("together", "client_ca_file needs cert_file and key_file")
        return self


class GrpcTlsSettings(_PortTlsSettings):
    """TLS on the data plane's port, where Envoy calls. The files are read again when they
    change."""


class AdminTlsSettings(_PortTlsSettings):
    """TLS on the admin port. The files are read again when they change."""


class ClientsSettings(Section):
    """The clients of the model servers, as Envoy checks them."""

    keys_file: File | None = Field(
        default=None,
        description="The file with the API keys that clients may use: a line `name key` for each. "
        "`coxswain config envoy` writes Envoy's check of them (api_key_auth, which Envoy still "
        "calls work in progress), and the keys with it: keep what it prints to yourself, "
        "and print it again and restart Envoy to revoke a key. "
        "The servers do not get to see them; where they want a key, set inject_key.",
    )
