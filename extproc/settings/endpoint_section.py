"""One llama-server: its address, its API key and its certificate."""

from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from extproc.core.fleet.endpoint import WakeOptions
from extproc.settings.access import check_access
from extproc.settings.section import Section
from extproc.settings.values import (
    LIST,
    Broadcast,
    File,
    Labels,
    Mac,
    Server,
    ServerName,
    SlotCount,
    SomeSeconds,
    split_host_port,
)

HTTPS: Final = "https://"
WAKE_PORT: Final = 9
Kind = Literal["auto", "llama-server", "ollama", "vllm", "sglang", "lm-studio", "openai"]
Money = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]


class PriceSettings(Section):
    """What use of an endpoint costs, in any currency; usage shows sums of it."""

    prompt: Money = 0.0
    """The price of a million tokens of prompts."""
    generated: Money = 0.0
    """The price of a million generated tokens."""
    slot_s: Money = 0.0
    """The price of a slot-second."""


class WakeSettings(Section):
    """How a machine is woken when requests wait for it, and put to sleep when idle. Give all
    endpoints of one machine the same. See docs/sleeping.md."""

    mac: Mac
    """The MAC address of its network card, as 00:11:22:33:44:55."""
    broadcast: Broadcast = "255.255.255.255"
    """The IPv4 broadcast address of its network, with a UDP port if not 9."""
    after_idle_s: SomeSeconds = 900.0
    """Seconds without a request after which it is put to sleep."""
    sleep_command: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], LIST] = ()
    """The program that puts it to sleep, and its arguments, run without a shell. Without it, the
    machine is only woken."""
    timeout_s: SomeSeconds = 120.0
    """Seconds without an answer after which it counts as lost; tried again later."""

    def for_core(self) -> WakeOptions:
        """The same for the core."""
        host, _, port = self.broadcast.partition(":")
        return WakeOptions(
            mac=self.mac,
            broadcast=(host, int(port or WAKE_PORT)),
            after_idle_s=self.after_idle_s,
            sleep_command=self.sleep_command,
            timeout_s=self.timeout_s,
        )


class MachineSettings(Section):
    """A machine with a keeper, by the keeper's --name."""

    wake: WakeSettings | None = None
    """How it is woken when requests wait for a model of its keeper, and put to sleep. Without it,
    it does not sleep."""
    in_pool: str | None = None
    """The name of the pool (`pools`) for whose requests it loads models, and in which their servers
    are; by default the default one."""


class EndpointSettings(Section):
    """One llama-server. A plain `host:port` is its `address`."""

    address: Server
    """Where the server listens: host:port, or https://host:port."""
    name: str | None = Field(
        default=None,
        min_length=1,
        max_length=253,
        pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$",
    )
    """Its name in logs, metrics, spans, commands and x-coxswain-endpoint; else its address."""
    kind: Kind = "auto"
    """The kind of the server: see docs/runners.md. `openai` is any other with OpenAI's API."""
    slots: SlotCount | None = None
    """The number of its slots, if it does not report it: a llama-server with --no-slots and without
    /props, or another kind. Of Ollama: of each loaded model (OLLAMA_NUM_PARALLEL)."""
    context: Literal["auto", "shared", "per_slot"] = "auto"
    """Whether its slots share one context: `shared` for a llama-server without -np, or with
    --kv-unified; `per_slot` for one with -np and without --kv-unified; `auto` finds out."""
    labels: Labels = Field(default={})
    """Names and values by which rules know it (docs/rules.md), such as `region: eu`."""
    tier: Literal[1, 2] = 1
    """Only requests that may spill (`spill`) get to tier 2, such as a second site or a hosted
    provider, and only while tier 1 is too slow. Requires inject_key and envoy.discovery."""
    models: dict[str, str] = Field(default={}, max_length=1000)
    """Of tier 2: its own names of models by the names in requests, as `tiny: gpt-4o-mini`; `"*"`
    stands for all others. If given, it gets only requests that name one of them, in a body of
    complete JSON, into which the name is written."""
    in_pool: str | None = None
    """The name of its pool (`pools`); by default the default one."""
    price: PriceSettings | None = None
    """What use of it costs, for `coxswain usage`."""
    wake: WakeSettings | None = None
    """How its machine is woken and put to sleep; without it, Coxswain does neither."""
    may_sleep: bool | None = None
    """Whether it runs with --sleep-idle-seconds. By default Coxswain finds out; a server whose idle
    time is longer than 15 minutes then stays awake."""
    api_key_env: str | None = Field(default=None, min_length=1)
    """The environment variable that holds the server's API key (--api-key)."""
    api_key_file: File | None = None
    """The file that holds this key; reloaded when it changes."""
    inject_key: bool = False
    """Whether Envoy sends the server this key with each request, so that clients need none.
    Requires envoy.discovery."""
    ca_file: File | None = None
    """For https: the CA file, PEM, by default the system's; reloaded when it changes."""
    server_name: ServerName | None = None
    """For https: the name in the server's certificate; by default the host."""

    @model_validator(mode="before")
    @classmethod
    def _read_short_form(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"address": value}
        if not isinstance(value, dict | EndpointSettings):
            raise PydanticCustomError("endpoint", "write host:port, or a section with an address")
        return value

    @model_validator(mode="after")
    def _check_access(self) -> Self:
        check_access(self)
        return self

    @model_validator(mode="after")
    def _check_tier(self) -> Self:
        if self.tier > 1 and not self.inject_key:
            raise PydanticCustomError(
                "together",
                "tier 2 needs inject_key with its API key: otherwise the key of a client may leave "
                "with the client's request",
            )
        if self.wake is not None and self.tier > 1:
            raise PydanticCustomError("together", "wake is for endpoints of tier 1")
        if self.models and self.tier == 1:
            raise PydanticCustomError(
                "together", "models is for endpoints of tier 2; write other names in models at top"
            )
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


def named_twice(endpoints: Iterable[EndpointSettings]) -> str:
    """Which address or name is in the list more than once, as a sentence; empty if none is."""
    addresses: set[tuple[str, int]] = set()
    names: set[str] = set()
    for endpoint in endpoints:
        address = (endpoint.host.lower(), endpoint.port)
        if address in addresses:
            return f"{endpoint.address} is in the list twice; remove one"
        if endpoint.name in names:
            return f"two endpoints have the name {endpoint.name}; rename one"
        addresses.add(address)
        if endpoint.name is not None:
            names.add(endpoint.name)
    return ""


def woken_differently(endpoints: Iterable[EndpointSettings]) -> str:
    """Which endpoints are on one machine, by its MAC address, and say different things of it, as a
    sentence; empty if none do."""
    machines: dict[str, EndpointSettings] = {}
    for endpoint in endpoints:
        if endpoint.wake is None:
            continue
        first = machines.setdefault(endpoint.wake.mac, endpoint)
        if first.wake != endpoint.wake:
            return (
                f"{first.address} and {endpoint.address} are on one machine, by wake.mac; give "
                "both the same wake"
            )
    return ""
