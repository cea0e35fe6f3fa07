"""What is made of several sections of the settings, and the options of those who read none: the
core, and the scraper, which also runs in agents."""

from collections.abc import Iterable
from typing import Final

from extproc.core.constraints import NO_POOL
from extproc.core.fleet.aliases import ModelMatch
from extproc.core.fleet.resolver import ResolverOptions
from extproc.core.observation import ModelReading
from extproc.core.scheduler.dispatcher import DispatcherOptions
from extproc.core.selection.context_fit import ContextFit
from extproc.runners.client import Timeouts
from extproc.security.address_policy import AddressPolicy
from extproc.settings import Settings
from extproc.settings.objective_section import objectives_for_core
from extproc.settings.pool_section import (
    PoolSettings,
    default_pool,
    machine_pools,
    objectives_of_pool,
)
from extproc.settings.routing_section import RoutingSettings
from extproc.settings.values import split_host_port
from scraper.options import ScraperOptions
from scraper.schedule import Cadence

SCALED_MODELS: Final = "scale.models in the settings"
"""Where such models come from; no machine has this name."""


def dispatcher_options(settings: Settings) -> DispatcherOptions:
    return DispatcherOptions(
        queue_max_requests=settings.queue.max_requests,
        queue_max_body_bytes=settings.queue.max_body_bytes,
        # Without discovery an answer names exactly one server.
        fallbacks=settings.picker.fallbacks if settings.envoy.discovery else 0,
        failures_to_down=settings.scraper.failures_to_down,
        stale_after_s=settings.scraper.stale_after_s,
        stale_per_endpoint_s=settings.scraper.stale_per_endpoint_s,
        draining_caps=settings.ledger.draining_caps,
        resolver=ResolverOptions(
            model_match=ModelMatch(settings.routing.model_match),
            must_know_models=_must_know_models(settings.routing),
            splits=settings.models,
            objectives=objectives_for_core(settings.objectives),
            pools={name: _of_pool(name, pool, settings) for name, pool in settings.pools.items()},
            default_pool=default_pool(settings.pools),
            machine_pools=machine_pools(settings.machines),
        ),
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


def _of_pool(name: str, pool: PoolSettings, settings: Settings) -> ResolverOptions:
    return ResolverOptions(
        model_match=ModelMatch(settings.routing.model_match),
        must_know_models=_must_know_models(settings.routing),
        splits=pool.models or settings.models,
        objectives=objectives_of_pool(name, pool, settings.objectives),
    )


def _must_know_models(routing: RoutingSettings) -> bool:
    """Where no bodies are read, the headers decide, as far as they go."""
    return routing.unread_model == "reject" and routing.read_body == "auto"


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


def scraper_options(settings: Settings) -> ScraperOptions:
    scraper = settings.scraper
    return ScraperOptions(
        cadence=Cadence(
            fast_s=scraper.fast_interval_s, slow_s=scraper.slow_interval_s, jitter=scraper.jitter
        ),
        timeouts=Timeouts(
            connect_s=scraper.connect_timeout_s,
            read_s=scraper.read_timeout_s,
            slots_read_s=scraper.slots_read_timeout_s,
            write_s=scraper.write_timeout_s,
            pool_s=scraper.pool_timeout_s,
        ),
        slow_after_s=scraper.slow_after_s,
        max_per_s=scraper.max_per_s,
        loads_models=settings.swap.routers,
    )
