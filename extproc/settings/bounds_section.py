"""Bounds of objectives, models and paths."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from extproc.core.bounds import BoundKind, BoundLimits, BoundOptions
from extproc.runners.apis import SLOT_PATHS
from extproc.settings.section import Section
from extproc.settings.values import MAP, Count, PositiveCount, Reloadable, Seconds


class BoundSettings(Section):
    """How many requests of an objective or a pool, for a model or to a path may run and wait at
    once. Further ones are queued even if slots are free, and beyond `queued` rejected with 429
    `bound-reached`."""

    running: PositiveCount | None = None
    """The highest number of requests at once that have a slot, until their server has ended
    them."""
    queued: Count | None = None
    """The highest number of queued requests; 0 queues none."""
    queue_timeout_s: Seconds | None = None
    """The longest time in the queue in seconds, at most queue.timeout_s; then 504."""
    order: Literal["fifo", "lifo"] | None = None
    """Which queued request of a flow is next: `fifo` is the order of the queue, `lifo` the newest
    first, for people who press reload."""

    @model_validator(mode="after")
    def _check_any(self) -> Self:
        if all(value is None for value in self.model_dump().values()):
            raise PydanticCustomError(
                "bound", "give at least one of running, queued, queue_timeout_s and order"
            )
        return self

    def for_core(self) -> BoundLimits:
        """The same for the core."""
        return BoundLimits(
            running=self.running,
            queued=self.queued,
            queue_timeout_s=self.queue_timeout_s,
            is_last_come=self.order == "lifo",
        )


class BoundsSettings(Section):
    """Bounds of the requests that take a slot. If several apply, all of them hold."""

    objectives: Annotated[Reloadable[dict[str, BoundSettings]], MAP] = Field(default={})
    """The bounds of objectives by name, each with the keys below."""
    models: Annotated[Reloadable[dict[str, BoundSettings]], MAP] = Field(default={})
    """The bounds of models by any of their names, or by a name in `models`."""
    paths: Annotated[Reloadable[dict[str, BoundSettings]], MAP] = Field(default={})
    """The bounds of paths that take a slot, such as `/v1/embeddings`, with or without `/v1`."""

    @model_validator(mode="after")
    def _check_paths(self) -> Self:
        taken: dict[str, str] = {}
        for path in self.paths:
            spelled = spellings(path)
            if not spelled:
                raise PydanticCustomError(
                    "path", "{path} takes no slot, so it has no bound", {"path": repr(path[:80])}
                )
            for each in spelled:
                if each in taken:
                    raise PydanticCustomError(
                        "together",
                        "{one} and {other} are the same path; remove one",
                        {"one": taken[each], "other": path},
                    )
                taken[each] = path
        return self

    def for_core(self, pools: Mapping[str, BoundSettings]) -> BoundOptions:
        """The same for the core, with the bounds of pools."""
        named: dict[BoundKind, Mapping[str, BoundSettings]] = {
            BoundKind.OBJECTIVE: self.objectives,
            BoundKind.MODEL: self.models,
            BoundKind.PATH: self.paths,
            BoundKind.POOL: pools,
        }
        return BoundOptions(
            limits={
                (kind, name): bound.for_core()
                for kind, part in named.items()
                for name, bound in part.items()
            },
            paths={each: path for path in self.paths for each in spellings(path)},
        )


def spellings(path: str) -> tuple[str, ...]:
    """The ways in which servers know the path, with and without `/v1`; none if it takes no slot."""
    other = path.removeprefix("/v1") if path.startswith("/v1/") else f"/v1{path}"
    return tuple(each for each in (path, other) if each in SLOT_PATHS)
