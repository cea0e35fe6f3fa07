"""Endpoints by Kubernetes: the pods of an InferencePool, of a label selector, or of a Service.

A pod that is no longer ready, or begins to terminate, is an endpoint no more from that event on: it
gets no new request, and those that run there go on. While the API server does not answer, all stay.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeAlias

from extproc.core.address import AddressError
from extproc.kubernetes.api_server import ApiServer
from extproc.kubernetes.resource_watch import Collection, ResourceWatch
from scraper.discovery.discovered_endpoint import (
    DiscoveredEndpoint,
    EndpointEntry,
    Publish,
    discover,
)
from scraper.discovery.pods import (
    SERVICE_LABEL,
    Place,
    Pod,
    Pool,
    Slice,
    places_of_slices,
    read_pod,
    read_pool,
    read_slice,
)

SOURCE: Final = "kubernetes"
ROLE: Final = "deploy/kubernetes/discovery-role.yaml"
TIMEOUT_S: Final = 10.0
"""Of a call that is no watch."""
PAUSE_S: Final = 0.05
"""Between two publications: a rollout of hundreds of pods is hundreds of events."""

PODS: Final = "/api/v1/namespaces/{}/pods"
POOLS: Final = "/apis/inference.networking.k8s.io/v1/namespaces/{}/inferencepools"
SLICES: Final = "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices"

Sleep: TypeAlias = Callable[[float], Awaitable[None]]

log = logging.getLogger("coxswain.discovery")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGroup:
    """Pods to follow: one of `pool`, `selector` and `service` is not empty. `entry` has all that is
    said of each server but its address. `ports` are numbers, or names with `service`."""

    entry: EndpointEntry
    namespace: str
    pool: str = ""
    selector: str = ""
    service: str = ""
    ports: tuple[str, ...] = ()

    @property
    def query(self) -> tuple[str, ...]:
        """What determines which pods are found, without the servers' settings."""
        return self.namespace, self.pool, self.selector, self.service, *self.ports

    def __str__(self) -> str:
        kind = "pool" if self.pool else "service" if self.service else "selector"
        return f"{kind} {self.pool or self.service or self.selector} in {self.namespace}"


class _Follower(Protocol):
    """Follows one group, and calls back at each change."""

    @property
    def places(self) -> Sequence[Place]: ...
    @property
    def has_answered(self) -> bool: ...
    @property
    def problems(self) -> Sequence[str]: ...
    def stop(self) -> None: ...
    async def aclose(self) -> None: ...


class _SelectedPods:
    """The pods that a label selector matches."""

    def __init__(
        self,
        api: ApiServer,
        namespace: str,
        selector: str,
        ports: Sequence[int],
        on_change: Callable[[], None],
        sleep: Sleep,
    ) -> None:
        self.ports = ports
        collection = Collection(path=PODS.format(namespace), label_selector=selector)
        self._watch: ResourceWatch[Pod] = ResourceWatch(api, collection, read_pod, on_change, sleep)
        self.stop, self.aclose = self._watch.stop, self._watch.aclose
        self._watch.start()

    @property
    def places(self) -> Sequence[Place]:
        return [place for pod in self._watch.found.values() for place in pod.places(self.ports)]

    @property
    def has_answered(self) -> bool:
        return self._watch.has_answered

    @property
    def problems(self) -> Sequence[str]:
        return [self._watch.problem] if self._watch.problem else []


class _PoolPods:
    """The pods of an InferencePool. One that is gone leaves its pods as endpoints: they are still
    followed, and a pool that is deleted and created again costs nobody a request."""

    def __init__(
        self,
        api: ApiServer,
        namespace: str,
        name: str,
        on_change: Callable[[], None],
        sleep: Sleep,
    ) -> None:
        self._api, self._namespace, self._name = api, namespace, name
        self._on_change, self._sleep = on_change, sleep
        self._pool: Pool | None = None
        self._pods: _SelectedPods | None = None
        self._before: Sequence[Place] = ()
        """Those of an earlier selector, until the present one has answered."""
        path, field = POOLS.format(namespace), f"metadata.name={name}"
        self._watch: ResourceWatch[Pool] = ResourceWatch(
            *(api, Collection(path=path, field_selector=field), read_pool, self._follow, sleep)
        )
        self._watch.start()

    @property
    def places(self) -> Sequence[Place]:
        if self._pods is None or not self._pods.has_answered:
            return self._before
        return self._pods.places

    @property
    def has_answered(self) -> bool:
        return self._pods is not None and self._pods.has_answered

    @property
    def problems(self) -> Sequence[str]:
        if self._watch.problem:
            return [self._watch.problem]
        missing = self._watch.has_answered and self._name not in self._watch.found
        of_pods = [] if self._pods is None else self._pods.problems
        return [*(["there is no such InferencePool"] if missing else ()), *of_pods]

    def stop(self) -> None:
        self._watch.stop()
        if self._pods is not None:
            self._pods.stop()

    async def aclose(self) -> None:
        await self._watch.aclose()
        if self._pods is not None:
            await self._pods.aclose()

    def _follow(self) -> None:
        pool = self._watch.found.get(self._name)
        if pool is None:
            log.warning(
                "kubernetes: there is no InferencePool %s in %s", self._name, self._namespace
            )
            return
        before, self._pool = self._pool, pool
        if self._pods is not None and before is not None and before.selector == pool.selector:
            self._pods.ports = pool.ports
        else:
            self._before = self.places
            if self._pods is not None:
                self._pods.stop()
            self._pods = _SelectedPods(
                *(self._api, self._namespace, pool.selector, pool.ports),
                *(self._on_change, self._sleep),
            )
        self._on_change()


