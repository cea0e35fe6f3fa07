"""The paths of one API: which of them take a slot, and which are open to clients."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from extproc.core.request import Kind
from extproc.security.path_rule import PathRule


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """A set of paths that a server has all of, or none. An endpoint says which APIs its server has
    (`Observation.apis`); a request goes only to those that have the API of its path.

    `name` is empty for the one that all servers have. A POST to one of `slot_paths` uses a slot
    while it runs; all other requests need none. A POST to one of `counting_paths` belongs to a
    model, which its body names; if it `needs_loaded`, only servers that have it loaded get it, so
    that no other one loads it. `other_paths` are open besides; `closed_paths` are closed on
    purpose, unless the settings open them, and all that no table has is unknown. `lenient_paths`
    go to any server while none has this API: another kind has them too.
    `has_plain_errors` says that its clients read an error as `{"error": "text"}`.
    """

    name: str = ""
    slot_paths: Mapping[str, Kind] = field(default_factory=dict)
    counting_paths: frozenset[str] = frozenset()
    other_paths: tuple[PathRule, ...] = ()
    closed_paths: tuple[PathRule, ...] = ()
    needs_loaded: bool = True
    lenient_paths: frozenset[str] = frozenset()
    has_plain_errors: bool = False

    @property
    def open_paths(self) -> Iterator[PathRule]:
        """All that is open unless the settings say otherwise."""
        yield from (PathRule(path, "POST") for path in self.slot_paths)
        yield from (PathRule(path, "POST") for path in sorted(self.counting_paths))
        yield from self.other_paths


def kinds(generating: Iterable[str] = (), embedding: Iterable[str] = ()) -> dict[str, Kind]:
    """The `slot_paths` of an API."""
    return dict.fromkeys(generating, Kind.GENERATION) | dict.fromkeys(embedding, Kind.EMBEDDING)


def rules(*texts: str) -> tuple[PathRule, ...]:
    """Rules as people write them."""
    return tuple(map(PathRule.parse, texts))
