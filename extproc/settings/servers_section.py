"""What is said once about all servers that one source finds."""

from typing import Literal

from pydantic import Field

from extproc.settings.endpoint_section import Kind
from extproc.settings.section import Section
from extproc.settings.values import File, Labels, ServerName, SlotCount


class ServersSettings(Section):
    """Servers of one kind that are reached in the same way."""

    kind: Kind = "auto"
    """The kind of the servers, as at an endpoint."""
    slots: SlotCount | None = None
    """The number of slots of each server, if they do not report it."""
    context: Literal["auto", "shared", "per_slot"] = "auto"
    """Whether the slots of each server share one context, as at an endpoint."""
    labels: Labels = Field(default={})
    """The labels of each server, as at an endpoint."""
    in_pool: str | None = None
    """The name of their pool (`pools`); by default the default one."""
    may_sleep: bool | None = None
    """Whether they run with --sleep-idle-seconds."""
    api_key_env: str | None = Field(default=None, min_length=1)
    """The environment variable that holds their API key."""
    api_key_file: File | None = None
    """The file that holds their API key."""
    inject_key: bool = False
    """Whether Envoy sends them their API key with each request."""
    tls: bool = False
    """Whether these servers use TLS."""
    ca_file: File | None = None
    """With tls: the CA file, PEM, here and where Envoy runs; by default the system's."""
    server_name: ServerName | None = None
    """With tls: the name in their certificates; by default the host name."""

    @property
    def is_tls(self) -> bool:
        """Whether the servers speak TLS."""
        return self.tls
