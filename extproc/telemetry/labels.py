"""The label values of endpoints: stable, and bounded in number."""

from collections import Counter
from typing import Final

from extproc.core.address import Address
from extproc.core.fleet.membership import Fleet

MAX_ENDPOINTS: Final = 1000
"""Further endpoints are summed up under one label value."""
OTHERS: Final = "others"


def endpoint_labels(fleet: Fleet) -> dict[Address, str]:
    """An endpoint's name if it is unique, else its address. O(fleet)."""
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
