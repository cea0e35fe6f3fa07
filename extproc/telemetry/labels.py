"""How endpoints are called in labels: by few and stable names, however large the fleet."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from extproc.core.address import Address
    from extproc.core.fleet.membership import Fleet

MAX_ENDPOINTS: Final = 1000
"""More endpoints than this are added up under one label."""
OTHERS: Final = "others"


def endpoint_labels(fleet: Fleet) -> dict[Address, str]:
    """An endpoint's own name where it has one that no other has, else its address. O(fleet)."""
    names = Counter(endpoint.spec.name for endpoint in fleet)
    labels: dict[Address, str] = {}
    for endpoint in fleet:
        name = endpoint.spec.name
        if len(labels) >= MAX_ENDPOINTS:
            labels[endpoint.address] = OTHERS
        else:
            is_own = name and names[name] == 1
            labels[endpoint.address] = name if is_own else str(endpoint.address)
    return labels
