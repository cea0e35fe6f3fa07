"""What can be set about exchanges."""

from dataclasses import dataclass, field

from extproc.core.client_limits import ClientLimits
from extproc.security.known_keys import KnownKeys
from extproc.stream.request.paths import Paths
from extproc.stream.request.translate import ReadingOptions
from extproc.stream.upload_pace import UploadLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeOptions:
    """`queue_timeout_s` is how long a request may wait at most, in seconds; `started_at` the
    Unix time that is shown for models; `retries` how often Envoy tries again by itself. `limits`
    are those of clients; they count what clients use, so they are the same over a reload.
    `keys` are those of clients, None where everybody may ask. With `answers_health`, the picker
    answers requests for the health of a server, for the whole fleet. With `keeps_conversations`
    servers go on with such requests when their clients leave."""

    queue_timeout_s: float = 60.0
    adds_response_headers: bool = True
    reading: ReadingOptions = field(default_factory=ReadingOptions)
    uploads: UploadLimits = field(default_factory=UploadLimits)
    paths: Paths = field(default_factory=Paths)
    started_at: int = 0
    retries: int = 3
    limits: ClientLimits = field(default_factory=lambda: ClientLimits({}))
    keys: KnownKeys | None = None
    answers_health: bool = False
    keeps_conversations: bool = True
