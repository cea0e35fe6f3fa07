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
    """The highest number of queued requests, of each pool if there are several. Further ones are
    rejected with 429; 0 disables the queue."""
    max_body_bytes: Reloadable[Whole] = Field(default=1024 * 1024 * 1024, ge=0, le=10**15)
    """The highest number of buffered body bytes of all queued requests, up to
    envoy.body_buffer_bytes of each. A request with a body of more than 64 KiB that does not fit is
    rejected with 429."""
    timeout_s: Reloadable[Seconds] = 60.0
    """The longest time in the queue in seconds; then 504. The header x-coxswain-queue-timeout-ms
    can shorten it."""
    discipline: Literal["first_come", "shortest_expected", "started_first"] = "first_come"
    """The order of the queued requests of one flow, or of one tenant without flows: `first_come`,
    `shortest_expected` (the fewest slot-seconds, as learned from similar requests, first), or
    `started_first` (those of sessions that were served before). See docs/routing.md."""
    max_overtaken_s: Seconds = 30.0
    """Without `first_come`: after this many seconds in the queue no other of its flow passes a
    request."""

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
    """Whether Coxswain reads bodies. `auto` does, and requires that Envoy allows mode overrides;
    `never` uses only the headers, and every request counts as one slot (docs/routing.md)."""
    body_limit_bytes: Reloadable[Whole] = Field(default=65_536, ge=1, le=16 * 1024 * 1024)
    """The number of bytes from the beginning of a body that Coxswain reads for the prompt. The
    model is found anywhere in the part that Envoy keeps (envoy.body_buffer_bytes)."""
    body_errors: Reloadable[Literal["lenient", "strict"]] = "lenient"
    """A body that cannot be parsed: `lenient` routes the request without it, `strict` rejects it
    with 400."""
    context_fit: Literal["reject", "route", "off"] = "reject"
    """Prompts that are longer than the context of a server's slots, by an estimate: `reject` sends
    them to servers with a longer context, and rejects with 400 what certainly fits none; `route`
    rejects none, for servers with --context-shift; `off` does neither."""
    conversations: Reloadable[Literal["keep", "strip"]] = "keep"
    """`x-conversation-id`, with which llama-server keeps a streamed answer for five minutes when
    the client leaves: `keep` lets the client read the rest or end it (/v1/stream), and counts the
    slot until the server has finished; `strip` removes the header."""
    rules: Annotated[Reloadable[tuple[RuleName, ...]], LIST] = ()
    """Your own rules, as `package.module:Name` (docs/rules.md), which exclude endpoints, add to
    their costs, or reject requests. A reload loads them again."""
    rules_folder: Reloadable[File | None] = None
    """The folder with rules: `team:Pin` is the class Pin in team.py there, or else in an installed
    module."""
    path_prefix: PathPrefix = ""
    """A path prefix below which clients find the API besides the root, such as `/llama`. Print
    Envoy's configuration again when it changes."""
    model_match: Reloadable[Literal["lenient", "strict"]] = "lenient"
    """A model that no endpoint reports: `lenient` sends the request to any endpoint; `strict`
    rejects it with 404 if no endpoint ever reported the model, and queues it if those that did are
    gone."""
    unread_model: Reloadable[Literal["reject", "any"]] = "reject"
    """A request whose model cannot be read while several are served (docs/routing.md): `reject`
    answers 400, `any` sends it to any endpoint. model_match: strict always rejects it; with
    read_body: never only strict does."""

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
    """If two models take turns on a machine: the longest time in seconds that a request waits
    because other models have work. Loads and the end of running requests come on top;
    queue.timeout_s should be longer than all of it."""
    min_share: float = Field(default=0.8, ge=0.0, le=0.99)
    """The least share of a machine's time that serves requests while models take turns: a model
    with work stays loaded at least so much longer than its load took. max_wait_s takes
    precedence."""
    routers: bool = True
    """Whether to load and unload models on routers that were started with --no-models-autoload. At
    most one picker may do this for a router."""

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
    """The number of failed requests in a row that eject an endpoint (docs/operations.md); 0
    disables ejection."""
    backoff_s: SomeSeconds = 2.0
    """Seconds from an ejection to the first trial request. Each failed trial doubles it."""
    max_backoff_s: SomeSeconds = 60.0
    """The longest time between two trial requests, in seconds. After this much time in good health,
    one doubling is reverted."""
    max_ejected_percent: Whole = Field(default=50, ge=0, le=100)
    """The largest share of the serving endpoints that are ejected at once, in percent; never the
    last one that serves a model."""

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
