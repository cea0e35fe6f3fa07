"""What is fuzzed: modules with a function `check` that takes any bytes and raises for a finding."""

from collections.abc import Callable
from importlib import import_module
from typing import Final, cast

TARGETS: Final = {
    "body": "requests' bodies, and what is written behind them",
    "headers": "headers, attributes and metadata of requests and answers",
    "exchange": "whole exchanges, as an Envoy or another gateway may send them",
    "scraper": "llama-server's answers to /slots, /props, /v1/models and /lora-adapters",
    "settings": "settings files, endpoints files, keys files and the environment",
    "agents": "agents' messages, up to the core's books",
    "admin": "operators' calls",
    "keepers": "keepers' messages, up to the decision about models",
    "fronts": "what fronts and cores say to each other while processes die",
    "usage": "responses, records and scrapes in the count of usage",
    "http2": "connections to the data plane's port, as bytes and as frames",
}


def check_of(name: str) -> Callable[[bytes], None]:
    """The target's check; imports what it tests."""
    module = import_module(f"{__name__}.{name}")
    return cast("Callable[[bytes], None]", module.check)
