"""Who is compared, each configured as well as its documentation allows.

All have one worker, weights or limits by the servers' slots where they take any (Coxswain finds
them out), health checks of one second, and retries where a connection fails.
"""

import os
import shlex
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from bench.compare.clients import KEY_HEADER
from bench.compare.inference_extension import inference_extension
from bench.compare.proxy import TIMEOUT_S, Proxy, Servers, Start, listener, members
from bench.rig import QUIET, Rig
from extproc.demo.port import LOOPBACK, free_ports
from tools.kubernetes_build import is_built

BALANCE_PERCENT: Final = 125
"""How much above the mean a hash may load a server: Envoy's and HAProxy's own example."""
NO_DELAY: Final = "option http-no-delay"
"""Without it HAProxy holds the tokens of streams back for tenths of a second."""
CHECK_S: Final = 1
UNREAD_PROMPT_BYTES: Final = 256
"""So little of a body has no whole block of a prompt: nothing of it is remembered."""
NOT_GIVEN: Final = ("llm-d's picker", "Paddler")
"""Rivals whose programs the user has to name: `--picker`, `--paddler`, or `--rival`."""
PLAIN: Final = "Envoy, least request"
OURS: Final = "Coxswain, first come, prefix affinity"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """One row. `missing` says what has to be installed, if anything; `is_ours` marks Coxswain, and
    `knows_sizes` an order that learns what requests take. One that `needs_kubelet` learns from
    Kubernetes that a server died, and nobody says so here. One that `has_rates_only` is in no
    table of waits."""

    name: str
    start: Start
    missing: str = ""
    is_ours: bool = False
    knows_sizes: bool = False
    needs_kubelet: bool = False
    has_rates_only: bool = False


def rivals(
    given: Mapping[str, str],
    pickers: Mapping[str, Path] | None = None,
    paddlers: Mapping[str, Path] | None = None,
) -> list[Rival]:
    """All rows; `given` has the commands of further ones by name, `pickers` and `paddlers` the
    binaries of llm-d's kind and of Paddler 1.x."""
    affinity, blind = "prefix affinity", "no affinity"
    return [
        Rival(name=OURS, start=coxswain, is_ours=True),
        Rival(
            name=f"Coxswain, first come, {blind}",
            start=partial(coxswain, reads_prompts=False),
            is_ours=True,
        ),
        Rival(
            name=f"Coxswain, shortest expected, {affinity}",
            start=partial(coxswain, discipline="shortest_expected"),
            is_ours=True,
            knows_sizes=True,
        ),
        Rival(
            name=f"Coxswain, shortest expected, {blind}",
            start=partial(coxswain, discipline="shortest_expected", reads_prompts=False),
            is_ours=True,
            knows_sizes=True,
        ),
        Rival(name="Envoy, round robin", start=partial(envoy, policy="ROUND_ROBIN")),
        Rival(name=PLAIN, start=partial(envoy, policy="LEAST_REQUEST")),
        Rival(
            name="Envoy, ring hash, bounded load",
            start=partial(envoy, policy="RING_HASH", is_bounded=True),
        ),
        Rival(
            name="Envoy, maglev, bounded load",
            start=partial(envoy, policy="MAGLEV", is_bounded=True),
        ),
        Rival(name="nginx, least_conn", start=nginx, missing=_missing("nginx")),
        Rival(name="HAProxy, maxconn", start=haproxy, missing=_missing("haproxy")),
        Rival(
            name="HAProxy, maxconn, bounded hash",
            start=partial(haproxy, hashes=True),
            missing=_missing("haproxy"),
        ),
        *(Rival(name=name, start=partial(command, text=text)) for name, text in given.items()),
        *(
            Rival(name=name, start=partial(paddler, binary=binary))
            for name, binary in (paddlers or {}).items()
        ),
        *(each for name, binary in (pickers or {}).items() for each in _pickers(name, binary)),
    ]


def _pickers(name: str, binary: Path) -> Iterator[Rival]:
    missing = "" if is_built() else "make kubernetes"
    for has_tls in (False, True):
        yield Rival(
            name=f"{name}, by TLS" if has_tls else name,
            start=partial(inference_extension, binary=binary, has_tls=has_tls),
            missing=missing,
            needs_kubelet=True,
            has_rates_only=has_tls,
        )


def _missing(program: str) -> str:
    return "" if shutil.which(program) else f"apt-get install {program}"


async def coxswain(
    rig: Rig, servers: Servers, *, discipline: str = "first_come", reads_prompts: bool = True
) -> Proxy:
    """Coxswain with its defaults, and Envoy as `coxswain config envoy` configures it. That slots
    have contexts of their own is in the arguments of a llama-server, which the simulator lacks."""
    contexts = {port: "auto" if one.shared_tokens else "per_slot" for port, one in servers.items()}
    settings: dict[str, Any] = {
        **QUIET,
        "endpoints": [
            {"address": f"{LOOPBACK}:{port}", "context": context}
            for port, context in contexts.items()
        ],
        "queue": {"discipline": discipline},
    }
    if not reads_prompts:
        settings["routing"] = {"body_limit_bytes": UNREAD_PROMPT_BYTES}
    picker, grpc = await rig.start_picker([*servers], settings)
    proxy, port = await rig.start_envoy(grpc)
    return Proxy(port=port, children=(picker, proxy))


async def envoy(rig: Rig, servers: Servers, *, policy: str, is_bounded: bool = False) -> Proxy:
    """Envoy alone."""
    [port] = free_ports(1)
    tree = yaml.safe_dump(envoy_alone(port, servers, policy, is_bounded=is_bounded))
    child, _ = await rig.run_envoy(f"envoy-alone-{port}", tree, port)
    return Proxy(port=port, children=(child,))


