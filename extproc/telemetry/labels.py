"""The label values of endpoints: stable, and bounded in number."""

from typing import Final

from extproc.core.address import Address
from extproc.core.fleet.membership import Fleet

MAX_ENDPOINTS: Final = 1000
"""Further endpoints are summed up under one label value."""
OTHERS: Final = "others"


def endpoint_labels(fleet: Fleet) -> dict[Address, str]:
    """An endpoint's name if it is unique, else its address. O(fleet)."""
    labels: dict[Address, str] = {}
    for endpoint in fleet:
        address = endpoint.address
        labels[address] = OTHERS if len(labels) >= MAX_ENDPOINTS else fleet.name_of(address)
    return labels
