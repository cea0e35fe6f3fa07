"""What operators asked for, between the core that leads and the engine, which keeps it while no
member runs.

    this member leads -> load: the core gets what the engine has
    the core says all that it has, then what changes -> sync: the engine gets what differs

What the core says counts; the engine's word only before the core has said all. An engine that was
lost may have forgotten, so its entries are read again when it answers, and now and then.
"""

from collections.abc import Mapping
from typing import Final

from extproc.processes.cluster.engine import Engine, apply_changes

READ_AGAIN_S: Final = 30.0


class IntentStore:
    """Of one member. Entries are JSON texts by address; times are monotonic seconds."""

    def __init__(self) -> None:
        self._stored: dict[str, str] | None = None
        self._wanted: dict[str, str] | None = None
        self._arriving: dict[str, str] | None = None
        self._read_at = 0.0
        self.is_news = False
        """Whether the engine has said what the core does not know yet."""

    def begin(self) -> None:
        """This member was elected: the engine's word counts until the core has spoken."""
        self._stored = self._wanted = self._arriving = None

    @property
    def is_loaded(self) -> bool:
        """Whether the core can get what was kept."""
        return self._wanted is not None or self._stored is not None

    def entries(self) -> Mapping[str, str]:
        """For the core that leads."""
        self.is_news = False
        if self._wanted is not None:
            return self._wanted
        return self._stored or {}

    def said(self, changes: Mapping[str, str | None], *, begins: bool, ends: bool) -> None:
        """The core's word. After it got `entries` it says all that there is, in parts of which the
        first `begins` and the last `ends`; then what changes. What it says before it could get
        entries lacks them, and does not count."""
        if not self.is_loaded:
            return
        if begins:
            self._arriving = {}
        target = self._wanted if self._arriving is None else self._arriving
        if target is None:
            return
        apply_changes(target, changes)
        if ends and self._arriving is not None:
            self._wanted, self._arriving = self._arriving, None

    def lost(self) -> None:
        """The engine did not answer: it may come back without anything."""
        self._stored = None

    async def sync(self, engine: Engine, member_id: str, now: float) -> None:
        """Read what the engine has, where that is not known, and bring it up to date. Raises
        `EngineError`."""
        if self._stored is None or now - self._read_at > READ_AGAIN_S:
            self._stored = dict(await engine.intents())
            self._read_at = now
            self.is_news = self._wanted is None
        if self._wanted is None:
            return
        wanted, stored = dict(self._wanted), self._stored
        changes: dict[str, str | None] = {
            address: text for address, text in wanted.items() if stored.get(address) != text
        }
        changes.update(dict.fromkeys(stored.keys() - wanted.keys()))
        if changes:
            await engine.set_intents(member_id, changes)
            self._stored = wanted
