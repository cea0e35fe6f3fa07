"""Members of a cluster as an engine keeps them: JSON."""

from collections.abc import Mapping
from typing import Any

from extproc.cluster.engine import Member


def member_of(found: Mapping[str, Any]) -> Member:
    """Read what `dataclasses.asdict` made of a member; fields that are not known are left out.
    Raises `KeyError` and `TypeError` for what is none."""
    return Member(
        id=str(found["id"]),
        name=str(found["name"]),
        address=str(found["address"]),
        version=str(found.get("version", "")),
        fronts=tuple(map(str, found.get("fronts", ()))),
        follows=bool(found.get("follows")),
    )
