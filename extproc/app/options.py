"""What is made of several sections of the settings: the options of the core, which reads none, and
the addresses that endpoints may have."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from extproc.core.constraints import NO_POOL
from extproc.core.fleet.resolver import ResolverOptions
from extproc.core.observation import ModelReading
from extproc.core.scheduler.dispatcher import DispatcherOptions
from extproc.core.selection.context_fit import ContextFit
from extproc.security.address_policy import AddressPolicy
from extproc.settings import Settings
from extproc.settings.objective_section import objectives_for_core
from extproc.settings.pool_section import default_pool, machine_pools, objectives_of_pool
from extproc.settings.values import split_host_port

SCALED_MODELS: Final = "scale.models in the settings"
"""Where such models come from; no machine has this name."""


def dispatcher_options(settings: Settings) -> DispatcherOptions:
    return DispatcherOptions(
        queue=settings.queue.limits,
        fallbacks=settings.picker.for_core(has_discovery=settings.envoy.discovery),
        health=settings.scraper.health,
        draining_caps=settings.ledger.draining_caps,
        resolver=_resolver_options(settings),
        outliers=settings.outlier_detection.for_core(),
        order=settings.queue.order,
        scale=settings.scale.for_core(),
        context_fit=ContextFit(settings.routing.context_fit),
        bounds=settings.bounds.for_core(
            {name: one.limits for name, one in settings.pools.items() if one.limits is not None}
        ),
        client_limits=settings.clients.limits_for_core(),
        spill=settings.spill.for_core(),
        machines={
            name: one.wake.for_core()
            for name, one in settings.machines.items()
            if one.wake is not None
        },
    )


def _resolver_options(settings: Settings) -> ResolverOptions:
    routing = settings.routing.for_core()
    return replace(
        routing,
        splits=settings.models,
        objectives=objectives_for_core(settings.objectives),
        pools={
            name: replace(
                routing,
                splits=pool.models or settings.models,
                objectives=objectives_of_pool(name, pool, settings.objectives),
            )
            for name, pool in settings.pools.items()
        },
        default_pool=default_pool(settings.pools),
        machine_pools=machine_pools(settings.machines),
    )


def scaled_models(settings: Settings) -> dict[str, dict[str, ModelReading]]:
    """The models that can be scaled from zero, by their pool; empty for the default one, or where
    no pools are configured."""
    found: dict[str, dict[str, ModelReading]] = {}
    for name in settings.scale.models:
        pool, _, model = name.partition("/")
        if pool not in settings.pools:
            pool, model = NO_POOL, name
        found.setdefault(pool, {})[model] = ModelReading(name=model, is_loaded=False)
    return found


def address_policy(settings: Settings, own_ports: Iterable[int]) -> AddressPolicy:
    """`own_ports` are those that this picker listens on; those of the settings go with them."""
    envoy, listen = settings.envoy, settings.listen
    named = (
        envoy.listen,
        envoy.admin,
        envoy.metrics,
        envoy.picker,
        listen.grpc,
        listen.admin,
        listen.http,
        settings.keda.listen,
    )
    ports = {split_host_port(each)[1] for each in named if each is not None}
    return AddressPolicy.of(settings.agents.allowed_networks, {*ports, *own_ports} - {0})
