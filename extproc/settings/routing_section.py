"""Settings of routing, of the queue, and of outlier detection."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from extproc.core.fleet.aliases import ModelMatch
from extproc.core.fleet.resolver import ResolverOptions
from extproc.core.outliers.ejection import Backoff
from extproc.core.outliers.outlier_detection import OutlierOptions
from extproc.core.placement.swaps import PlacementOptions
from extproc.core.queue.flow_order import Discipline, QueueOrder
from extproc.core.queue.limits import QueueLimits
from extproc.core.selection.ranking import Fallbacks
from extproc.settings.section import Section
from extproc.settings.values import (
    LIST,
    Count,
    File,
    PathPrefix,
    Reloadable,
    RuleName,
    Seconds,
    SomeSeconds,
    Whole,
)


class QueueSettings(Section):
    """The queue, in which requests wait for a free slot."""

    max_requests: Reloadable[Count] = 1024
    """The highest number of queued requests, where there are pools in each of them. Further
    requests are rejected with 429; 0 disables the queue."""
    max_body_bytes: Reloadable[Whole] = Field(default=1024 * 1024 * 1024, ge=0, le=10**15)
    """The highest number of buffered body bytes of all queued requests, in Envoy or, in full
    duplex, in Coxswain: up to envoy.body_buffer_bytes of each. A request with a body of more than
    64 KiB that does not fit is rejected with 429."""
    timeout_s: Reloadable[Seconds] = 60.0
    """The longest time in the queue in seconds; then the request is rejected with 504. A request
    can shorten it with the header x-coxswain-queue-timeout-ms, but not extend it."""
    discipline: Literal["first_come", "shortest_expected", "started_first"] = "first_come"
    """The order of the queued requests of one flow, or of one tenant without flows: `first_come` is
    the order of arrival, `shortest_expected` serves the request first that will take the fewest
    slot-seconds, as learned from similar ones, `started_first` those of sessions that were served
    before, so that agents finish before others start. Criticality, SLOs and the shares of tenants
    are the same with all. See docs/routing.md."""
    max_overtaken_s: Seconds = 30.0
    """Without `first_come`: a request that has been queued for this time, in seconds, is passed
    by no other of its flow any more."""

    @property
    def limits(self) -> QueueLimits:
        """How many requests the core's queue takes."""
        return QueueLimits(max_requests=self.max_requests, max_body_bytes=self.max_body_bytes)

    @property
    def order(self) -> QueueOrder:
        """The order of the core's queue."""
        return QueueOrder(
            discipline=Discipline(self.discipline), max_overtaken_s=self.max_overtaken_s
        )


class RoutingSettings(Section):
    """How requests are read and routed."""

    read_body: Reloadable[Literal["auto", "never"]] = "auto"
    """Whether Coxswain reads bodies: model, prompt, n, adapter. `auto` reads those of requests that
    take a slot and, if several models are served, of those that count tokens; it decompresses what
    is compressed. `never` uses only the headers, and every request then counts as one slot; only a
    tenant whose clients sent theirs too slowly is queued once its bodies have come. Envoy must
    allow mode overrides."""
    body_limit_bytes: Reloadable[Whole] = Field(default=65_536, ge=1, le=16 * 1024 * 1024)
    """The highest number of bytes from the beginning of a body that Coxswain reads for the prompt.
    The model and other keys at the top are found wherever they stand in the part that Envoy keeps
    (envoy.body_buffer_bytes)."""
    body_errors: Reloadable[Literal["lenient", "strict"]] = "lenient"
    """How to handle a body that cannot be parsed: `lenient` routes the request without the missing
    information, `strict` rejects it with 400."""
    context_fit: Literal["reject", "route", "off"] = "reject"
    """How to handle prompts that are longer than the context of a server's slots, by an estimate:
    `reject` sends them to servers with a longer context, and rejects with 400 what certainly fits
    none; `route` rejects none: use it if servers run with --context-shift; `off` does neither."""
    conversations: Reloadable[Literal["keep", "strip"]] = "keep"
    """How to handle `x-conversation-id`, with which llama-server goes on when the client leaves and
    keeps a streamed answer for five minutes: `keep` lets the client read the rest or end it
    (/v1/stream), and counts the slot and the request until the server has finished; `strip`
    removes the header."""
    rules: Annotated[Reloadable[tuple[RuleName, ...]], LIST] = ()
    """Rules of your own, as `package.module:Name` (docs/rules.md): classes that exclude endpoints,
    add to their costs, or reject requests. Every reload loads them again."""
    rules_folder: Reloadable[File | None] = None
    """The folder with rules: `team:Pin` is the class Pin in team.py there, or else in an installed
    module."""
    path_prefix: PathPrefix = ""
    """A path prefix below which clients find the API besides the root, such as `/llama`. Set it if
    servers have scraper.path_prefix, or if a gateway removes a prefix after the picker. The picker
    and the printed configuration must have the same value."""
    model_match: Reloadable[Literal["lenient", "strict"]] = "lenient"
    """How to handle a model that no endpoint reports: `lenient` sends the request to any endpoint,
    because llama-server ignores the name; `strict` rejects it with 404 if no endpoint ever reported
    the model, and queues it if the endpoints that did are gone."""
    unread_model: Reloadable[Literal["reject", "any"]] = "reject"
    """How to handle a request whose model cannot be found while several models are served, because
    its body is too long, damaged, or neither JSON nor a form: `reject` answers 400 with the reason,
    `any` sends it to any endpoint. A request that names no model goes to any endpoint with both.
    model_match: strict always rejects it; with read_body: never only strict does."""

    def for_core(self) -> ResolverOptions:
        """The same for what resolves names, without what other sections say of them. Where no
        bodies are read, the headers decide, as far as they go."""
        return ResolverOptions(
            model_match=ModelMatch(self.model_match),
            must_know_models=self.unread_model == "reject" and self.read_body == "auto",
        )

    @property
    def keeps_conversations(self) -> bool:
        """Whether servers go on with a conversation's request when its client leaves."""
        return self.conversations == "keep"


