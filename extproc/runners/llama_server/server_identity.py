"""Detects whether another process serves an address.

Pure. A process is recognised by the marker that llama-server draws at random when it
starts; where it shows none (a router, an old build, a pinned marker), by what it runs and
by how often we saw it gone or its task numbers start again.
"""

from extproc.core.observation import AdapterReading, Issue, ModelReading
from extproc.runners.llama_server.arguments import ContextArguments
from extproc.runners.llama_server.parse import ModelEntry, PropsReading
from extproc.runners.llama_server.slots_request import SlotCounts

MAX_ADAPTER_FAILURES = 5
"""The number of scrapes in a row for which unreported adapters are waited for."""


class ServerIdentity:
    """The identity of one server. `hidden` says why it does not show its slots, if so."""

    def __init__(self) -> None:
        self.props: PropsReading | None = None
        self.hidden: Issue | None = None
        self.models: tuple[ModelReading, ...] = ()
        self.adapters: tuple[AdapterReading, ...] | None = None
        self.context: ContextArguments | None = None
        """What its command line says about its context; None if that is not known."""
        self.instance: str | None = None
        self._adapter_failures = 0
        self._restarts = 0
        self._slots: int | None = None
        self._newest_task: int | None = None

    @property
    def is_router(self) -> bool:
        return self.props is not None and self.props.is_router

    @property
    def slots(self) -> int | None:
        """The last reported number of slots; None before the first."""
        if self._slots is not None:
            return self._slots
        return self.props.total_slots if self.props is not None else None

    def update(self, props: PropsReading | None, hidden: Issue | None) -> bool:
        """Apply a response to /props (None without one). Returns whether the process is new."""
        self.props, self.hidden = props, hidden
        if props is not None and props.is_process_unique:
            instance = props.process
        else:
            instance = f"{'' if props is None else props.process}-{self._restarts}"
        is_new = instance != self.instance
        if is_new:
            self.models = ()
            self.adapters = None
            self.context = None
            self._adapter_failures = 0
            self._slots = None
            self._newest_task = None
            self.instance = instance
        return is_new

    def set_models(self, entries: tuple[ModelEntry, ...]) -> None:
        """Apply the names; without any, the one in /props is used."""
        self.models = tuple(ModelReading(name=e.name, aliases=e.aliases) for e in entries)
        if not self.models and self.props is not None and self.props.model is not None:
            self.models = (ModelReading(name=self.props.model),)

    def set_adapters(self, adapters: tuple[AdapterReading, ...] | None) -> None:
        """Apply the adapters, () if it has none; None if it did not respond."""
        self.adapters = adapters
        self._adapter_failures = 0 if adapters is not None else self._adapter_failures + 1

    @property
    def awaits_adapters(self) -> bool:
        """Whether the adapters were asked for, and are to be asked for again at once."""
        return self.adapters is None and 0 < self._adapter_failures < MAX_ADAPTER_FAILURES

    def count(self, counts: SlotCounts) -> bool:
        """Apply a count of slots. Returns whether it indicates another process."""
        is_hinted = self._slots is not None and counts.slots != self._slots
        if counts.newest_task is not None:
            if self._newest_task is not None and counts.newest_task < self._newest_task:
                self._restarts += 1
                is_hinted = True
            self._newest_task = counts.newest_task
        self._slots = counts.slots
        return is_hinted

    def vanish(self) -> None:
        """Nothing listened there, so the next process is another one."""
        if self.instance is not None and self.instance.endswith(f"-{self._restarts}"):
            self._restarts += 1
