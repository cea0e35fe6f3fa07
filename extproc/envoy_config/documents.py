"""Whole configurations as text: each says what it is and how to print it again."""

from extproc.envoy_config.bootstrap import bootstrap_message
from extproc.envoy_config.options import EnvoyOptions, Mode
from extproc.envoy_config.yaml_text import comment, render, tree

_DISCOVERY = """
Envoy in front of a fleet of llama-servers, with Coxswain as endpoint picker: `envoy -c envoy.yaml`.
Printed by `coxswain config envoy`; change your settings, not this file.

The picker serves the servers' cluster with its addresses (discovery), and selects a server for each
request. Without the picker Envoy continues with least_request over the servers that it knows, or
responds 503: docs/envoy.md lists when it fails closed. The blocked paths stay blocked. Envoy sends
its own spans to the OpenTelemetry collector in the setting envoy.tracing (host:port); without that
setting it sends none.
"""

_ORIGINAL_DST = """
Envoy in front of llama-servers that only the picker knows: `envoy -c original_dst.yaml`.
Printed by `coxswain config envoy --set envoy.discovery=false`; change your settings, not this
file.

The picker needs the same setting: `envoy.discovery: false`, or COXSWAIN_ENVOY__DISCOVERY=false.
Each of its responses then names exactly one server, in dynamic metadata, which clients cannot set;
Envoy rejects a response with several servers with 503. There are no fallbacks and no health checks,
and without the picker every request gets 503: Envoy fails closed.
"""


_GATEWAY = """
Envoy in front of a fleet of llama-servers, configured as gateways are: `envoy -c gateway.yaml`.
Printed by `coxswain config envoy --mode gateway`; change your settings, not this file.

The filter `envoy.filters.http.ext_proc` is the one that a gateway sets up if it implements the
endpoint picker protocol of the Gateway API inference extension: requests and responses stream
through the picker in full duplex, the destination is in a header and in `envoy.lb`, the gateway
reports which endpoint served, and a subset hint in `envoy.lb.subset_hint` restricts the choice.
Each chunk costs a message; if you can choose the configuration yourself, envoy.yaml is cheaper.
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
