"""Envoy's configuration as the product prints it, printed once for all that differ in ports.

To print one takes longer than many an end-to-end test, and each stack has ports of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache

from extproc.envoy_config.documents import bootstrap
from extproc.envoy_config.options import EnvoyOptions, HostPort

FIRST = 65_400
"""From here on ports stand for others: workers choose theirs below."""
STAND_IN = re.compile(rf"\b{FIRST // 100}\d\d\b")


def printed(options: EnvoyOptions) -> str:
    """What `bootstrap(options)` returns."""
    ports: list[str] = []

    def stand_in(place: HostPort) -> HostPort:
        ports.append(str(place.port))
        return HostPort(place.host, FIRST + len(ports) - 1)

    template = _template(_with_places(options, stand_in))
    return STAND_IN.sub(lambda found: ports[int(found[0]) - FIRST], template)


def _with_places(options: EnvoyOptions, change: Callable[[HostPort], HostPort]) -> EnvoyOptions:
    changed: dict[str, object] = {}
    for field in fields(options):
        value = getattr(options, field.name)
        if isinstance(value, HostPort):
            changed[field.name] = change(value)
        elif isinstance(value, tuple) and value and isinstance(value[0], HostPort):
            changed[field.name] = tuple(map(change, value))
    return replace(options, **changed)  # type: ignore[arg-type]


_template = cache(bootstrap)
