"""The printed configuration, read back: what Envoy gets, by its parts.

Each one is printed and read once; nobody changes what is returned. tests/scheduling.py keeps the
tests of this folder together for that.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import betterproto2

from extproc.envoy_config import documents, names
from extproc.envoy_config import snippet as snippets
from extproc.envoy_config.options import EnvoyOptions
from extproc.envoy_config.yaml_text import tree
from tests.fakes.envoy_text import options_with
from tests.fakes.quick_yaml import load

bootstrap = cache(documents.bootstrap)
snippet = cache(snippets.snippet)


@cache
def read(text: str) -> dict[str, Any]:
    """A printed document."""
    found: dict[str, Any] = load(text)
    return found


def document(options: EnvoyOptions) -> dict[str, Any]:
    """All that Envoy gets."""
    return read(bootstrap(options))


def whole(**choices: Any) -> dict[str, Any]:
    """The same, with the servers' own cluster in it."""
    return document(options_with(**{"serves_cluster": False, **choices}))


def manager_in(content: dict[str, Any]) -> dict[str, Any]:
    """The connection manager of a whole configuration."""
    [listener] = content["static_resources"]["listeners"]
    found: dict[str, Any] = listener["filter_chains"][0]["filters"][0]["typed_config"]
    return found


def manager(**choices: Any) -> dict[str, Any]:
    return manager_in(whole(**choices))


def asking_filters(**choices: Any) -> list[dict[str, Any]]:
    """The filters that ask the picker; one, or something is wrong."""
    filters = manager(**choices)["http_filters"]
    return [each for each in filters if each["name"] == names.EXT_PROC_FILTER]


def processor(**choices: Any) -> dict[str, Any]:
    """What the one filter that asks the picker is set to."""
    (found,) = asking_filters(**choices)
    inner: dict[str, Any] = found["typed_config"]["extension_config"]["typed_config"]
    return inner


def routes(**choices: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = manager(**choices)["route_config"]["virtual_hosts"][0]["routes"]
    return found


def clusters_in(content: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Those of a whole configuration by their names."""
    return {one["name"]: one for one in content["static_resources"]["clusters"]}


def clusters(**choices: Any) -> dict[str, dict[str, Any]]:
    return clusters_in(whole(**choices))


def plain(message: betterproto2.Message) -> dict[str, Any]:
    """One message as it is printed."""
    return tree(message)
