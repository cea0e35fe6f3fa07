"""The types of settings' values, with their validation."""

import ipaddress
import json
import re
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from extproc.core.address import MAX_PORT, is_ip
from extproc.core.observation import MAX_SLOTS
from extproc.security.path_rule import MAX_PREFIX_CHARS

MAX_FRONTS: Final = 128
MAX_SECONDS: Final = 7 * 24 * 3600.0
"""A week. A longer wait is a number in the wrong unit."""
LEAST_SECONDS: Final = 0.001
_LEAST: Final = {"least": LEAST_SECONDS}

HOST_NAME: Final = re.compile(
    r"(?=.{1,253}\Z)(?!-)[a-z0-9_-]{1,63}(?<!-)(\.(?!-)[a-z0-9_-]{1,63}(?<!-))*\.?", re.IGNORECASE
)
MAC: Final = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")


def split_host_port(text: str) -> tuple[str, int]:
    """The two parts of `10.0.0.5:8080`, `[::1]:8080` or `gpu-1:8080`.

    Raises PydanticCustomError. Only the port is ever quoted, because a pasted address may contain a
    password.
    """
    if "://" in text:
        raise PydanticCustomError("address", "write host:port, without {scheme}", _scheme(text))
    if "/" in text or "@" in text:
        raise PydanticCustomError("address", "write host:port, without path, user or password")
    host, colon, port = text.strip().rpartition(":")
    if not colon:
        raise PydanticCustomError("address", "there is no port; write host:port")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= MAX_PORT):
        raise PydanticCustomError(
            "address",
            "{port} is not a port; ports are 1 to 65535",
            {"port": repr(port[:12])},
        )
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        if not _is_ip(host, 6):
            raise PydanticCustomError("address", "only an IPv6 address belongs in brackets")
    elif ":" in host:
        raise PydanticCustomError(
            "address", "put an IPv6 address in brackets, for example [::1]:8080"
        )
    elif not _is_ip(host, 4) and (HOST_NAME.fullmatch(host) is None or _resembles_ipv4(host)):
        raise PydanticCustomError(
            "address", "the part before the port is not an IP address or a host name"
        )
    return host, int(port)


def _scheme(text: str) -> dict[str, str]:
    """The scheme before the address; only common schemes are quoted."""
    scheme = text.strip().partition("://")[0].lower()
    return {"scheme": f"{scheme}://" if scheme in {"http", "https", "grpc"} else "a scheme"}


def _is_ip(host: str, version: int) -> bool:
    return is_ip(host) and ipaddress.ip_address(host).version == version


def _resembles_ipv4(host: str) -> bool:
    """Whether the last label is a number, so that this cannot be a host name."""
    return host.rstrip(".").rpartition(".")[2].isdigit()


def _front_count(value: object) -> int | Literal["auto"]:
    text = str(value).strip().lower()
    if text == "auto":
        return "auto"
    if isinstance(value, bool) or not text.isascii() or not text.isdigit():
        raise PydanticCustomError("fronts", "write a number of processes, or auto")
    if int(text) > MAX_FRONTS:
        raise PydanticCustomError(
            "fronts", "expected at most {most} processes", {"most": MAX_FRONTS}
        )
    return int(text)


def _target(text: str) -> str:
    host, port = split_host_port(text)
    if port == 0:
        raise PydanticCustomError("address", "0 is not a port; ports are 1 to 65535")
    if is_ip(host) and ipaddress.ip_address(host).is_unspecified:
        raise PydanticCustomError(
            "address",
            "write the address at which it can be reached: this one is only for listening",
        )
    return _joined(host, port)


def _server(text: str) -> str:
    bare = text.strip()
    https = "https://"
    scheme = bare[: len(https)].lower()
    if scheme.startswith("http://"):
        raise PydanticCustomError(
            "address", "write host:port without http://, or https://host:port if it uses TLS"
        )
    return f"{https}{_target(bare[len(https) :])}" if scheme == https else _target(bare)


