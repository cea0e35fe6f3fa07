"""The files in `envoy/` as text: each says what it is, and how to print it again."""

from __future__ import annotations

from dataclasses import replace

from extproc.envoy_config.bootstrap import bootstrap_message
from extproc.envoy_config.options import EnvoyOptions, Mode
from extproc.envoy_config.yaml_text import comment, render, tree


def bootstrap(options: EnvoyOptions) -> str:
    """A configuration to run as it is: `envoy -c <this>`."""
    header = _ORIGINAL_DST if options.mode is Mode.ORIGINAL_DST else _DISCOVERY
    return comment(header) + render(tree(bootstrap_message(options)))


def original_dst(options: EnvoyOptions) -> str:
    """`bootstrap` with the mode that needs no discovery."""
    return bootstrap(replace(options, mode=Mode.ORIGINAL_DST, host_rewrite=False))


_DISCOVERY = """
Envoy in front of a fleet of llama-servers, steered by Coxswain.
Printed by `coxswain config envoy`; change your settings, not this file.
"""
_ORIGINAL_DST = """
x
"""
