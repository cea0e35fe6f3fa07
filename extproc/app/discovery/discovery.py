"""Combines every source of endpoints into one fleet."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from extproc.app.discovery.entries import (
    entries_of,
    groups_of,
    kept_as_it_was,
    names_of,
    read_endpoints,
    secret_files,
    service_account_of,
)
from extproc.app.discovery.pool_objects import PoolObjects
from extproc.core.address import Address
from extproc.core.fleet.endpoint import EndpointSpec
from extproc.keeper.model_server import endpoint_name
from extproc.kubernetes.api_server import ApiServer
from extproc.runners.kind import RunnerKind
from extproc.runners.target import EndpointTarget
from extproc.security.reading import Reads
from extproc.security.trust import Trust
from extproc.settings import (
    Access,
    DiscoverySettings,
    EndpointSettings,
    Settings,
    SettingsError,
)
from extproc.settings.pool_section import default_pool, machine_pools, misplaced
from scraper.discovery.discovered_endpoint import DiscoveredEndpoint
from scraper.discovery.dns import SOURCE as DNS
from scraper.discovery.dns import DnsEndpoints
from scraper.discovery.dns_cache import Pace
from scraper.discovery.file import EndpointsFile
from scraper.discovery.kubernetes import ROLE, TIMEOUT_S, KubernetesEndpoints, PodGroup
from scraper.discovery.kubernetes import SOURCE as KUBERNETES
from scraper.discovery.static import StaticEndpoints

if TYPE_CHECKING:
    from scraper.discovery.resolver import Resolver

SETTINGS: Final = "settings"
FILE: Final = "file"
AGENTS: Final = "agents"

AccessT = TypeVar("AccessT", bound=Access)
FoundT = TypeVar("FoundT")

log = logging.getLogger("coxswain.discovery")


class Discovery:
    """Runs the sources that the settings name, and takes in what all of them publish.

    `set_members` receives the endpoints of each source. `on_known` is called once: when every
    source has reported, or `discovery.grace_s` after `start`. After a restart Envoy must not get a
    part of the fleet, because it drops the rest. Agents are waited for if `agents.expected` says
    so, or if there is no other source. `is_reported` says whether an agent reports an address,
    which the picker then does not scrape itself. `on_objects` is called when other objectives and
    splits were written for the pools: see `below`.
    """

    def __init__(
        self,
        settings: Settings,
        set_members: Callable[[str, list[EndpointSpec]], None],
        on_known: Callable[[], None],
        is_reported: Callable[[Address], bool] = lambda _: False,
        on_objects: Callable[[], None] = lambda: None,
    ) -> None:
        """Raises `SettingsError` where an API key is not where the settings say."""
        self._set_members = set_members
        self._on_known = on_known
        self._is_reported = is_reported
        self._on_objects = on_objects
        self._plan = _Plan(settings)
        self._path_prefix = settings.scraper.path_prefix
        self._named: dict[str, dict[Address, DiscoveredEndpoint]] = {}
        self._doubles: dict[str, dict[Address, str]] = {}
        self._silent = self._plan.sources | ({AGENTS} if settings.agents.expected else set())
        if not self._silent:
            self._silent = {AGENTS}
        self._listed = StaticEndpoints(SETTINGS, self.publish)
        self._filed = StaticEndpoints(FILE, self.publish)
        self._file: EndpointsFile | None = None
        self._secrets_of_file: set[Path] = set()
        self._dns: DnsEndpoints | None = None
        self._pods: KubernetesEndpoints | None = None
        self._objects: PoolObjects | None = None
        self._grace: asyncio.TimerHandle | None = None
        self._is_known = False
        self._reads = Reads()

    def start(self) -> None:
        """Start every source. Call it in the event loop."""
        loop = asyncio.get_running_loop()
        self._grace = loop.call_later(self._plan.discovery.grace_s, self._publish_once)
        self._listed.set(self._plan.entries)
        self._start_file()
        self._start_dns()
        self._start_kubernetes()

    async def aclose(self) -> None:
        """Stop every source; the fleet does not change."""
        if self._grace is not None:
            self._grace.cancel()
        for source in (self._file, self._listed, self._filed, self._dns, self._pods, self._objects):
            if source is not None:
                await source.aclose()

    @property
    def secrets(self) -> set[Path]:
        """The files with keys and CAs, whose content is not in any settings."""
        return self._plan.secrets | self._secrets_of_file

    @property
    def problems(self) -> tuple[str, ...]:
        """The problems of the sources, as text; empty without problems."""
        file = self._file.problem if self._file is not None else ""
        dns = self._dns.problems if self._dns is not None else ()
        pods = self._pods.problems if self._pods is not None else ()
        objects = self._objects.problems if self._objects is not None else ()
        return (*self._plan.problems, *([file] if file else ()), *dns, *pods, *objects)

    async def renew(self, settings: Settings) -> tuple[str, ...]:
        """Follow other settings, or the same with other keys and certificates in their files.

        Raises `SettingsError` and `BlockedReadError` before anything is changed. Endpoints in both
        stay as they are. A source keeps its endpoints until it reports again. Returns the settings
        that differ, also if only a key does.
        """
        return await self._follow(await self._reads(_Plan, settings))

    async def refresh(self) -> tuple[str, ...]:
        """Follow the same settings with the current content of their files.

        An endpoint whose key or CA cannot be read stays as it was, with a log line. Returns the
        same as `renew`.
        """
        return await self._follow(await self._reads(self._plan.refreshed))

    async def _follow(self, plan: _Plan) -> tuple[str, ...]:
        before, self._plan = self._plan, plan
        if before.pools_by_default != plan.pools_by_default:
            for source in self._named:
                self._set_source(source)
        self._listed.set(self._plan.entries)
        old, new = before.discovery, self._plan.discovery
        if old.file != new.file:
            if self._file is not None:
                await self._file.aclose()
                self._file = None
            self._start_file()
            if self._file is None:
                self._secrets_of_file = set()
                self._filed.set(())
        elif self._file is not None:
            self._file.doubt()
        if self._dns is not None:
            if _resolving(old) != _resolving(new):
                self._dns.use(*_lookups(new))
            self._dns.set(self._plan.names)
        else:
            self._start_dns()
        if self._pods is not None:
            self._pods.set(self._plan.groups)
            if self._objects is not None:
                self._objects.set(self._plan.pools, self._plan.meant)
        else:
            self._start_kubernetes()
        return before.changed_keys(plan)

    async def rehearse(self, settings: Settings) -> tuple[str, ...]:
        """What `renew` would return, or raise; changes nothing."""
        return self._plan.changed_keys(await self._reads(_Plan, settings))

    def below(self, settings: Settings) -> Settings:
        """These settings with what was written for the pools and they do not have."""
        return settings if self._objects is None else self._objects.below(settings)

    def publish(
        self, source: str, discovered: Sequence[DiscoveredEndpoint], is_complete: bool
    ) -> None:
        """Apply all endpoints of `source`. If it has an address twice, the first entry counts, and
        the others are logged."""
        named: dict[Address, DiscoveredEndpoint] = {}
        doubles: dict[Address, list[DiscoveredEndpoint]] = {}
        for endpoint in discovered:
            address = endpoint.spec.address
            if named.setdefault(address, endpoint) is not endpoint:
                doubles.setdefault(address, [named[address]]).append(endpoint)
        self._log_doubles(source, doubles)
        if named:
            self._named[source] = named
        else:
            self._named.pop(source, None)
        self._set_source(source)
        if is_complete:
            self._silent.discard(source)
            if not self._silent:
                self._publish_once()

    def _set_source(self, source: str) -> None:
        """Publish what a source names. What names no pool is in that of its machine, or in the
        default one."""
        specs = (endpoint.spec for endpoint in self._named.get(source, {}).values())
        self._set_members(
            source,
            [
                replace(spec, pool=pool)
                if not spec.pool and (pool := self._plan.pool_of(spec))
                else spec
                for spec in specs
            ],
        )

    def _log_doubles(
        self, source: str, doubles: Mapping[Address, Sequence[DiscoveredEndpoint]]
    ) -> None:
        """One line when a server is named more than once, and none while that stays."""
        present = {
            address: ", ".join(one.spec.name or one.spec.hostname or str(address) for one in same)
            for address, same in doubles.items()
        }
        for address, names in present.items() - self._doubles.get(source, {}).items():
            log.warning(
                "%s: %s is listed more than once, by %s; the first one is used",
                *(source, address, names),
            )
        self._doubles[source] = present

    def target(self, spec: EndpointSpec) -> EndpointTarget | None:
        """How to scrape a member; None if an agent does it, or only an agent can, and if no source
        has it."""
        if self._is_reported(spec.address):
            return None
        discovered = [
            named[spec.address] for named in self._named.values() if spec.address in named
        ]
        targets = [one.target for one in discovered if one.target is not None]
        if not targets:
            return None
        # Who says TLS is believed, and a key is not shown in the clear to such a server.
        safe = [one for one in targets if one.is_tls] or targets
        with_key = next((one for one in safe if one.api_key is not None), safe[0])
        may_sleep = next((one.may_sleep for one in targets if one.may_sleep is not None), None)
        kinds = (one.kind for one in targets if one.kind is not RunnerKind.AUTO)
        return replace(
            with_key,
            slots=spec.slots,
            may_sleep=may_sleep,
            may_be_off=spec.wake is not None,
            kind=next(kinds, RunnerKind.AUTO),
            path_prefix=self._path_prefix,
        )

    def trusts(self) -> dict[str, Trust]:
        """Whom Envoy must trust for the servers behind TLS, by the names of their profiles."""
        found: dict[str, Trust] = {}
        for named in self._named.values():
            for endpoint in named.values():
                if endpoint.trust is not None:
                    found.setdefault(endpoint.trust.profile, endpoint.trust)
        return found

    def _publish_once(self) -> None:
        if self._grace is not None:
            self._grace.cancel()
        if not self._is_known:
            self._is_known = True
            if self._silent - {AGENTS}:
                log.warning(
                    "publishing an incomplete fleet to Envoy; still unresolved: %s",
                    ", ".join(sorted(self._silent)),
                )
            self._on_known()

    def _start_file(self) -> None:
        path = self._plan.discovery.file
        if path is not None:
            file = Path(path).expanduser()
            self._file = EndpointsFile(
                file,
                lambda content: read_endpoints(
                    content, str(file), self._note_secrets, self._plan.misplaced
                ),
                self._filed.set,
            )
            self._file.start()

    def _note_secrets(self, files: set[Path]) -> None:
        self._secrets_of_file = files

    def _start_dns(self) -> None:
        if self._plan.names:
            self._dns = DnsEndpoints(self.publish, *_lookups(self._plan.discovery))
            self._dns.set(self._plan.names)

    def _start_kubernetes(self) -> None:
        if self._plan.groups and self._plan.account is not None:
            account = self._plan.account
            api = ApiServer(account.url, account.folder, TIMEOUT_S, ROLE)
            self._pods = KubernetesEndpoints(self.publish, api)
            self._pods.set(self._plan.groups)
            if self._plan.discovery.kubernetes_objectives:
                api = ApiServer(account.url, account.folder, TIMEOUT_S, ROLE)
                self._objects = PoolObjects(api, self._on_objects)
                self._objects.set(self._plan.pools, self._plan.meant)


def _lookups(discovery: DiscoverySettings) -> tuple[Resolver, Pace]:
    from scraper.discovery.resolver import Resolver  # noqa: PLC0415  # takes long to load, and few need it

    servers = [Address.parse(server) for server in discovery.nameservers]
    return Resolver(servers), Pace(min_s=discovery.dns_min_s, max_s=discovery.dns_max_s)


def _resolving(discovery: DiscoverySettings) -> object:
    return discovery.nameservers, discovery.dns_min_s, discovery.dns_max_s


def _again(
    read: Callable[[Sequence[AccessT]], list[FoundT]],
    accesses: Sequence[AccessT],
    before: list[FoundT],
) -> tuple[list[FoundT], list[str]]:
    """What is read of these now; of each that cannot be read what was read `before`, and why."""
    try:
        return read(accesses), []
    except SettingsError:
        found, problems = [], []
    for access, known in zip(accesses, before, strict=True):
        try:
            found += read([access])
        except SettingsError as error:
            reason = "; ".join(problem.message for problem in error.problems)
            problems.append(kept_as_it_was(access.address, reason))
            found.append(known)
    return found, problems


class _Plan:
    """What the settings ask of the sources, with the keys read; raises `SettingsError`."""

    def __init__(self, settings: Settings) -> None:
        self._endpoints = settings.endpoints
        self.discovery: DiscoverySettings = settings.discovery
        self._pools = settings.pools
        self._default_pool = default_pool(settings.pools)
        self._machine_pools = {
            f"{endpoint_name(name, '')}.": pool
            for name, pool in machine_pools(settings.machines).items()
        }
        """By what the names of a machine's endpoints begin with."""
        self.entries = entries_of(settings.endpoints)
        self.names = names_of(self.discovery.dns)
        self.groups = groups_of(self.discovery)
        self.account = service_account_of(self.discovery) if self.groups else None
        found: tuple[Access, ...] = (
            *settings.endpoints,
            *self.discovery.dns,
            *self.discovery.kubernetes,
        )
        self.secrets = secret_files(found)
        self.problems: tuple[str, ...] = ()
        """The servers whose key or CA could not be reloaded, and why."""

    def misplaced(self, endpoint: EndpointSettings) -> str:
        """Why an endpoint cannot be where a file puts it; empty if it can."""
        return misplaced(endpoint, self._pools, self._default_pool)

    @property
    def pools_by_default(self) -> tuple[str, Mapping[str, str]]:
        """What says the pools of endpoints that name none."""
        return self._default_pool, self._machine_pools

    def pool_of(self, spec: EndpointSpec) -> str:
        """The pool of an endpoint that names none; empty without one."""
        if spec.kept_models and self._machine_pools:
            begins = [one for one in self._machine_pools if spec.name.startswith(one)]
            if begins:
                return self._machine_pools[max(begins, key=len)]
        return self._default_pool

    def changed_keys(self, later: _Plan) -> tuple[str, ...]:
        """The settings that differ in `later`, also if only a key does."""
        differences = {
            "endpoints": self.entries != later.entries,
            "discovery.dns": self.names != later.names,
            "discovery.kubernetes": self.groups != later.groups,
        }
        return tuple(key for key, is_new in differences.items() if is_new)

    def refreshed(self) -> _Plan:
        """The same with reloaded keys and CAs; if one cannot be read, its endpoint stays
        as it was. Blocks on the disk."""
        plan = copy(self)
        plan.entries, of_entries = _again(entries_of, self._endpoints, self.entries)
        plan.names, of_names = _again(names_of, self.discovery.dns, self.names)
        plan.groups, of_groups = self._groups_again()
        plan.problems = (*of_entries, *of_names, *of_groups)
        return plan

    def _groups_again(self) -> tuple[list[PodGroup], list[str]]:
        return _again(
            lambda some: groups_of(self.discovery.model_copy(update={"kubernetes": tuple(some)})),
            self.discovery.kubernetes,
            self.groups,
        )

    @property
    def pools(self) -> list[tuple[str, str]]:
        """The InferencePools that are followed, by namespace and name."""
        return [(group.namespace, group.pool) for group in self.groups if group.pool]

    @property
    def meant(self) -> dict[tuple[str, str], list[str]] | None:
        """The pools that each InferencePool is: those of its entries, else the one of its name.
        None where no pools are configured."""
        if not self._pools:
            return None
        found: dict[tuple[str, str], list[str]] = {}
        for group in self.groups:
            if group.pool:
                of_group = found.setdefault((group.namespace, group.pool), [])
                of_group.append(group.entry.pool or self._default_pool)
        for namespace in {group.namespace for group in self.groups}:
            for name in self._pools:
                found.setdefault((namespace, name), [name])
        return found

    @property
    def sources(self) -> set[str]:
        """Which sources there are, besides agents and operators."""
        return {
            *({SETTINGS} if self.entries else ()),
            *({FILE} if self.discovery.file is not None else ()),
            *({DNS} if self.names else ()),
            *({KUBERNETES} if self.groups else ()),
        }
