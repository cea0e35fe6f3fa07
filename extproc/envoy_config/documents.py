"""The files in `envoy/` as text: each says what it is and how to print it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType

from extproc.envoy_config.bootstrap import bootstrap_message
from extproc.envoy_config.options import EnvoyOptions, Mode
from extproc.envoy_config.snippet import snippet
from extproc.envoy_config.yaml_text import comment, render, tree

_DISCOVERY = """
Envoy before a fleet of llama-servers, steered by Coxswain: `envoy -c envoy.yaml`.
Printed by `coxswain config envoy`; change your settings, not this file.

The picker serves the servers' cluster and their addresses (discovery), and chooses one for each
request. Without the picker Envoy goes on by itself, with least_request over the servers it knows;
the blocked paths stay blocked. Envoy's own spans go to the OpenTelemetry collector that the
setting envoy.tracing names by its host:port; without it there are none.
"""

_ORIGINAL_DST = """
Envoy before llama-servers that only the picker knows: `envoy -c original_dst.yaml`.
Printed by `coxswain config envoy --set envoy.discovery=false`; change your settings, not this
file.

The picker needs that setting, too: `envoy.discovery: false`, or COXSWAIN_ENVOY__DISCOVERY=false.
Then each of its answers names exactly one server, in dynamic metadata, which no client can write;
an answer that names several is 503 here. There are no fallbacks and no health checks, and without
the picker every request gets 503: it fails closed.
"""


_GATEWAY = """
Envoy before a fleet of llama-servers, asking as gateways do: `envoy -c gateway.yaml`.
Printed by `coxswain config envoy --mode gateway`; change your settings, not this file.

The filter `envoy.filters.http.ext_proc` is what a gateway that implements the endpoint picker
protocol of the Gateway API inference extension sets up: requests and answers flow through the
picker in full duplex, the destination is a header and the same in `envoy.lb`, who served is told
back, and a hint in `envoy.lb.subset_hint` bounds the choice. It costs a message for each chunk;
where you choose the configuration yourself, envoy.yaml is the cheaper one.
"""

_OPENINGS = {
    Mode.DISCOVERY: _DISCOVERY,
    Mode.GATEWAY: _GATEWAY,
    Mode.ORIGINAL_DST: _ORIGINAL_DST,
}


def bootstrap(options: EnvoyOptions) -> str:
    """A configuration that Envoy runs as it is."""
    opening = _OPENINGS[options.mode]
    return comment(opening) + render(tree(bootstrap_message(options)))


@cache
def default_files() -> Mapping[str, str]:
    """The text of each file in `envoy/`, by its name."""
    return MappingProxyType(
        {
            "envoy.yaml": bootstrap(EnvoyOptions()),
            "ext_proc_filter.yaml": snippet(EnvoyOptions()),
            "gateway.yaml": bootstrap(replace(EnvoyOptions(), mode=Mode.GATEWAY)),
            "original_dst.yaml": bootstrap(replace(EnvoyOptions(), mode=Mode.ORIGINAL_DST)),
        }
    )
