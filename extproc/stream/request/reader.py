"""Reads the headers and the body of one request until it can be submitted.

    headers --a browser's preflight-----------> LocalReply
            --for none of several pools-------> InvalidRequest
            --without a client's key----------> InvalidRequest, if clients have keys
            --takes no slot-------------------> PassThrough, or LocalReply (the models of the fleet,
                                                or its health, also without a key)
            --its path is closed or unknown---> InvalidRequest
            --takes a slot--------------------> NeedsSlot
            --body is needed------------------> None until enough has arrived --> one of the others
    any     --invalid, or an empty subset-----> InvalidRequest

A body is needed for its model, its weight and its prompt, or because it is compressed, which
servers cannot read: it is decompressed here. A `NeedsSlot` goes to the core; `delivery` says how
the request reaches the selected endpoint.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from extproc.core.address import Address
from extproc.core.client_limits import ClientLimit
from extproc.core.constraints import NO_POOL
from extproc.core.decision import Picked
from extproc.core.fleet.resolver import RequestResolver
from extproc.core.fleet.subset_hints import Hint
from extproc.core.objective import Criticality
from extproc.core.rejection import NONE_BY_RULES, Reason
from extproc.core.request import Kind, Request
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.core.slots.lease import Lease
from extproc.core.views.fleet_capacity import fleet_health
from extproc.header_names import PREFLIGHT, READABLE
from extproc.pb import external_processor_pb2 as pb
from extproc.stream.envoy import codec
from extproc.stream.envoy.body_mode import BodyMode
from extproc.stream.model_list import Models, fleet_models, model_list, one_model
from extproc.stream.options import ExchangeOptions
from extproc.stream.request.body import RequestBody
from extproc.stream.request.conversation_lookup import (
    BAD_ID,
    BAD_LOOKUP,
    is_conversation_id,
    lookup_of,
    lookup_result,
    read_lookup,
)
from extproc.stream.request.encoding import EncodingError, decompressed, is_supported
from extproc.stream.request.lora import append_overrides
from extproc.stream.request.names import why_not_after_all
from extproc.stream.request.passing import (
    NOT_LOADED,
    NotServed,
    constraints_of,
    passing_request,
)
from extproc.stream.request.paths import Paths
from extproc.stream.request.permission import Forbidden, listed, may_pass, permitted
from extproc.stream.request.subset import HintError, read_subset
from extproc.stream.request.translate import NO_BODY, NOT_READ, understand

RETRY_S: Final = 1.0
"""The retry delay after a subset hint that no endpoint matches: the next hint may be newer."""


TOO_MANY_SLOW_UPLOADS: Final = (
    "Many long requests arrived too slowly, so for some minutes "
    "requests that are longer than the proxy's buffer are not queued. Shorter requests are queued "
    "as usual."
)
TOO_MANY_BYTES: Final = (
    "All slots are busy, and the bodies of queued requests use all of their "
    "memory (queue.max_body_bytes)."
)


@dataclass(frozen=True, slots=True)
class NeedsSlot:
    """The request takes slots: the core decides."""

    request: Request


@dataclass(frozen=True, slots=True)
class PassThrough:
    """The request takes no slot: any of these endpoints may serve it. With `is_restricted`, no
    other may. `body` is the changed body, if any."""

    addresses: tuple[Address, ...]
    is_restricted: bool = False
    body: bytes | None = None


class LocalReply(NamedTuple):
    """The picker responds itself, with JSON, or without a body."""

    body: bytes
    status: int = 200
    headers: Mapping[str, str] = READABLE


@dataclass(frozen=True, slots=True)
class InvalidRequest:
    """The request is rejected; an empty text stands for the text of the reason."""

    reason: Reason
    text: str = ""
    retry_after_s: float = 0.0


ReadResult = NeedsSlot | PassThrough | LocalReply | InvalidRequest

ALLOWED: Final = LocalReply(b"", headers=PREFLIGHT)
"""Whatever the path: what a page may not do, it reads in the response to its request."""
EXPIRED: Final = "This API key has expired."
NOBODY: Final = InvalidRequest(Reason.NO_ENDPOINT, retry_after_s=RETRY_S)


class Delivery(NamedTuple):
    """Where a request goes: to the first of `addresses`, the others being fallbacks. `body` is the
    changed body, if any. With `is_restricted`, other servers cannot serve it."""

    addresses: tuple[Address, ...]
    body: bytes | None = None
    is_restricted: bool = False


class RequestReader:
    """Receives the messages about one request. Synchronous, without side effects."""

    __slots__ = (
        "_dispatcher",
        "_hint",
        "_kind",
        "_options",
        "_pool",
        "body_mode",
        "head",
        "request",
    )

    def __init__(
        self, dispatcher: Dispatcher, options: ExchangeOptions, pool: str = NO_POOL
    ) -> None:
        """`pool` is that of the port at which Envoy asks, empty if that says none."""
        self._dispatcher = dispatcher
        self._options = options
        self._pool = pool
        self._kind: Kind | None = None
        self._hint: Hint | None = None
        self.head = codec.NO_HEAD
        self.body_mode = BodyMode()
        self.request: Request | None = None

    def begin(self, message: pb.ProcessingRequest, now: float) -> ReadResult | None:
        """Read the headers, the first message of a stream; None if the body is needed too: to read
        it, or because the clients of this tenant were too slow to send theirs."""
        self.body_mode.begin(message)
        try:
            head = self.head = self._options.read_head(message.request_headers)
        except codec.BadRequestError as error:
            self.head = error.head
            return self._unauthorized() or InvalidRequest(Reason.BAD_REQUEST, str(error))
        if head.method == "OPTIONS":  # browsers send it without a key
            return ALLOWED
        if not self._choose_pool(message):
            return self._unauthorized() or InvalidRequest(Reason.NO_POOL)
        paths = self._options.paths
        if self._options.envoy.health and paths.asks_for_health(head.method, head.path):
            health = fleet_health(self._dispatcher.view, self._pool or None)
            return LocalReply(health.as_json(), health.http_status)
        if unauthorized := self._unauthorized():
            return unauthorized
        try:
            self._hint = read_subset(message, self._dispatcher.subset_hints)
        except HintError as hint_error:  # mypyc allows one type for each name
            return InvalidRequest(Reason.BAD_REQUEST, str(hint_error))
        if self._options.routing.keeps_conversations and not is_conversation_id(head.conversation):
            return InvalidRequest(Reason.BAD_REQUEST, BAD_ID)
        self._kind = _kind_of(head, paths)
        if self._kind is None:
            reply = self._local_reply(head, paths)
            if reply is not None:
                return reply
        if head.encoding and not self._can_decompress():
            return InvalidRequest(Reason.UNSUPPORTED_ENCODING)
        if self.body_mode.can_bring_body and self._wants_body(now):
            return None
        return self._decide(NOT_READ if head.has_body else NO_BODY)

    def _choose_pool(self, message: pb.ProcessingRequest) -> bool:
        """Find the pool of the request; returns false if there are pools, and none for it, or if
        that of its port is no more."""
        choice = self._options.pools
        if self._pool:
            return choice is not None and choice.has(self._pool)
        if choice is not None:
            self._pool = choice.of(message)
        return choice is None or bool(self._pool)

    @property
    def _resolver(self) -> RequestResolver:
        """What its names mean, in its pool."""
        return self._dispatcher.resolver.of_pool(self._pool)

    def _wants_body(self, now: float) -> bool:
        """Whether the body is needed for the decision.

        Of a request that takes a slot also one without useful content: a client that never sends it
        must not occupy a slot.
        """
        head, is_read = self.head, self._options.reading.reads_bodies
        if not head.has_body:
            return False
        if self._kind is not None:
            return is_read or self._dispatcher.view.sends_slowly(head.tenant, now)
        if self._options.paths.finds_streams(head.method, head.path):
            return True
        if not is_read:
            return False
        counts = self._options.paths.counts(head.method, head.path)
        return bool(head.encoding) or (counts and self._resolver.routes_by_model)

    def _can_decompress(self) -> bool:
        head, reading = self.head, self._options.reading
        is_here = self.body_mode.can_bring_body and reading.reads_bodies
        return (
            is_here and is_supported(head.encoding) and (head.body_bytes or 0) <= reading.kept_bytes
        )

    def _unauthorized(self) -> InvalidRequest | None:
        """The rejection of a request without a client's key, where it needs one."""
        if self._options.keys is None or self.head.client:
            return None
        return InvalidRequest(Reason.INVALID_API_KEY, EXPIRED if self.head.key_digest else "")

    @property
    def is_key_revoked(self) -> bool:
        """Whether the key that it came with opens no more."""
        keys = self._options.keys
        return keys is not None and not keys.knows(self.head.key_digest)

    def keeps_conversation(self, lease: Lease) -> bool:
        """Whether the server of this lease is to keep the answer, under an id of its client. It
        must show its slots, as nothing else would say when it has finished."""
        head, request = self.head, self.request
        if not self._options.routing.keeps_conversations or request is None:
            return False
        if request.kind is not Kind.GENERATION:
            return False  # it would only end the answer that has this id
        dispatcher = self._dispatcher
        return dispatcher.view.slots_at(lease.address).reports_busy_slots and (
            dispatcher.conversations.begin(head.conversation, head.tenant, lease)
        )

    def resume(self, message: pb.ProcessingRequest, model: str | None) -> Request:
        """Read the headers of a request whose destination was sent by another process, with the
        model that its name was resolved to. Its body is not here."""
        self.body_mode.begin(message)
        head = self.head = self._options.read_head(message.request_headers)
        self._choose_pool(message)
        self._kind = _kind_of(head, self._options.paths)
        self.body_mode.resume()
        request = self.request = Request(
            id=head.id,
            timeout_s=0.0,
            kind=self._kind or Kind.GENERATION,
            objective=head.objective,
            tenant=head.tenant,
            fairness_id=head.fairness_id,
            session_id=head.session_id,
            model=model,
            path=self._options.paths.below_prefix(head.path),
            pool=self._pool,
        )
        rules = self._dispatcher.view.rules
        admitted = request if rules is None else rules.admit(request)
        if not isinstance(admitted, str):  # it was admitted before
            request = self.request = admitted
        return request

    @property
    def pool(self) -> str:
        """The pool that the request is for; empty where no pools are configured."""
        return self._pool

    def bring_body(self) -> list[pb.ProcessingResponse]:
        """The reply that requests the body."""
        announced_bytes = self.head.body_bytes
        is_short = (
            announced_bytes is not None and announced_bytes <= self._options.reading.short_bytes
        )
        return self.body_mode.bring_body(is_short=is_short)

    def take(self, part: pb.HttpBody) -> ReadResult | None:
        """Read a part of the body; None if that is not enough yet."""
        is_enough = self.body_mode.take(part, enough_bytes=self._options.reading.kept_bytes)
        return self._read() if is_enough else None

    def read_what_came(self) -> ReadResult:
        """Decide with the received part of the body, because no more will arrive."""
        self.body_mode.end_body()
        return self._read() if self.body_mode.body else self._decide(NOT_READ)

    @property
    def announced(self) -> Request | None:
        """A request that takes slots, by its headers alone; None for others."""
        if self._kind is None:
            return None
        return Request(
            id=self.head.id,
            timeout_s=0.0,
            kind=self._kind,
            objective=self.head.objective,
            pool=self._pool,
        )

    def rejection_text(self, reason: Reason) -> str:
        """The text for the client in addition to the text of the reason."""
        if self.request is None:
            return ""
        if reason is Reason.QUEUE_FULL and self._dispatcher.lacks_bytes(self.request):
            return TOO_MANY_BYTES
        if reason is Reason.SHED and self.request.is_partial:
            objective = self._resolver.objective_of(self.request)
            is_meant = objective.criticality is Criticality.SHEDDABLE
            return "" if is_meant else TOO_MANY_SLOW_UPLOADS
        return why_not_after_all(self.request) if reason is Reason.BAD_REQUEST else ""

    def delivery(self, picked: Picked) -> Delivery:
        """Where the request goes, and the changed body if the server needs one."""
        request, body_mode = self.request, self.body_mode
        assert request is not None
        addresses = (picked.lease.address, *picked.fallbacks)
        if request.adapter is not None or picked.adapter_id is not None:
            # Adapter numbers differ between servers, so there is no fallback.
            new_body = append_overrides(
                body_mode.body, model=picked.model, adapter_id=picked.adapter_id
            )
            return Delivery(addresses[:1], new_body, is_restricted=True)
        is_renamed = picked.model is not None and picked.model != request.model
        if is_renamed and not request.is_verbatim:
            new_body = append_overrides(body_mode.body, model=picked.model, adapter_id=None)
            return Delivery(addresses, new_body, is_restricted=picked.is_restricted)
        return Delivery(addresses, is_restricted=picked.is_restricted)

    def _read(self) -> ReadResult:
        body_mode, reading = self.body_mode, self._options.reading
        if not reading.reads_bodies:
            return self._decide(NOT_READ)
        if self.head.encoding:
            try:
                self._decompress()
            except EncodingError as error:
                return InvalidRequest(Reason.BAD_REQUEST, str(error))
        is_whole = body_mode.is_whole
        body = reading.read(
            self.head, self._kind or Kind.GENERATION, body_mode.body, is_whole=is_whole
        )
        if reading.is_strict and body.problem is not None and self._kind is not None:
            return InvalidRequest(Reason.BAD_REQUEST, f"The body {body.problem}.")
        return self._decide(body)

    def _decompress(self) -> None:
        """Replace the body by what it holds; raises `EncodingError`."""
        head, body_mode, limit = self.head, self.body_mode, self._options.reading.kept_bytes
        if not body_mode.is_whole:
            raise EncodingError(f"A compressed body must not be longer than {limit} bytes.")
        body_mode.decompress(decompressed(body_mode.body, head.encoding, limit))
        self.head = head._replace(
            encoding="",
            body_bytes=len(body_mode.body),
            controls=(*head.controls, "content-encoding"),
        )

    def _decide(self, body: RequestBody) -> ReadResult:
        return self._needs_slot(body) if self._kind is not None else self._pass_on(body)

    def _needs_slot(self, body: RequestBody) -> NeedsSlot | InvalidRequest:
        head, kind = self.head, self._kind
        assert kind is not None
        allowed = self._allowed()
        self._hint = None  # a long body must not be kept while its request is queued
        if allowed is not None and not allowed:
            return NOBODY
        body_mode = self.body_mode
        request = understand(
            head,
            body,
            body_mode.body,
            kind=kind,
            is_whole=body_mode.is_whole,
            allowed=allowed,
            longest_s=self._options.queue.timeout_s,
            resolver=self._resolver,
            kept_bytes=self._options.reading.kept_of(
                head, len(body_mode.body), has_all=body_mode.has_all
            ),
            is_partial=self._is_partial(),
            path=self._options.paths.below_prefix(head.path),
            api=self._options.paths.needed_api(head.path, self._resolver.fleet),
        )
        if isinstance(request, str):
            return InvalidRequest(Reason.BAD_REQUEST, request)
        allowed_request = permitted(request, body, self._limit(), self._resolver)
        if isinstance(allowed_request, Forbidden):
            return InvalidRequest(allowed_request.reason, allowed_request.text)
        request = allowed_request
        rules = self._dispatcher.view.rules
        if rules is not None:
            admitted = rules.admit(request)
            if isinstance(admitted, str):
                return InvalidRequest(Reason.REJECTED_BY_RULE, admitted)
            request = admitted
        self.request = request
        if request.is_verbatim:
            body_mode.forget_body()
        return NeedsSlot(request)

    def _is_partial(self) -> bool:
        """Whether the rest of the body comes only with a slot. Where bodies are not read, nothing
        of it may be here."""
        is_begun = bool(self.body_mode.body) or not self._options.reading.reads_bodies
        return is_begun and not self.body_mode.has_all

    def _pass_on(self, body: RequestBody) -> PassThrough | LocalReply | InvalidRequest:
        head, allowed = self.head, self._allowed()
        self._hint = None
        resolver, paths = self._resolver, self._options.paths
        if paths.asks_for_stream(head.method, head.path):
            return self._stream(allowed)
        if paths.finds_streams(head.method, head.path):
            return self._lookup(allowed)
        if forbidden := may_pass(head, body, self._limit(), resolver):
            return InvalidRequest(forbidden.reason, forbidden.text)
        api = paths.needed_api(head.path, resolver.fleet)
        constraints = constraints_of(head, body, paths, resolver, allowed, api=api)
        if isinstance(constraints, NotServed):
            return InvalidRequest(constraints.reason, constraints.text, RETRY_S)
        if self._dispatcher.view.rules is not None:
            constraints = self._dispatcher.view.constrain(
                constraints, passing_request(head, constraints)
            )
        addresses = tuple(self._dispatcher.passing(constraints))
        is_restricted = (
            constraints.model is not None
            or constraints.by_rules is not None
            or bool(constraints.api)
            or bool(constraints.pool)
        )
        if addresses:
            return PassThrough(addresses, is_restricted=is_restricted)
        if constraints.by_rules is not None:
            return InvalidRequest(Reason.NO_ENDPOINT, NONE_BY_RULES, RETRY_S)
        if constraints.is_loaded:
            return InvalidRequest(Reason.NO_ENDPOINT, NOT_LOADED, RETRY_S)
        if allowed is not None or self._pool or self.body_mode.must_be_answered:
            return NOBODY
        return PassThrough(())

    def _stream(self, allowed: frozenset[Address] | None) -> PassThrough | InvalidRequest:
        """The server that has the conversation in the query, for the client that began it."""
        head, conversations = self.head, self._dispatcher.conversations
        address = conversations.server_of(head.queried_conversation, head.tenant)
        if address is None or not self._may_go_to(address, allowed):
            return InvalidRequest(Reason.CONVERSATION_NOT_FOUND)
        return PassThrough((address,), is_restricted=True)

    def _lookup(
        self, allowed: frozenset[Address] | None
    ) -> PassThrough | LocalReply | InvalidRequest:
        """The server of these conversations, as far as they are this client's; where several
        servers have them, what is known here."""
        body_mode = self.body_mode
        if not body_mode.is_whole or (ids := read_lookup(body_mode.body)) is None:
            return InvalidRequest(Reason.BAD_REQUEST, BAD_LOOKUP)
        found = {
            id_: lease
            for id_, lease in self._dispatcher.conversations.found(ids, self.head.tenant).items()
            if self._may_go_to(lease.address, allowed)
        }
        addresses = tuple({lease.address for lease in found.values()})
        if len(addresses) != 1:
            return LocalReply(lookup_result(found))
        return PassThrough(addresses, is_restricted=True, body=lookup_of(found))

    def _may_go_to(self, address: Address, allowed: frozenset[Address] | None) -> bool:
        """Whether a server is one of its pool, and the gateway allows it."""
        if self._pool and self._resolver.fleet.get(address) is None:
            return False
        return allowed is None or address in allowed

    def _local_reply(
        self, head: codec.RequestHead, paths: Paths
    ) -> LocalReply | InvalidRequest | None:
        """What no server is asked, of a request that takes no slot; None for the others."""
        name = paths.asks_for_model(head.method, head.path)
        if name is not None:
            return self._model(name)
        closed = paths.why_closed(head.method, head.path)
        if closed is not None:
            return InvalidRequest(closed)
        if paths.asks_for_models(head.method, head.path):
            models = self._models()
            if models is not None:
                return LocalReply(model_list(models))
        return None

    def _models(self) -> Models | None:
        models = fleet_models(self._resolver, self._options.started_at, self._allowed())
        if models is None:
            return None
        return listed(models, self._limit(), self._resolver)

    def _model(self, name: str) -> LocalReply | InvalidRequest:
        models = self._models()
        if models is None:
            return NOBODY
        found = one_model(models, name)
        if found is None:
            return InvalidRequest(Reason.MODEL_NOT_FOUND, f"The model `{name}` does not exist.")
        return LocalReply(found)

    def _limit(self) -> ClientLimit | None:
        """The limits of the client, if it has any."""
        return self._options.limits.limit_of(self.head.client)

    def _allowed(self) -> frozenset[Address] | None:
        if self._hint is None:
            return None
        return self._dispatcher.subset_hints.allowed(self._hint)


def _kind_of(head: codec.RequestHead, paths: Paths) -> Kind | None:
    """What it does with its slot; None when it takes none. Without a path, a request with a
    body takes one: gateways send only their inference routes."""
    if head.path or not head.has_body:
        return paths.slot_kind(head.method, head.path)
    return Kind.GENERATION