class _ServicePods:
    """The pods behind a Service, by its EndpointSlices."""

    def __init__(
        self,
        api: ApiServer,
        namespace: str,
        name: str,
        ports: Sequence[str],
        on_change: Callable[[], None],
        sleep: Sleep,
    ) -> None:
        self._ports = ports
        self._on_change = on_change
        self.places: Sequence[Place] = ()
        self._problem = ""
        path, label = SLICES.format(namespace), f"{SERVICE_LABEL}={name}"
        self._watch: ResourceWatch[Slice] = ResourceWatch(
            *(api, Collection(path=path, label_selector=label), read_slice, self._settle, sleep)
        )
        self.stop, self.aclose = self._watch.stop, self._watch.aclose
        self._watch.start()

    @property
    def has_answered(self) -> bool:
        return self._watch.has_answered

    @property
    def problems(self) -> Sequence[str]:
        return [each for each in (self._watch.problem, self._problem) if each]

    def _settle(self) -> None:
        try:
            self.places = places_of_slices(list(self._watch.found.values()), self._ports)
            self._problem = ""
        except ValueError as error:
            self._problem = str(error)
        self._on_change()


class KubernetesEndpoints:
    """Follows groups of pods. Belongs to one event loop; end it with `aclose`."""

    def __init__(self, publish: Publish, api: ApiServer, sleep: Sleep = asyncio.sleep) -> None:
        self._publish = publish
        self._api = api
        self._sleep = sleep
        self._groups: dict[tuple[str, ...], PodGroup] = {}
        self._followers: dict[tuple[str, ...], _Follower] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._is_due = False
        self._counts: dict[tuple[str, ...], int] = {}

    @property
    def problems(self) -> tuple[str, ...]:
        """The groups that cannot be followed, and why, as text."""
        return tuple(
            f"kubernetes: {self._groups[query]}: {problem}; "
            f"keeping its {len(follower.places)} endpoints"
            for query, follower in self._followers.items()
            for problem in follower.problems
        )

    def set(self, groups: Sequence[PodGroup]) -> None:
        """Follow these from now on; a group that is followed already keeps its endpoints."""
        wanted: dict[tuple[str, ...], PodGroup] = {}
        for group in groups:
            wanted.setdefault(group.query, group)
        for query in self._followers.keys() - wanted.keys():
            self._followers.pop(query).stop()
        self._groups = wanted
        for query, group in wanted.items():
            if query not in self._followers:
                self._followers[query] = self._follow(group)
        self._publish_all()

    async def aclose(self) -> None:
        """Stop all; published endpoints stay."""
        if self._timer is not None:
            self._timer.cancel()
        for follower in self._followers.values():
            await follower.aclose()
        await self._api.aclose()

    def _follow(self, group: PodGroup) -> _Follower:
        api, sleep, namespace = self._api, self._sleep, group.namespace
        if group.pool:
            return _PoolPods(api, namespace, group.pool, self._changed, sleep)
        if group.service:
            return _ServicePods(api, namespace, group.service, group.ports, self._changed, sleep)
        ports = [int(port) for port in group.ports]
        return _SelectedPods(api, namespace, group.selector, ports, self._changed, sleep)

    def _changed(self) -> None:
        """Publish at once, and what changes within the pause after it."""
        if self._timer is not None:
            self._is_due = True
            return
        self._publish_all()
        self._timer = asyncio.get_running_loop().call_later(PAUSE_S, self._pause_over)

    def _pause_over(self) -> None:
        self._timer = None
        if self._is_due:
            self._is_due = False
            self._changed()

    def _publish_all(self) -> None:
        discovered: list[DiscoveredEndpoint] = []
        for query, follower in self._followers.items():
            found = _discover(self._groups[query].entry, follower.places)
            if follower.has_answered and self._counts.get(query) != len(found):
                self._counts[query] = len(found)
                log.info("kubernetes: %s has %d endpoints", self._groups[query], len(found))
            discovered += found
        is_complete = all(follower.has_answered for follower in self._followers.values())
        self._publish(SOURCE, discovered, is_complete)


def _discover(entry: EndpointEntry, places: Sequence[Place]) -> list[DiscoveredEndpoint]:
    """The endpoints at these places, each with the name of its pod."""
    ports = Counter(place.pod for place in places)
    found = []
    for place in sorted(places):
        name = f"{place.pod}:{place.port}" if ports[place.pod] > 1 and place.pod else place.pod
        try:
            found.append(
                discover(replace(entry, host=place.ip, port=place.port, name=name), place.ip)
            )
        except AddressError as error:
            log.warning("kubernetes: %s: %s", name, error)
    return found
