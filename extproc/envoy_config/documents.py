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

The picker serves the servers' addresses (discovery) and chooses one for each request.
Without the picker Envoy goes on by itself, with least_request over the servers it knows;
the blocked paths stay blocked. Envoy's own spans are off; the setting envoy.tracing, the
host:port of an OpenTelemetry collector, turns them on.
"""

_ORIGINAL_DST = """
Envoy before llama-servers that only the picker knows: `envoy -c original_dst.yaml`.
Printed by `coxswain config envoy --mode original-dst`; change your settings, not this file.

No discovery: each answer of the picker names exactly one server, in dynamic metadata, which
no client can write. There are no fallbacks and no health checks here, and without the picker
every request gets 503: it fails closed.
"""


def bootstrap(options: EnvoyOptions) -> str:
    """A configuration that Envoy runs as it is."""
    opening = _ORIGINAL_DST if options.mode is Mode.ORIGINAL_DST else _DISCOVERY
    return comment(opening) + render(tree(bootstrap_message(options)))


@cache
def default_files() -> Mapping[str, str]:
    """The text of each file in `envoy/`, by its name."""
    return MappingProxyType(
        {
            "envoy.yaml": bootstrap(EnvoyOptions()),
            "ext_proc_filter.yaml": snippet(EnvoyOptions()),
            "original_dst.yaml": bootstrap(replace(EnvoyOptions(), mode=Mode.ORIGINAL_DST)),
        }
    )