def _web_url(text: str) -> str:
    plain = text.strip()
    try:
        parts = urlsplit(plain)
    except ValueError:
        parts = urlsplit("")
    is_web = parts.scheme in {"http", "https"} and parts.hostname
    if not is_web or not plain.isprintable() or " " in plain:
        raise PydanticCustomError("url", "write a web address: http://host:port or https://host")
    return plain


def _bind(text: str) -> str:
    return _joined(*split_host_port(text))


def _ip_bind(text: str) -> str:
    host, port = split_host_port(text)
    if not is_ip(host):
        raise PydanticCustomError(
            "address", "Envoy listens at an IP address, not at a name: write 127.0.0.1:port"
        )
    return _joined(host, port)


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _none_or_some(seconds: float) -> float:
    if 0 < seconds < LEAST_SECONDS:
        raise PydanticCustomError("seconds", "expected 0, or at least {least}", _LEAST)
    return seconds


def _server_name(text: str) -> str:
    if is_ip(text) and "%" not in text:
        return text
    if HOST_NAME.fullmatch(text) is None or _resembles_ipv4(text):
        raise PydanticCustomError("server_name", "this is not a host name or an IP address")
    return text


MAX_NAME_BYTES: Final = 255
MAX_PATH_BYTES: Final = 4095
"""Of a file name and of a path on Linux (NAME_MAX, PATH_MAX less its closing zero)."""


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _file(text: str) -> str:
    if "\0" in text:
        raise PydanticCustomError("file", "a file name must not contain a zero byte")
    if any(_size(part) > MAX_NAME_BYTES for part in Path(text).parts):
        raise PydanticCustomError("file", f"a file name has at most {MAX_NAME_BYTES} bytes")
    if _size(text) > MAX_PATH_BYTES:
        raise PydanticCustomError("file", f"a path has at most {MAX_PATH_BYTES} bytes")
    try:
        Path(text).expanduser()
    except RuntimeError:
        raise PydanticCustomError(
            "file", "the home folder (~) is unknown; write the absolute path"
        ) from None
    return text


def _rule_name(text: str) -> str:
    module, _, name = text.strip().partition(":")
    if not name.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise PydanticCustomError("rule", "write the module and the class: package.module:Name")
    return text.strip()


def _network(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text.strip(), strict=False))
    except ValueError:
        raise PydanticCustomError("network", "write a network as 10.0.0.0/8 or fd00::/8") from None


def _mac(value: object) -> str:
    """A MAC address in lower case, with colons. Of digits alone it is a number in YAML."""
    text = str(value).strip().lower().replace("-", ":")
    if not isinstance(value, str) or MAC.fullmatch(text) is None:
        raise PydanticCustomError("mac", 'write a MAC address in quotes, as "00:11:22:33:44:55"')
    return text


def _broadcast(text: str) -> str:
    host, colon, port = text.strip().partition(":")
    if not _is_ip(host, 4):
        raise PydanticCustomError("broadcast", "write an IPv4 broadcast address: 192.168.1.255")
    return _target(f"{host}:{port}") if colon else host


def _no_bool(value: Any) -> Any:
    """A YAML `yes` is not the number one."""
    if isinstance(value, bool):
        raise PydanticCustomError("number_wanted", "expected a number")
    return value


