"""From the settings to each part's own options."""

from collections.abc import Iterable, Mapping
from typing import Final

from extproc.admin.agents import AgentsOptions
from extproc.app.version import own_version
from extproc.core.client_limits import ClientLimit, ClientLimits
from extproc.core.fleet.aliases import ModelMatch
from extproc.core.fleet.resolver import ResolverOptions
from extproc.core.objective import Criticality, Objective, Objectives
from extproc.core.observation import ModelReading
from extproc.core.outliers.ejection import Backoff
from extproc.core.outliers.outlier_detection import OutlierOptions
from extproc.core.placement.swaps import PlacementOptions
from extproc.core.queue.flow_order import Discipline, QueueOrder
from extproc.core.scaling.wanted import ScaleOptions, ServerBounds
from extproc.core.scheduler.dispatcher import DispatcherOptions
from extproc.core.scheduler.options import ContextFit
from extproc.core.slots.ledger import DrainingCaps
from extproc.security.address_policy import AddressPolicy
from extproc.security.known_keys import KnownKeys
from extproc.security.path_rule import PathRule
from extproc.settings import Settings
from extproc.settings.routing_section import RoutingSettings
from extproc.settings.values import split_host_port
from extproc.status import Hosts
from extproc.stream.exchange import ExchangeOptions
from extproc.stream.request.paths import Paths
from extproc.stream.request.translate import ReadingOptions
from extproc.stream.upload_pace import UploadLimits
from extproc.telemetry.environment import read_environment
from extproc.telemetry.hub import TelemetryOptions
from extproc.telemetry.statsd import StatsdOptions
from scraper.llama.client import Timeouts
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
        draining_caps=DrainingCaps(
            reported_s=settings.ledger.draining_cap_s, blind_s=settings.ledger.blind_draining_cap_s
        ),
        resolver=ResolverOptions(
            model_match=ModelMatch(settings.routing.model_match),
            must_know_models=_must_know_models(settings.routing),
            splits=settings.models,
            objectives=_objectives(settings),
        ),
        outliers=_outlier_options(settings),
        order=QueueOrder(
            discipline=Discipline(settings.queue.discipline),
            max_overtaken_s=settings.queue.max_overtaken_s,
        ),
        scale=_scale_options(settings),
        context_fit=ContextFit(settings.routing.context_fit),
    )


def _must_know_models(routing: RoutingSettings) -> bool:
    """Where no bodies are read, the headers decide, as far as they go."""
    return routing.unread_model == "reject" and routing.read_body == "auto"


def _scale_options(settings: Settings) -> ScaleOptions:
    scale = settings.scale
    return ScaleOptions(
        target_wait_s=scale.target_wait_s,
        idle_s=scale.idle_s,
        down_after_s=scale.down_after_s,
        models={
            name: ServerBounds(
                min_servers=one.min_servers, max_servers=one.max_servers, slots=one.slots
            )
            for name, one in scale.models.items()
        },
    )


def scaled_models(settings: Settings) -> dict[str, ModelReading]:
    """The models that can be scaled from zero."""
    return {name: ModelReading(name=name, is_loaded=False) for name in settings.scale.models}


def _outlier_options(settings: Settings) -> OutlierOptions:
    outliers = settings.outlier_detection
    return OutlierOptions(
        failures=outliers.failures,
        backoff=Backoff(base_s=outliers.backoff_s, max_s=outliers.max_backoff_s),
        max_ejected_percent=outliers.max_ejected_percent,
    )


def _objectives(settings: Settings) -> Objectives:
    by_name = {}
    by_model = {}
    for name, objective in settings.objectives.items():
        slo = objective.slo
        by_name[name] = Objective(
            name=name,
            criticality=Criticality[objective.criticality.upper()],
            ttft_s=None if slo.ttft_ms is None else slo.ttft_ms / 1000,
            queue_s=None if slo.queue_ms is None else slo.queue_ms / 1000,
            weight=objective.weight,
        )
        by_model.update(dict.fromkeys(objective.models, name))
    return Objectives(by_name=by_name, by_model=by_model)


def client_limits(settings: Settings) -> dict[str, ClientLimit]:
    """The limits by client's name."""
    return {
        name: ClientLimit(
            requests=limit.requests,
            queued=limit.queued,
            tokens_per_minute=limit.tokens_per_minute,
        )
        for name, limit in settings.clients.limits.items()
    }


def exchange_options(
    settings: Settings,
    started_at: int,
    limits: ClientLimits,
    keys: KnownKeys | None = None,
) -> ExchangeOptions:
    """`started_at` is the Unix time of the start: a reload does not make models younger. `limits`
    count what clients use, `keys` are theirs."""
    routing, envoy = settings.routing, settings.envoy
    return ExchangeOptions(
        queue_timeout_s=settings.queue.timeout_s,
        adds_response_headers=settings.response_headers,
        started_at=started_at,
        retries=envoy.retries,
        limits=limits,
        keys=keys,
        answers_health=envoy.health,
        keeps_conversations=routing.conversations == "keep",
        uploads=UploadLimits(
            idle_s=envoy.request_body_idle_timeout_s,
            min_rate_bytes_per_s=envoy.request_body_min_rate_bytes_per_s,
            grace_s=envoy.request_body_grace_s,
        ),
        reading=ReadingOptions(
            reads_bodies=routing.read_body != "never",
            limit_bytes=routing.body_limit_bytes,
            kept_bytes=envoy.body_buffer_bytes,
            short_bytes=min(routing.body_limit_bytes, envoy.body_buffer_bytes),
            is_strict=routing.body_errors == "strict",
        ),
        paths=Paths(
            routing.path_prefix,
            opened=tuple(map(PathRule.parse, settings.envoy.open_paths)),
            blocked=tuple(map(PathRule.parse, settings.envoy.blocked_paths)),
        ),
    )


def agents_options(settings: Settings) -> AgentsOptions:
    return AgentsOptions(ttl_s=settings.agents.ttl_s, forget_s=settings.agents.forget_s)


def placement_options(settings: Settings) -> PlacementOptions:
    return PlacementOptions(max_wait_s=settings.swap.max_wait_s, min_share=settings.swap.min_share)


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


def page_hosts(settings: Settings) -> Hosts:
    """By which names the status pages may be asked for."""
    return Hosts([*settings.listen.http_hosts, split_host_port(settings.listen.http)[0]])


def dashboard_links(settings: Settings) -> dict[str, str]:
    """Where the dashboard links to, by name."""
    links = {"Grafana": settings.dashboard.grafana_url, "Jaeger": settings.dashboard.jaeger_url}
    return {name: url for name, url in links.items() if url is not None}


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
        loads_models=settings.swap.routers,
    )


def telemetry_options(settings: Settings, environ: Mapping[str, str]) -> TelemetryOptions:
    statsd = settings.statsd
    return TelemetryOptions(
        version=own_version(),
        otlp=read_environment(environ),
        statsd=None
        if statsd.addr is None
        else StatsdOptions(
            host=statsd.host,
            port=statsd.port,
            prefix=statsd.prefix,
            interval_s=statsd.interval_s,
        ),
    )
