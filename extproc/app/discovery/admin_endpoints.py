"""The endpoints that operators add by the admin API, with keys that they only name.

An operator who adds an endpoint can send its key to any address, and the picker can read more
keys than the operator. So only keys that the settings list for this can be named.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from extproc.admin.dependencies import ADDED, NewEndpoint, NewEndpointError
from extproc.app.discovery.entries import entries_of, kept_as_it_was, secret_files
from extproc.core.address import Address, AddressError
from extproc.security.reading import BlockedReadError, Reads
from extproc.settings import AdminSettings, EndpointSettings, SettingsError
from extproc.settings.problems import describe
from scraper.discovery.discovered_endpoint import DiscoveredEndpoint, discover


class AddedEndpoints:
    """Belongs to one event loop. They last until the picker ends or an operator removes them."""

    def __init__(
        self,
        publish: Callable[[str, Sequence[DiscoveredEndpoint], bool], None],
        rules: Callable[[], AdminSettings],
    ) -> None:
        self._publish = publish
        self._rules = rules
        self._arrivals: dict[Address, NewEndpoint] = {}
        self._sections: dict[Address, EndpointSettings] = {}
        self._discovered: dict[Address, DiscoveredEndpoint] = {}
        self._problems: dict[Address, str] = {}
        self._reads = Reads()

    def present(self) -> tuple[NewEndpoint, ...]:
        """What operators added and did not remove."""
        return tuple(self._arrivals.values())

    @property
    def problems(self) -> tuple[str, ...]:
        """The servers whose key or CA could not be reloaded, and why."""
        return tuple(self._problems.values())

    @property
    def secrets(self) -> set[Path]:
        """The files with their keys and CAs."""
        return secret_files(self._sections.values())

    async def add(self, arrival: NewEndpoint) -> None:
        """Add it; raises `NewEndpointError` and changes nothing."""
        section = _section(arrival)
        try:
            await self._reads(_check_key, section, self._rules())
        except BlockedReadError as error:
            raise NewEndpointError(f"api_key_file: {error}") from None
        discovered = await self._read(section, arrival.address)
        self._arrivals[arrival.address] = arrival
        self._sections[arrival.address] = section
        self._discovered[arrival.address] = discovered
        self._publish_all()

    def remove(self, address: Address) -> None:
        """Remove it; an unknown one is no error."""
        self._arrivals.pop(address, None)
        self._sections.pop(address, None)
        self._problems.pop(address, None)
        if self._discovered.pop(address, None) is not None:
            self._publish_all()

    async def refresh(self) -> None:
        """Reload their keys and CAs; what cannot be read stays unchanged."""
        for address, section in list(self._sections.items()):
            discovered, problem = None, ""
            try:
                discovered = await self._read(section, address)
            except NewEndpointError as error:
                problem = str(error)
            if self._sections.get(address) is not section:
                continue  # it was removed meanwhile
            if discovered is None:
                self._problems[address] = kept_as_it_was(address, problem)
            else:
                self._problems.pop(address, None)
                self._discovered[address] = discovered
        self._publish_all()

    async def _read(self, section: EndpointSettings, address: Address) -> DiscoveredEndpoint:
        try:
            (entry,) = await self._reads(entries_of, [section])
        except SettingsError as error:
            raise NewEndpointError("; ".join(p.message for p in error.problems)) from None
        except BlockedReadError as error:
            raise NewEndpointError(f"its key or CA: {error}") from None
        try:
            return discover(entry, address.host)
        except AddressError as error:
            raise NewEndpointError(str(error)) from None

    def _publish_all(self) -> None:
        self._publish(ADDED, tuple(self._discovered.values()), True)


def plain_of(arrival: NewEndpoint) -> dict[str, object]:
    """An added endpoint as plain values, for another process."""
    plain = {each.name: getattr(arrival, each.name) for each in fields(arrival)}
    return {**plain, "address": str(arrival.address)}


def arrival_of(plain: Mapping[str, Any]) -> NewEndpoint:
    """The endpoint of `plain_of`. Raises `TypeError` and `AddressError` for what is none."""
    return NewEndpoint(**{**plain, "address": Address.parse(plain["address"])})


def _check_key(section: EndpointSettings, rules: AdminSettings) -> None:
    """Raise `NewEndpointError` for a key that operators may not use. Blocks on the disk."""
    if section.api_key_env is not None and section.api_key_env not in rules.api_key_envs:
        raise NewEndpointError(
            "api_key_env: operators may not use this variable; add it to the setting "
            "admin.api_key_envs"
        )
    if section.api_key_file is None:
        return
    folder = rules.api_key_folder
    if folder is None or not _is_within(section.api_key_file, folder):
        raise NewEndpointError(
            "api_key_file: operators may only use files in the folder of the setting "
            "admin.api_key_folder"
        )


def _is_within(file: str, folder: str) -> bool:
    """Whether it lies in there, whatever dots and links its path has."""
    inside = Path(folder).expanduser().resolve()
    return Path(file).expanduser().resolve().is_relative_to(inside)


def _section(arrival: NewEndpoint) -> EndpointSettings:
    host = f"[{arrival.host}]" if ":" in arrival.host else arrival.host
    scheme = "https://" if arrival.is_tls else ""
    try:
        return EndpointSettings(
            address=f"{scheme}{host}:{arrival.address.port}",
            name=arrival.name or None,
            slots=arrival.slots or None,
            ca_file=arrival.ca_file or None,
            server_name=arrival.server_name or None,
            api_key_env=arrival.api_key_env or None,
            api_key_file=arrival.api_key_file or None,
            inject_key=arrival.inject_key,
            may_sleep=arrival.may_sleep,
            in_pool=arrival.pool or None,
            kind=arrival.kind or "auto",  # type: ignore[arg-type]  # checked as it is made
        )
    except ValidationError as error:
        details = error.errors(include_url=False)
        raise NewEndpointError("; ".join(map(describe, details))) from None
