"""The target of a scraper: the address of one endpoint and how to request it."""

from dataclasses import dataclass, field

from extproc.core.address import Address
from extproc.core.observation import MAX_SLOTS
from extproc.runners.kind import RunnerKind
from extproc.security.secret_file import is_sendable_key


class TargetError(ValueError):
    """An invalid target; `str(error)` says why and never shows the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointTarget:
    """One server to scrape. Connections always go to `address`, whatever it is called.

    `host_name` is the name to speak to it by (the `Host` header, and the server name under
    TLS). `ca_file` names the CA file for TLS, None the system's; `ca_digest`
    distinguishes the contents of that file. `api_key` is sent as `Authorization: Bearer` and shown
    nowhere; `sends_key`: Envoy sends it with each request, too. `slots` is the operator's number,
    which the core uses; more than the server has are an issue. `may_sleep` says if the server was
    started with `--sleep-idle-seconds`; None lets the scraper find out
    (`extproc/runners/llama_server/idle_sleep.py`). `may_be_off`: its machine sleeps, so that it is
    no fault if it cannot be reached.

    Raises `TargetError` for values that no server could be asked with.
    """

    address: Address
    is_tls: bool = False
    ca_file: str | None = None
    ca_digest: str = ""
    path_prefix: str = ""
    host_name: str | None = None
    api_key: str | None = field(default=None, repr=False)
    sends_key: bool = False
    slots: int | None = None
    may_sleep: bool | None = None
    may_be_off: bool = False
    kind: RunnerKind = RunnerKind.AUTO

    def __post_init__(self) -> None:
        if self.slots is not None and not 0 <= self.slots <= MAX_SLOTS:
            raise TargetError(f"{self.address}: slots must be 0 to {MAX_SLOTS}, not {self.slots}")
        if self.api_key is not None and not is_sendable_key(self.api_key):
            raise TargetError(f"{self.address}: the API key must be visible ASCII, without spaces")
        if self.host_name is not None and not _is_visible_ascii(self.host_name):
            raise TargetError(f"{self.address}: {self.host_name!r} is not a host name")
        if self.path_prefix and not (
            self.path_prefix.startswith("/")
            and not self.path_prefix.endswith("/")
            and _is_visible_ascii(self.path_prefix)
            and not any(mark in self.path_prefix for mark in "?#%")
        ):
            raise TargetError(
                f"{self.address}: write the path prefix as /llama, not {self.path_prefix!r}"
            )

    @property
    def base_url(self) -> str:
        return f"{'https' if self.is_tls else 'http'}://{self.address}{self.path_prefix}"


def _is_visible_ascii(text: str) -> bool:
    return bool(text) and all(0x21 <= ord(character) <= 0x7E for character in text)
