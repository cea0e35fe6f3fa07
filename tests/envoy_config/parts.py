"""The printed configuration, read back: what Envoy gets, by its parts."""

from __future__ import annotations

from functools import cache
from typing import Any

import betterproto2
import yaml

from extproc.envoy_config import names
from extproc.envoy_config.documents import bootstrap
from extproc.envoy_config.options import EnvoyOptions
from extproc.envoy_config.yaml_text import tree


@cache
def whole(**choices: Any) -> dict[str, Any]:
    """All of it, with the servers' own cluster in it. Nobody changes what is returned."""
    options = EnvoyOptions(**{"serves_cluster": False, **choices})
    found: dict[str, Any] = yaml.safe_load(bootstrap(options))
    return found


def manager(**choices: Any) -> dict[str, Any]:
    listener = whole(**choices)["static_resources"]["listeners"][0]
    found: dict[str, Any] = listener["filter_chains"][0]["filters"][0]["typed_config"]
    return found


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


def clusters(**choices: Any) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in whole(**choices)["static_resources"]["clusters"]}


def plain(message: betterproto2.Message) -> dict[str, Any]:
    """One message as it is printed."""
    return tree(message)
