"""Envoy's configuration as the product prints it, printed once for all that differ in ports.

To print one takes longer than many an end-to-end test, and each stack has ports of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache
from typing import Any

from extproc.envoy_config.documents import bootstrap
from extproc.envoy_config.options import EnvoyOptions, HostPort
from extproc.settings.envoy_section import EnvoySettings

PLAIN = EnvoyOptions()
PLACES = ("listen", "admin", "metrics", "tracing")
"""The keys of `envoy` in the settings that are printed as they are."""
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


def options_with(options: EnvoyOptions = PLAIN, **choices: Any) -> EnvoyOptions:
    """Options with other choices: their own fields, or keys of `envoy` in the settings."""
    own = {field.name for field in fields(EnvoyOptions)}
    section = {key: value for key, value in choices.items() if key not in own}
    return replace(
        options,
        envoy=EnvoySettings(**{**options.envoy.model_dump(), **section}),
        **{key: value for key, value in choices.items() if key in own},
    )


def _with_places(options: EnvoyOptions, change: Callable[[HostPort], HostPort]) -> EnvoyOptions:
    def in_text(place: str) -> str:
        other = change(HostPort.parse(place))
        return f"{place.rpartition(':')[0]}:{other.port}"

    changed: dict[str, Any] = {}
    for field in fields(options):
        value = getattr(options, field.name)
        if isinstance(value, HostPort):
            changed[field.name] = change(value)
        elif isinstance(value, tuple) and value and isinstance(value[0], HostPort):
            changed[field.name] = tuple(map(change, value))
    for key in PLACES:
        if (place := getattr(options.envoy, key)) is not None:
            changed[key] = in_text(place)
    changed["other_pickers"] = tuple(map(in_text, options.envoy.other_pickers))
    return options_with(options, **changed)


_template = cache(bootstrap)
