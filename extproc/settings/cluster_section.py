"""Settings of a cluster: several machines that serve one queue."""

from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from extproc.kubernetes.service_account import FOLDER
from extproc.settings.access import check_one_source
from extproc.settings.kubernetes_section import OBJECT_NAME, ApiUrl, Namespace
from extproc.settings.section import Section
from extproc.settings.values import LIST, Bind, File, SomeSeconds, Target, split_host_port

SCHEMES = ("redis", "rediss")


def _engine(text: str) -> str:
    parts = urlsplit(text.strip())
    if parts.scheme not in SCHEMES:
        raise PydanticCustomError("url", "write redis://host:port, or rediss://host:port for TLS")
    if parts.password is not None:
        raise PydanticCustomError(
            "url",
            "remove the password: put it into the variable COXSWAIN_VALKEY_PASSWORD, or name its "
            "source with cluster.valkey_password_env or cluster.valkey_password_file",
        )
    split_host_port(parts.netloc.rpartition("@")[2])
    if parts.query or parts.fragment:
        raise PydanticCustomError("url", "remove what follows the port and the database")
    return text.strip()


class ClusterSettings(Section):
    """Several machines serve one queue: each runs `coxswain serve` with `fronts`, one leads,
    another takes over when it is lost (docs/cluster.md). Off without `name`. With valkey it
    requires the extra coxswain-llm[cluster]."""

    name: str = Field(default="", max_length=64, pattern=r"^[A-Za-z0-9._-]*$")
    """The name of the cluster, the same at all members. Clusters may share one Valkey."""
    valkey: Annotated[tuple[Annotated[str, AfterValidator(_engine)], ...], LIST] = ()
    """The Valkey or Redis that says who leads: redis://host:port, or rediss:// for TLS; with
    sentinel, the sentinels. It needs no persistence."""
    sentinel: str | None = Field(default=None, min_length=1, max_length=128)
    """The name of the master that the sentinels in valkey watch."""
    valkey_password_env: str | None = Field(default=None, min_length=1)
    """The environment variable that holds Valkey's password; by default
    COXSWAIN_VALKEY_PASSWORD."""
    valkey_password_file: File | None = None
    """The file that holds Valkey's password."""
    valkey_ca_file: File | None = None
    """The CA file, PEM, for Valkey's certificate; by default the system's."""
    kubernetes: bool = False
    """Whether a Lease of Kubernetes says who leads, in place of Valkey: the Lease `name` and the
    ConfigMap `name`-intents, with the role of deploy/kubernetes/cluster-role.yaml. A member writes
    up to eight times in lease_s."""
    kubernetes_namespace: Namespace | None = None
    """The namespace of both; by default the pod's."""
    kubernetes_api: ApiUrl | None = None
    """The API server, https://host:port; by default that of the pod's cluster."""
    kubernetes_folder: str = FOLDER
    """The folder with the service account's token, ca.crt and namespace."""
    advertise: Target | None = None
    """Where the other members reach this one, host:port, different at each. A port for members
    only."""
    listen: Bind | None = None
    """Where this member listens for the others; by default advertise."""
    member: str | None = Field(default=None, max_length=128, pattern=r"^[A-Za-z0-9._:\[\]-]+$")
    """The name of this member, for operators; by default advertise."""
    token_env: str | None = Field(default=None, min_length=1)
    """The environment variable that holds the token by which members know each other; by default
    COXSWAIN_CLUSTER_TOKEN."""
    token_file: File | None = None
    """The file that holds this token."""
    cert_file: File | None = None
    """This member's certificate chain, PEM, which names the host in advertise. With it, members use
    mutual TLS."""
    key_file: File | None = None
    """The certificate's private key, PEM."""
    ca_file: File | None = None
    """The CA file, PEM, that has signed the certificates of all members."""
    lease_s: SomeSeconds = Field(default=2.0, ge=0.5, le=60.0)
    """Seconds to wait for a leader that is lost with its machine. A core that is lost alone is
    replaced at once."""
    without_engine: Literal["stay", "stop"] = "stay"
    """What a leader does while Valkey or the Kubernetes API does not answer. `stay`: it goes on.
    `stop`: it goes on only while all fronts of the other members follow it, so that two members
    never decide at the same time."""
    patience_s: SomeSeconds = 10.0
    """Seconds for which a front waits for a leader before Envoy goes to another member, or
    continues without the picker."""

    @property
    def member_name(self) -> str:
        """The name of this member."""
        return self.member or self.advertise or ""

    def front_name(self, front: str) -> str:
        """The name of a front of this member: those of all machines have different ones."""
        return f"{self.member_name}/{front}"

    @model_validator(mode="after")
    def _check_complete(self) -> Self:
        check_one_source(self.token_env, self.token_file, "token")
        check_one_source(self.valkey_password_env, self.valkey_password_file, "valkey_password")
        tls = (self.cert_file, self.key_file, self.ca_file)
        if any(tls) and not all(tls):
            raise PydanticCustomError("together", "give cert_file, key_file and ca_file together")
        if not self.name:
            return self
        if self.kubernetes:
            if self.valkey:
                raise PydanticCustomError("together", "give valkey or kubernetes, not both")
            if not OBJECT_NAME.fullmatch(self.name):
                raise PydanticCustomError(
                    "together", "with kubernetes the name has lower-case letters, digits, - and ."
                )
        elif not self.valkey:
            raise PydanticCustomError(
                "together", "a cluster needs valkey: redis://host:port, or kubernetes: true"
            )
        if len(self.valkey) > 1 and self.sentinel is None:
            raise PydanticCustomError(
                "together", "valkey takes one address; several are sentinels: name their sentinel"
            )
        if self.advertise is None:
            raise PydanticCustomError(
                "together",
                "a cluster needs advertise: the host:port where other members reach this one",
            )
        return self