class SwapSettings(Section):
    """When models on machines with a keeper, and on routers, are loaded and make way for each
    other."""

    max_wait_s: Seconds = 60.0
    """The longest time in seconds that a request waits because other models have work, if two
    models take turns on a machine. Its model's load and the end of running requests come on top.
    queue.timeout_s should be longer than all of it."""
    min_share: float = Field(default=0.8, ge=0.0, le=0.99)
    """The least share of a machine's time that serves requests while models with work take turns: a
    model with work stays loaded at least so much longer than its load took. max_wait_s takes
    precedence."""
    routers: bool = True
    """Whether to load and unload models on llama-servers in router mode that were started with
    --no-models-autoload. One picker at most may do this for a router."""

    def for_core(self) -> PlacementOptions:
        """The same for the core."""
        return PlacementOptions(max_wait_s=self.max_wait_s, min_share=self.min_share)


class PickerSettings(Section):
    """How an endpoint is selected."""

    fallbacks: Reloadable[Whole] = Field(default=2, ge=0, le=2)
    """The number of further endpoints that Envoy can try if the selected one fails."""

    def for_core(self, *, has_discovery: bool) -> Fallbacks:
        """The same for the core. Without discovery an answer names exactly one server."""
        return Fallbacks(limit=self.fallbacks if has_discovery else 0)


class OutlierSettings(Section):
    """Endpoints that fail requests while their health checks succeed are ejected: they get only
    single trial requests until one succeeds."""

    failures: Count = 3
    """The number of consecutive failed requests that eject an endpoint: 5xx responses, lost
    connections, or 503 from an endpoint that scrapes show as healthy. 4xx responses do not count,
    and neither do failures of one kind of request (a path, a grammar, tools, images) if the other
    kinds succeed there. 0 disables ejection."""
    backoff_s: SomeSeconds = 2.0
    """Seconds from an ejection to the first trial request. Each failed trial doubles it."""
    max_backoff_s: SomeSeconds = 60.0
    """The longest time between two trial requests, in seconds. After this much time in good health,
    one doubling is reverted."""
    max_ejected_percent: Whole = Field(default=50, ge=0, le=100)
    """The largest share of the serving endpoints that can be ejected at the same time, in percent.
    The last endpoint that serves a model is never ejected."""

    @model_validator(mode="after")
    def _check_backoff(self) -> Self:
        if self.backoff_s > self.max_backoff_s:
            raise PydanticCustomError("order", "backoff_s must not exceed max_backoff_s")
        return self

    def for_core(self) -> OutlierOptions:
        """The same for the core."""
        return OutlierOptions(
            failures=self.failures,
            backoff=Backoff(base_s=self.backoff_s, max_s=self.max_backoff_s),
            max_ejected_percent=self.max_ejected_percent,
        )
