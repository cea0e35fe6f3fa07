"""What can be set about exchanges."""

from dataclasses import dataclass, field

from extproc.core.client_limits import ClientLimits
from extproc.pb import external_processor_pb2 as pb
from extproc.security.known_keys import KnownKeys
from extproc.settings import QueueSettings, Settings
from extproc.settings.envoy_section import EnvoySettings
from extproc.settings.routing_section import RoutingSettings
from extproc.stream.envoy import codec
from extproc.stream.request.paths import Paths
from extproc.stream.request.pool_choice import PoolChoice
from extproc.stream.request.translate import ReadingOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeOptions:
    """The sections that exchanges read, and what is made of them once: `reading` and `paths`.

    `started_at` is the Unix time that is shown for models: a reload does not make them younger.
    `limits` are those of clients; they count what clients use, so they are the same over a reload.
    `keys` are those of clients, None where everybody may ask. `batches` is the client that sends
    requests for the others, empty for none. `pools` chooses the pool of a request, None where no
    pools are configured."""

    queue: QueueSettings = field(default_factory=QueueSettings)
    routing: RoutingSettings = field(default_factory=RoutingSettings)
    envoy: EnvoySettings = field(default_factory=EnvoySettings)
    adds_response_headers: bool = True
    reading: ReadingOptions = field(default_factory=ReadingOptions)
    paths: Paths = field(default_factory=Paths)
    started_at: int = 0
    limits: ClientLimits = field(default_factory=lambda: ClientLimits({}))
    keys: KnownKeys | None = None
    batches: str = ""
    pools: PoolChoice | None = None

    def read_head(self, headers: pb.HttpHeaders) -> codec.RequestHead:
        """Read the request headers; raises `BadRequestError`. A line of a batch is a request of the
        client that submitted it, and nobody's once that client has no key."""
        head = codec.read_request_head(headers, self.keys)
        name = head.fairness_id
        if self.keys is None or not name or not head.client or head.client != self.batches:
            return head
        return head.of_client(name) if self.keys.is_client(name) else head._replace(tenant="")


def exchange_options(
    settings: Settings, started_at: int, limits: ClientLimits, keys: KnownKeys | None = None
) -> ExchangeOptions:
    """Those of a picker with these settings."""
    routing, envoy = settings.routing, settings.envoy
    return ExchangeOptions(
        queue=settings.queue,
        routing=routing,
        envoy=envoy,
        adds_response_headers=settings.response_headers,
        reading=ReadingOptions(
            reads_bodies=routing.read_body != "never",
            limit_bytes=routing.body_limit_bytes,
            kept_bytes=envoy.body_buffer_bytes,
            short_bytes=min(routing.body_limit_bytes, envoy.body_buffer_bytes),
            is_strict=routing.body_errors == "strict",
        ),
        paths=Paths(routing.path_prefix, opened=envoy.opened, blocked=envoy.blocked),
        started_at=started_at,
        limits=limits,
        keys=keys,
        batches=settings.clients.batches or "",
        pools=PoolChoice(settings.pools) if settings.pools else None,
    )
