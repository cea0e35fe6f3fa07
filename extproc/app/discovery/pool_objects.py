"""InferenceObjectives and InferenceModelRewrites of the InferencePools that discovery follows.

An objective is one by its name, with a criticality by its priority; a rewrite of a model's name is
a split. Both are laid below the settings, which go before them: where there are pools, below those
of the pool that is meant. Their status is left alone: it is for their own controllers to write.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, TypeAlias

from extproc.kubernetes.api_server import ApiServer, Object
from extproc.kubernetes.resource_watch import Collection as Objects
from extproc.kubernetes.resource_watch import ResourceWatch
from extproc.settings import DiscoverySettings, Settings
from extproc.settings.objective_section import ObjectiveSettings

PATH: Final = "/apis/llm-d.ai/v1alpha2/namespaces/{}/{}"

InferencePool: TypeAlias = tuple[str, str]
"""Its namespace and its name."""

log = logging.getLogger("coxswain.discovery")


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenObjective:
    """What an InferenceObjective says."""

    name: str
    pool: str
    priority: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """The splits of an InferenceModelRewrite, by the model's name; `created` sorts by age."""

    name: str
    pool: str
    created: str
    splits: tuple[tuple[str, tuple[tuple[str, float], ...]], ...]


class PoolObjects:
    """Follows both kinds in the namespaces of these pools. Belongs to one event loop."""

    def __init__(self, api: ApiServer, on_change: Callable[[], None]) -> None:
        self._api = api
        self._on_change = on_change
        self._pools: Mapping[InferencePool, Collection[str]] = {}
        self._left_out: set[tuple[str, str, str]] = set()
        """What was logged, by kind, namespace and name."""
        self._objectives: dict[str, ResourceWatch[WrittenObjective]] = {}
        self._rewrites: dict[str, ResourceWatch[Rewrite]] = {}

    @property
    def problems(self) -> tuple[str, ...]:
        """The kinds that cannot be followed, and why, as text."""
        return tuple(
            f"kubernetes: {one.name}: {one.problem}" for one in self._watches if one.problem
        )

    @property
    def _watches(self) -> Iterable[ResourceWatch[Any]]:
        return chain(self._objectives.values(), self._rewrites.values())

    def set(
        self,
        pools: Iterable[InferencePool],
        meant: Mapping[InferencePool, Collection[str]] | None = None,
    ) -> None:
        """Follow those of these pools from now on. `meant` has the pools of the settings that an
        InferencePool is, where there are any; without, what is written is for all endpoints."""
        self._pools = dict.fromkeys(pools, ("",)) if meant is None else meant
        namespaces = {namespace for namespace, _ in self._pools}
        for namespace in self._objectives.keys() - namespaces:
            self._objectives.pop(namespace).stop()
            self._rewrites.pop(namespace).stop()
        for namespace in sorted(namespaces - self._objectives.keys()):
            self._objectives[namespace] = ResourceWatch(
                self._api,
                _collection(namespace, "inferenceobjectives"),
                _objective,
                self._on_change,
            )
            self._rewrites[namespace] = ResourceWatch(
                self._api,
                _collection(namespace, "inferencemodelrewrites"),
                _rewrite,
                self._on_change,
            )
            self._objectives[namespace].start()
            self._rewrites[namespace].start()

    async def aclose(self) -> None:
        """Follow no more; what is known stays."""
        for each in self._watches:
            await each.aclose()
        await self._api.aclose()

    def below(self, settings: Settings) -> Settings:
        """These settings with the objectives and splits that they do not have themselves."""
        if not settings.pools:
            objectives, models = self._written_for("", settings.discovery)
            return settings.model_copy(
                update={
                    "objectives": {**objectives, **settings.objectives},
                    "models": {**models, **settings.models},
                }
            )
        self._log_left_out()
        pools = {}
        for name, pool in settings.pools.items():
            objectives, models = self._written_for(name, settings.discovery)
            pools[name] = pool.above(objectives, {**models, **(pool.models or settings.models)})
        return settings.model_copy(update={"pools": pools})

    def _written_for(
        self, name: str, discovery: DiscoverySettings
    ) -> tuple[dict[str, ObjectiveSettings], dict[str, dict[str, float]]]:
        """The objectives and splits of a pool of the settings; of all, if its name is empty."""
        objectives = {
            one.name: ObjectiveSettings(criticality=_criticality(one.priority, discovery))
            for namespace, watch in self._objectives.items()
            for one in watch.found.values()
            if name in self._pools.get((namespace, one.pool), ())
        }
        rewrites = [
            one
            for namespace, watch in self._rewrites.items()
            for one in watch.found.values()
            if name in self._pools.get((namespace, one.pool), ())
        ]
        models: dict[str, dict[str, float]] = {}
        for rewrite in sorted(rewrites, key=lambda one: one.created):
            for model, targets in rewrite.splits:
                models.setdefault(model, dict(targets))
        return objectives, models

    def _log_left_out(self) -> None:
        """Log each object once whose InferencePool is no pool of the settings."""
        found: set[tuple[str, str, str]] = set()
        for kind, watches in (
            ("inferenceobjectives", self._objectives),
            ("inferencemodelrewrites", self._rewrites),
        ):
            for namespace, watch in watches.items():
                for one in watch.found.values():
                    if (namespace, one.pool) in self._pools:
                        continue
                    key = (kind, namespace, one.name)
                    found.add(key)
                    if key not in self._left_out:
                        log.warning(
                            "kubernetes: %s %s in %s is left out: no pool here is its "
                            "InferencePool %s",
                            *(kind, one.name, namespace, one.pool),
                        )
        self._left_out = found


