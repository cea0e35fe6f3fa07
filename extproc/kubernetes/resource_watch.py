"""Follows the objects of one collection: lists them, then watches what changes.

A watch that ends in good order goes on where it ended, at the version that its last bookmark or
event has. After anything else all objects are listed again: what was missed cannot stay unseen.
What is known stays known as long as no list says otherwise, so a lost API server changes nothing.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from extproc.kubernetes.api_server import ApiServer, ApiServerError, ExpiredError, Object

PAGE_OBJECTS: Final = 50
"""Of a list at once: parsing a page holds up the event loop for some milliseconds."""
WATCH_S: Final = 60
"""How long one watch lasts. The next one is a small request, and shows that the server lives."""
SILENCE_S: Final = 75.0
"""How long a watch may be silent: longer than it lasts."""
FIRST_BACKOFF_S: Final = 0.25
MAX_BACKOFF_S: Final = 30.0
STEADY_S: Final = 10.0
"""A watch that has lasted for so long, or has said anything, was none that fails at once."""

ValueT = TypeVar("ValueT")

log = logging.getLogger("coxswain.discovery")


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """The objects below `path` whose labels or fields match; an empty selector matches all."""

    path: str
    label_selector: str = ""
    field_selector: str = ""

    def __str__(self) -> str:
        kind = self.path.rpartition("/")[2]
        return f"{kind} {self.label_selector or self.field_selector}".rstrip()

    @property
    def parameters(self) -> dict[str, str]:
        """Those of each request."""
        given = {"labelSelector": self.label_selector, "fieldSelector": self.field_selector}
        return {key: text for key, text in given.items() if text}


class ResourceWatch(Generic[ValueT]):
    """Keeps `read(object)` of each object of a collection, by its name, from `start` to `aclose`.

    `read` returns None for an object that does not count. `on_change` is called after each change
    of what is kept, and when the first list is complete. Belongs to one event loop.
    """

    def __init__(
        self,
        api: ApiServer,
        collection: Collection,
        read: Callable[[Object], ValueT | None],
        on_change: Callable[[], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.found: dict[str, ValueT] = {}
        self.has_answered = False
        """Whether it was listed once."""
        self.problem = ""
        """Why it cannot be listed or watched; empty while it can."""
        self.name = str(collection)
        self._api = api
        self._collection = collection
        self._read = read
        self._on_change = on_change
        self._sleep = sleep
        self._failures = 0
        self._version = ""
        """The `resourceVersion` up to which everything is known; empty if a list is due."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"watch {self._collection}")

    def stop(self) -> None:
        """Stop soon; what is known stays."""
        if self._task is not None:
            self._task.cancel()

    async def aclose(self) -> None:
        """Stop, and wait for it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        while True:
            try:
                if not self._version:
                    await self._list()
                async with self._api.watch(
                    self._collection.path, self._parameters(), SILENCE_S
                ) as events:
                    self._say_works()
                    is_whole = await self._take_all(events)
                if is_whole:
                    continue
            except ExpiredError:
                pass  # the list will show what was missed
            except ApiServerError as error:
                self._say(str(error))
            except Exception:  # a bug; another object may work
                log.exception("kubernetes: %s cannot be followed", self._collection)
                self._say("an internal error, see the log")
            await self._pause()

    async def _pause(self) -> None:
        """Wait before all are listed again, for longer with each failure in a row."""
        self._version = ""
        pause_s = min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** min(self._failures, 10))
        self._failures += 1
        await self._sleep(pause_s * random.uniform(0.5, 1.0))  # no secret

    def _say(self, problem: str) -> None:
        if not self.problem:
            kept = f"; keeping its previous {len(self.found)}" if self.has_answered else ""
            log.warning("kubernetes: %s: %s%s", self._collection, problem, kept)
        self.problem = problem

    def _say_works(self) -> None:
        if self.problem:
            self.problem = ""
            log.info("kubernetes: %s: the API server answers again", self._collection)

    async def _list(self) -> None:
        found: dict[str, ValueT] = {}
        parameters = {**self._collection.parameters, "limit": str(PAGE_OBJECTS)}
        while True:
            page = await self._api.list_page(self._collection.path, parameters)
            for each in page.get("items") or ():
                name, value = _metadata(each, "name"), self._read(each)
                if value is not None:
                    found[name] = value
            token = page["metadata"].get("continue")
            if not token:
                break
            parameters["continue"] = str(token)
        self._version = _metadata(page, "resourceVersion")
        if found != self.found or not self.has_answered:
            self.found = found
            self.has_answered = True
            self._on_change()

    def _parameters(self) -> dict[str, str]:
        return {
            **self._collection.parameters,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(WATCH_S),
        }

    async def _take_all(self, events: AsyncIterator[Object]) -> bool:
        """Take events until the watch ends; returns whether it ended in good order. One that is cut
        and listed again has lost nothing, so it is no problem yet."""
        clock = asyncio.get_running_loop().time
        began, is_cut, has_said = clock(), False, False
        try:
            async for event in events:
                self._take(event)
                has_said = True
        except ExpiredError:
            raise
        except ApiServerError as error:
            log.debug("kubernetes: %s: the watch was cut: %s", self._collection, error)
            is_cut = True
        is_steady = has_said or clock() - began >= STEADY_S
        if is_steady:
            self._failures = 0
        return is_steady and not is_cut

    def _take(self, event: Object) -> None:
        thing, kind = event["object"], event.get("type")
        self._version = _metadata(thing, "resourceVersion")
        if kind == "BOOKMARK":
            return
        name = _metadata(thing, "name")
        value = None if kind == "DELETED" else self._read(thing)
        if value is None:
            if self.found.pop(name, None) is not None:
                self._on_change()
        elif self.found.get(name) != value:
            self.found[name] = value
            self._on_change()


def _metadata(thing: object, key: str) -> str:
    """Raises `ApiServerError` for something that is no object."""
    metadata = thing.get("metadata") if isinstance(thing, dict) else None
    found = metadata.get(key) if isinstance(metadata, dict) else None
    if not isinstance(found, str) or not found:
        raise ApiServerError(f"the API server sent an object without {key}")
    return found
