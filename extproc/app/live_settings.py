"""The settings in effect, and which of them a reload can change.

A file that was cut while it was written is valid YAML as often as not. So a reload removes no
list of servers that the new settings do not mention.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import reduce
from operator import getitem
from typing import Any, Final

from pydantic import ValidationError

from extproc.admin.dependencies import Reloaded, ReloadError
from extproc.security.reading import BlockedReadError, Reads
from extproc.settings import Settings, SettingsError
from extproc.settings.keys import every_key, reloadable_keys
from extproc.settings.problems import dotted

RELOADABLE: Final = frozenset(map(dotted, reloadable_keys(Settings)))
"""The settings that a reload applies. All others are read only at the start."""

log = logging.getLogger("coxswain.settings")


class LiveSettings:
    """Holds the settings in force. `load` reads them again and may block.

    `apply` applies settings and returns those that differ: the files that they name may have
    changed although they did not. `rehearse` returns the same and changes nothing, `reread`
    applies only those files. Secrets are not included: settings only name the files and variables
    that hold them.
    """

    def __init__(
        self,
        settings: Settings,
        apply: Callable[[Settings], Awaitable[Sequence[str]]],
        rehearse: Callable[[Settings], Awaitable[Sequence[str]]],
        reread: Callable[[], Awaitable[Sequence[str]]],
        load: Callable[[], Settings] | None = None,
        file: str = "",
    ) -> None:
        self.present = settings
        self.file = file
        self._apply = apply
        self._rehearse = rehearse
        self._reread = reread
        self._load = load
        self._lock = asyncio.Lock()
        self._reads = Reads()
        self.on_reloaded: Callable[[], None] = _nothing
        """Called when other settings were accepted, or the same again."""
        self.on_reload_ended: Callable[[str, str], None] = _ignored
        """Called with what came of each reload: `reloaded` or `reload-rejected`, and a text."""

    def describe(self) -> Mapping[str, object]:
        return self.present.model_dump(mode="json")

    async def reload(self, is_dry_run: bool) -> Reloaded:
        """Read again and apply what is in `RELOADABLE`; raises `ReloadError` and changes nothing.

        Keys and certificates are read again in any case, also for a dry run.
        """
        try:
            reloaded = await self._reload(is_dry_run)
        except ReloadError as error:
            if not is_dry_run:
                self.on_reload_ended("reload-rejected", f"the settings are unchanged: {error}")
            raise
        if not is_dry_run:
            self.on_reload_ended("reloaded", _reported(reloaded))
        return reloaded

    async def _reload(self, is_dry_run: bool) -> Reloaded:
        if self._load is None:
            raise ReloadError("this picker was started without settings that can be reloaded")
        async with self._lock:
            try:
                fresh = await self._reads(self._load)
                _check_said(self.present, fresh)
                changed = _changed(self.present, fresh)
                applied = tuple(key for key in changed if key in RELOADABLE)
                rest = tuple(key for key in changed if key not in RELOADABLE)
                merged = _merged(self.present, fresh, applied, rest)
                news = await (self._rehearse if is_dry_run else self._apply)(merged)
            except SettingsError as error:
                raise ReloadError(str(error)) from None
            except BlockedReadError as error:
                raise ReloadError(f"the settings, or a file that they name: {error}") from None
            applied = tuple(sorted({*applied, *news}))
            if not is_dry_run:
                self.present = merged
                self.on_reloaded()
                if applied:
                    log.info("settings reloaded: %s", ", ".join(applied))
            return Reloaded(applied=applied, needs_restart=rest)

    async def follow(self, log: logging.Logger) -> None:
        """Reload, as a SIGHUP asks for, and log what does not take effect."""
        try:
            reloaded = await self.reload(is_dry_run=False)
        except ReloadError as error:
            log.error("the settings are unchanged: %s", error)
            return
        if reloaded.needs_restart:
            log.warning("settings that need a restart: %s", ", ".join(reloaded.needs_restart))

    async def refresh(self) -> None:
        """Read the keys and certificates again that the settings name."""
        async with self._lock:
            news = await self._reread()
        if news:
            log.info("reloaded keys or certificates: %s", ", ".join(news))


def _check_said(old: Settings, new: Settings) -> None:
    """Raise `ReloadError` where all servers would go without a word: the file was cut."""
    for key, before, after in (
        ("endpoints", old, new),
        ("discovery.dns", old.discovery, new.discovery),
        ("discovery.kubernetes", old.discovery, new.discovery),
    ):
        name = key.rpartition(".")[2]
        if getattr(before, name) and name not in after.model_fields_set:
            count = len(getattr(before, name))
            raise ReloadError(
                f"{key} is missing, which would remove {count}; if that is meant, write `{key}: []`"
            )


def _reported(reloaded: Reloaded) -> str:
    parts = [f"changed: {', '.join(reloaded.applied)}"] if reloaded.applied else []
    if reloaded.needs_restart:
        parts.append(f"need a restart: {', '.join(reloaded.needs_restart)}")
    return f"the settings were reloaded; {'; '.join(parts) or 'none has changed'}"


def _nothing() -> None:
    """The default of a callback."""


def _ignored(_kind: str, _text: str) -> None:
    """The default of a callback."""


def _changed(old: Settings, new: Settings) -> list[str]:
    before, after = old.model_dump(), new.model_dump()
    return sorted(
        dotted(path)
        for path in every_key(Settings)
        if _value_at(before, path) != _value_at(after, path)
    )


def _merged(old: Settings, new: Settings, keys: tuple[str, ...], rest: tuple[str, ...]) -> Settings:
    """The old settings with these keys from the new ones. Raises `ReloadError` if that is valid
    only with the `rest`, which needs a restart."""
    values, fresh = old.model_dump(), new.model_dump()
    for key in keys:
        path = key.split(".")
        _value_at(values, path[:-1])[path[-1]] = _value_at(fresh, path)
    try:
        return Settings(**values)
    except ValidationError:
        raise ReloadError(
            f"{', '.join(keys)} cannot change without {', '.join(rest)}: restart the picker"
        ) from None


def _value_at(values: dict[str, Any], path: Sequence[str]) -> Any:
    return reduce(getitem, path, values)