def _listed(value: Any) -> Any:
    """Parse a text from the environment or a flag: `a,b,c`, or a JSON list."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text.startswith("["):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            # `[::1]:8080,10.0.0.5:8080` begins like JSON and is a plain list.
            if '"' in text or "{" in text:
                raise PydanticCustomError("list_json", "this is not a valid list") from None
    return [part.strip() for part in text.split(",") if part.strip()]


def _mapped(value: Any) -> Any:
    """Parse a text from the environment or a flag: a JSON object."""
    if not isinstance(value, str) or not value.strip().startswith("{"):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise PydanticCustomError("map_json", "this is not a valid JSON object") from None


def _empty_section(value: Any) -> Any:
    """Treat a section without keys as an empty one."""
    return {} if value is None else value


def _empty_list(value: Any) -> Any:
    return [] if value is None else _listed(value)


EMPTY_SECTION: Final = BeforeValidator(_empty_section)
LIST: Final = BeforeValidator(_empty_list)
MAP: Final = BeforeValidator(lambda value: _mapped(_empty_section(value)))

RELOADABLE: Final = "reloadable"
ValueT = TypeVar("ValueT")
Reloadable = Annotated[ValueT, RELOADABLE]
"""A setting that a reload applies. All others are read only at the start."""

Target = Annotated[str, AfterValidator(_target)]
"""Where a server is: `host:port`, the host an IP or a name."""

Server = Annotated[str, AfterValidator(_server)]
"""Where a server is and whether it speaks TLS: `host:port` or `https://host:port`."""

WebUrl = Annotated[str, AfterValidator(_web_url)]
"""The address of a web page."""

Bind = Annotated[str, AfterValidator(_bind)]
"""Where to listen: `host:port`; port 0 takes a free one."""

IpBind = Annotated[str, AfterValidator(_ip_bind)]
"""Where Envoy listens: the same, but the host is an IP address."""

ServerName = Annotated[str, AfterValidator(_server_name)]
"""A host name or an IP address, without a port, as it stands in certificates."""

File = Annotated[str, Field(min_length=1), AfterValidator(_file)]
"""A file or folder where Coxswain runs; a `~` at its beginning is a home folder."""

Mac = Annotated[
    str,
    PlainValidator(_mac),
    WithJsonSchema({"type": "string", "pattern": "^[0-9A-Fa-f]{2}([:-][0-9A-Fa-f]{2}){5}$"}),
]
"""A MAC address: `00:11:22:33:44:55`."""

Broadcast = Annotated[str, AfterValidator(_broadcast)]
"""An IPv4 broadcast address, with a port or without."""

Network = Annotated[str, AfterValidator(_network)]
"""A network: `10.0.0.0/8`, or one IP address."""

RuleName = Annotated[str, AfterValidator(_rule_name)]
"""The name of a class: `package.module:Name`."""

Labels = Annotated[
    dict[
        Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$")],
        Annotated[str, Field(max_length=253)],
    ],
    MAP,
    Field(max_length=32),
]
"""Names and values by which rules know an endpoint."""

PathPrefix = Annotated[str, Field(pattern=r"^(/[A-Za-z0-9._~-]+)*$", max_length=MAX_PREFIX_CHARS)]
"""The beginning of paths: `/llama`, or nothing."""

Seconds = Annotated[
    float, BeforeValidator(_no_bool), Field(ge=0, le=MAX_SECONDS, allow_inf_nan=False)
]
SomeSeconds = Annotated[
    float, BeforeValidator(_no_bool), Field(ge=LEAST_SECONDS, le=MAX_SECONDS, allow_inf_nan=False)
]
EnvoySeconds = Annotated[Seconds, AfterValidator(_none_or_some)]
"""0 for none; Envoy counts milliseconds, and would treat less than one as 0 or reject it."""
Share = Annotated[float, BeforeValidator(_no_bool), Field(ge=0, le=0.9, allow_inf_nan=False)]
Percent = Annotated[float, BeforeValidator(_no_bool), Field(ge=0, le=100, allow_inf_nan=False)]
Whole = Annotated[int, BeforeValidator(_no_bool)]
PositiveCount = Annotated[int, BeforeValidator(_no_bool), Field(ge=1, le=1_000_000)]
Count = Annotated[int, BeforeValidator(_no_bool), Field(ge=0, le=10_000_000)]
FrontCount = Annotated[
    int | Literal["auto"],
    PlainValidator(_front_count),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 0, "maximum": MAX_FRONTS}, {"const": "auto"}]}
    ),
]
SlotCount = Annotated[int, BeforeValidator(_no_bool), Field(ge=1, le=MAX_SLOTS)]