def envoy_alone(
    port: int, servers: Servers, policy: str, *, is_bounded: bool = False
) -> dict[str, Any]:
    """A static configuration with this `lb_policy`; its hash, if it has one, is of clients' key."""
    route = {
        "cluster": "servers",
        "timeout": "0s",
        "retry_policy": {"retry_on": "connect-failure,refused-stream", "num_retries": 2},
    }
    cluster: dict[str, Any] = {
        "name": "servers",
        "type": "STATIC",
        "connect_timeout": "1s",
        "lb_policy": policy,
        "health_checks": [
            {
                "timeout": f"{CHECK_S}s",
                "interval": f"{CHECK_S}s",
                "unhealthy_threshold": 2,
                "healthy_threshold": 1,
                "http_health_check": {"path": "/health"},
            }
        ],
        "load_assignment": members("servers", {at: one.slots for at, one in servers.items()}),
    }
    if is_bounded:
        bound = {"hash_balance_factor": BALANCE_PERCENT}
        cluster["common_lb_config"] = {"consistent_hashing_lb_config": bound}
    return {"static_resources": {"listeners": [listener(port, route)], "clusters": [cluster]}}


async def nginx(rig: Rig, servers: Servers) -> Proxy:
    """nginx with `least_conn`, as docs/nginx.md has it, with weights and kept connections."""
    [port] = free_ports(1)
    folder = rig.folder / "nginx"
    folder.mkdir()
    config = folder / "nginx.conf"
    config.write_text(nginx_configuration(port, servers, is_root=os.geteuid() == 0))
    program = ("nginx", "-p", folder, "-c", config, "-e", "stderr")
    child, _ = await rig.start_listening("nginx", program, port)
    return Proxy(port=port, children=(child,))


def nginx_configuration(port: int, servers: Servers, *, is_root: bool = False) -> str:
    """All paths are below nginx's prefix."""
    upstream = [f"server {LOOPBACK}:{at} weight={one.slots};" for at, one in servers.items()]
    temporary = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    lines = [
        "daemon off;",
        "worker_processes 1;",
        "pid nginx.pid;",
        "error_log stderr crit;",
        *(["user root;"] if is_root else []),
        "events { worker_connections 4096; }",
        "http {",
        "  access_log off;",
        *(f"  {name}_temp_path {name}_temp;" for name in temporary),
        "  upstream servers {",
        "    least_conn;",
        *(f"    {line}" for line in upstream),
        "    keepalive 64;",
        "  }",
        "  server {",
        f"    listen {LOOPBACK}:{port} backlog=4096;",
        "    client_max_body_size 64m;",
        "    client_body_buffer_size 256k;",
        "    keepalive_requests 100000;",
        "    location / {",
        "      proxy_pass http://servers;",
        "      proxy_http_version 1.1;",
        '      proxy_set_header Connection "";',
        "      proxy_buffering off;",
        f"      proxy_read_timeout {TIMEOUT_S}s;",
        "    }",
        "  }",
        "}",
    ]
    return "\n".join(lines) + "\n"


async def haproxy(rig: Rig, servers: Servers, *, hashes: bool = False) -> Proxy:
    """HAProxy, whose `maxconn` of each server is its slots, written by hand."""
    balance = ["balance leastconn"]
    if hashes:
        balance = [
            f"balance hdr({KEY_HEADER})",
            "hash-type consistent",
            f"hash-balance-factor {BALANCE_PERCENT}",
        ]
    options = [*balance, "option httpchk GET /health", "option redispatch", "retries 3", NO_DELAY]
    binary = shutil.which("haproxy")
    assert binary is not None, "the caller leaves out what is missing"
    slots = {at: one.slots for at, one in servers.items()}
    check = f"check inter {CHECK_S}s fall 2 rise 1"
    child, port = await rig.start_haproxy(binary, slots, options, check)
    return Proxy(port=port, children=(child,))


async def paddler(rig: Rig, servers: Servers, *, binary: Path) -> Proxy:
    """Paddler 1.x: its balancer, and an agent for each server, which report each second instead of
    every 10 s."""
    port, management = free_ports(2)
    listens = ("--reverseproxy-addr", f"{LOOPBACK}:{port}")
    reports = ("--management-addr", f"{LOOPBACK}:{management}")
    child, _ = await rig.start_listening("paddler", (binary, "balancer", *listens, *reports), port)
    agents = [
        await rig.start(
            f"paddler-agent-{server}",
            (
                *(binary, "agent", *reports, "--monitoring-interval", str(CHECK_S)),
                *("--local-llamacpp-addr", f"{LOOPBACK}:{server}"),
            ),
        )
        for server in servers
    ]
    return Proxy(port=port, children=(*agents, child))


async def command(rig: Rig, servers: Servers, *, text: str) -> Proxy:
    """A rival that the user named: a command in which `{port}`, `{servers}` (host:port,...),
    `{slots}` (of each server) and `{folder}` are replaced."""
    [port] = free_ports(1)
    words = command_words(text, port, servers, str(rig.folder))
    child, _ = await rig.start_listening("rival", words, port)
    return Proxy(port=port, children=(child,))


def command_words(text: str, port: int, servers: Servers, folder: str) -> list[str]:
    """The program and its arguments."""
    values = {
        "{port}": str(port),
        "{servers}": ",".join(f"{LOOPBACK}:{one}" for one in servers),
        "{slots}": ",".join(str(one.slots) for one in servers.values()),
        "{folder}": folder,
    }
    words = shlex.split(text)
    for name, value in values.items():
        words = [word.replace(name, value) for word in words]
    return words
