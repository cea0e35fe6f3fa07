"""The claims, each as a scenario: a fleet, a trace, who is compared, and what must hold."""

from collections.abc import Callable

from bench.result import Section
from bench.simulation.caches import cache_sizes, chats, hot_prefix
from bench.simulation.foretelling import foresight
from bench.simulation.sizes import sizes
from bench.simulation.swaps import swaps
from bench.simulation.waiting import failures, overload, tenants, uneven

SCENARIOS: dict[str, Callable[[float, int], Section]] = {
    "uneven": uneven,
    "chats": chats,
    "caches": cache_sizes,
    "hot": hot_prefix,
    "foresight": foresight,
    "failures": failures,
    "overload": overload,
    "tenants": tenants,
    "sizes": sizes,
    "swaps": swaps,
}