def _collection(namespace: str, kind: str) -> Objects:
    return Objects(path=PATH.format(namespace, kind))


def _criticality(priority: int, discovery: DiscoverySettings) -> Any:
    if priority >= discovery.critical_priority:
        return "critical"
    return "sheddable" if priority <= discovery.sheddable_priority else "standard"


def _objective(thing: Object) -> WrittenObjective | None:
    spec = _section(thing, "spec")
    priority = spec.get("priority", 0)
    if type(priority) is not int:
        return None
    return WrittenObjective(name=_name(thing), pool=_pool(spec), priority=priority)


def _rewrite(thing: Object) -> Rewrite | None:
    """Rules for one model's name each. A rule for all models is no split, and is left out."""
    spec = _section(thing, "spec")
    splits: dict[str, tuple[tuple[str, float], ...]] = {}
    for rule in _sections(spec, "rules"):
        names = [_section(each, "model").get("value") for each in _sections(rule, "matches")]
        targets = tuple(_targets(rule))
        if not names or not targets:
            log.warning("kubernetes: inferencemodelrewrites %s: a rule is left out", _name(thing))
            continue
        for name in names:
            splits.setdefault(str(name), targets)
    created = str(_section(thing, "metadata").get("creationTimestamp") or "")
    return Rewrite(
        name=_name(thing), pool=_pool(spec), created=created, splits=tuple(splits.items())
    )


def _targets(rule: Mapping[str, Any]) -> Iterable[tuple[str, float]]:
    for each in _sections(rule, "targets"):
        weight, model = each.get("weight") or 1, each.get("modelRewrite")
        if isinstance(model, str) and isinstance(weight, int) and weight > 0:
            yield model, float(weight)


def _pool(spec: Mapping[str, Any]) -> str:
    return str(_section(spec, "poolRef").get("name") or "")


def _name(thing: Object) -> str:
    return str(_section(thing, "metadata").get("name") or "")


def _section(thing: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = thing.get(key)
    return found if isinstance(found, dict) else {}


def _sections(thing: Mapping[str, Any], key: str) -> Sequence[Mapping[str, Any]]:
    found = thing.get(key)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
