"""The dry run: explains the decision about a request that is not sent."""

from dataclasses import replace
from random import Random
from typing import Final

from extproc.core.address import Address
from extproc.core.constraints import NO_POOL, Constraints
from extproc.core.fleet.resolver import RequestResolver
from extproc.core.rejection import Reason
from extproc.core.request import Kind
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.core.views.explain import (
    DryRunRequest,
    Explanation,
    explain,
    explain_passing,
)
from extproc.pb import external_processor_pb2 as pb
from extproc.stream.envoy import codec
from extproc.stream.exchange import ExchangeOptions
from extproc.stream.model_list import OURS, fleet_models, one_model
from extproc.stream.request.body import RequestBody
from extproc.stream.request.conversation_lookup import (
    BAD_ID,
    BAD_LOOKUP,
    is_conversation_id,
    read_lookup,
)
from extproc.stream.request.passing import NotServed, constraints_of, passing_request
from extproc.stream.request.permission import Forbidden, listed, may_pass, permitted
from extproc.stream.request.translate import NO_BODY, NOT_READ, understand

NO_CLIENTS: Final = "no request has one: keys are not checked (clients.keys_file)"


def dry_run(
    dispatcher: Dispatcher, options: ExchangeOptions, inquiry: DryRunRequest, now: float
) -> Explanation:
    """Read the request as an exchange does, and explain its outcome at `now`. Changes nothing."""
    headers = pb.HttpHeaders()
    pseudo = {":method": inquiry.method, ":path": inquiry.path}
    for key, value in {**inquiry.headers, **pseudo}.items():
        headers.headers.headers.add(key=key.lower(), raw_value=value.encode())
    try:
        head = _asker(options.read_head(headers), options, inquiry)
    except codec.BadRequestError as error:
        head = _asker(error.head, options, inquiry)
        return _without_key(head, options, inquiry) or _refused(str(error))
    pool, is_known = _pool_of(headers, options, inquiry)
    if not is_known:
        return _without_key(head, options, inquiry) or Explanation(
            candidates=(), reason=Reason.NO_POOL
        )
    resolver = dispatcher.resolver.of_pool(pool)
    if options.envoy.health and options.paths.asks_for_health(head.method, head.path):
        return Explanation(candidates=(), takes_slot=False, resolved={"answered_by": OURS})
    if refused := _without_key(head, options, inquiry):
        return refused
    if options.routing.keeps_conversations and not is_conversation_id(head.conversation):
        return _refused(BAD_ID)
    kind = options.paths.slot_kind(head.method, head.path)
    if kind is None:
        return _beside_slots(dispatcher, resolver, options, head, inquiry.body)
    raw, body = _read(options, head, kind, inquiry.body)
    if options.reading.is_strict and body.problem is not None:
        return _refused(f"The body {body.problem}.")
    request = understand(
        head,
        body,
        raw,
        kind=kind,
        is_whole=True,
        allowed=None,
        longest_s=options.queue.timeout_s,
        resolver=resolver,
        path=options.paths.below_prefix(head.path),
        api=options.paths.needed_api(head.path, resolver.fleet),
    )
    if isinstance(request, str):
        return _refused(request)
    details = _client_details(head)
    if inquiry.client and options.keys is None:
        details["client"] = NO_CLIENTS
    limit = options.limits.limit_of(head.client)
    allowed = permitted(request, body, limit, resolver)
    if isinstance(allowed, Forbidden):
        details["problem"] = allowed.text
        return Explanation(candidates=(), reason=allowed.reason, resolved=details)
    request = allowed
    admitted = request if dispatcher.view.rules is None else dispatcher.view.rules.admit(request)
    if isinstance(admitted, str):
        details["rule"] = admitted
        return Explanation(candidates=(), reason=Reason.REJECTED_BY_RULE, resolved=details)
    request = admitted
    exceeded = options.limits.exceeded(head.client, now)
    if exceeded is not None:
        details["limit"] = codec.limit_text(exceeded)
        return Explanation(candidates=(), reason=codec.reason_of(exceeded), resolved=details)
    full = options.limits.queue_full(head.client, now)
    explanation = explain(dispatcher.view, request, now, may_queue=full is None)
    if body.problem is not None:
        # It is routed without the missing information, so report the problem.
        details["body"] = f"it {body.problem}"
    if full is not None and explanation.reason is Reason.RATE_LIMITED:
        details["limit"] = codec.limit_text(full)
    return replace(explanation, resolved={**explanation.resolved, **details})


def _pool_of(
    headers: pb.HttpHeaders, options: ExchangeOptions, inquiry: DryRunRequest
) -> tuple[str, bool]:
    """The pool of the request, the one that is named or by its headers, and whether there is one
    for it, or none is needed."""
    if options.pools is None:
        return NO_POOL, not inquiry.pool
    if inquiry.pool:
        return inquiry.pool, options.pools.has(inquiry.pool)
    pool = options.pools.of(pb.ProcessingRequest(request_headers=headers))
    return pool, bool(pool)


def _asker(
    head: codec.RequestHead, options: ExchangeOptions, inquiry: DryRunRequest
) -> codec.RequestHead:
    """The request with the key of the client that is named, if there is such a client."""
    is_known = options.keys is not None and options.keys.is_client(inquiry.client)
    return head.of_client(inquiry.client) if is_known else head


def _without_key(
    head: codec.RequestHead, options: ExchangeOptions, inquiry: DryRunRequest
) -> Explanation | None:
    """The rejection of a request without a client's key, where it needs one."""
    if options.keys is None:
        return None
    if inquiry.client and head.client != inquiry.client:
        problem = "no client of this name has a key"
    elif head.client:
        return None
    else:
        problem = "it has no client's key: name the client (--client), or give the key as a header"
    return Explanation(candidates=(), reason=Reason.INVALID_API_KEY, resolved={"problem": problem})


def _client_details(head: codec.RequestHead) -> dict[str, str]:
    """Who shares the slots fairly: the client and what it says of its own users."""
    details = {"client": head.client, "fairness_id": head.fairness_id}
    return {name: value for name, value in details.items() if value}


def _read(
    options: ExchangeOptions, head: codec.RequestHead, kind: Kind, raw: bytes
) -> tuple[bytes, RequestBody]:
    """The body as the picker has it, and what it says; an empty one stands for none."""
    if not raw:
        return raw, NO_BODY
    if not options.reading.reads_bodies:
        return b"", NOT_READ
    return raw, options.reading.read(head, kind, raw, is_whole=True)


def _explain_passing(
    dispatcher: Dispatcher,
    resolver: RequestResolver,
    options: ExchangeOptions,
    head: codec.RequestHead,
    raw: bytes,
) -> Explanation:
    _, body = _read(options, head, Kind.GENERATION, raw)
    limit = options.limits.limit_of(head.client)
    if forbidden := may_pass(head, body, limit, resolver):
        return Explanation(
            candidates=(),
            reason=forbidden.reason,
            takes_slot=False,
            resolved={"problem": forbidden.text},
        )
    constraints = constraints_of(
        head,
        body,
        options.paths,
        resolver,
        None,
        Random(0),
        api=options.paths.needed_api(head.path, resolver.fleet),
    )
    if isinstance(constraints, NotServed):
        problem = {"problem": constraints.text} if constraints.text else {}
        return Explanation(
            candidates=(), reason=constraints.reason, takes_slot=False, resolved=problem
        )
    if dispatcher.view.rules is not None:
        constraints = dispatcher.view.constrain(constraints, passing_request(head, constraints))
    return explain_passing(dispatcher.view, constraints)


def _beside_slots(
    dispatcher: Dispatcher,
    resolver: RequestResolver,
    options: ExchangeOptions,
    head: codec.RequestHead,
    raw: bytes,
) -> Explanation:
    """A request that takes no slot."""
    paths, models = options.paths, fleet_models(resolver, options.started_at)
    if models is not None:
        models = listed(models, options.limits.limit_of(head.client), resolver)
    answered = Explanation(candidates=(), takes_slot=False, resolved={"answered_by": OURS})
    if head.method == "OPTIONS":
        return answered
    name = paths.asks_for_model(head.method, head.path)
    reason = None if name is not None else paths.why_closed(head.method, head.path)
    if name is not None and (models is None or one_model(models, name) is None):
        reason = Reason.NO_ENDPOINT if models is None else Reason.MODEL_NOT_FOUND
    if reason is not None:
        return Explanation(candidates=(), reason=reason, takes_slot=False)
    is_list = models is not None and paths.asks_for_models(head.method, head.path)
    if name is not None or is_list:
        return answered
    if paths.asks_for_stream(head.method, head.path):
        address = dispatcher.conversations.server_of(head.queried_conversation, head.tenant)
        if address is None:
            reason = Reason.CONVERSATION_NOT_FOUND
            return Explanation(candidates=(), reason=reason, takes_slot=False)
        return _explain_conversation(dispatcher, address)
    if paths.finds_streams(head.method, head.path):
        if (ids := read_lookup(raw)) is None:
            return replace(_refused(BAD_LOOKUP), takes_slot=False)
        found = dispatcher.conversations.found(ids, head.tenant)
        servers = {lease.address for lease in found.values()}
        return _explain_conversation(dispatcher, *servers) if len(servers) == 1 else answered
    return _explain_passing(dispatcher, resolver, options, head, raw)


def _explain_conversation(dispatcher: Dispatcher, address: Address) -> Explanation:
    """Only the server that has it may get the request, in whatever state it is."""
    endpoint = dispatcher.fleet.get(address)
    pool = NO_POOL if endpoint is None else endpoint.spec.pool
    only = Constraints(allowed=frozenset({address}), pool=pool)
    return replace(explain_passing(dispatcher.view, only), chosen=address)


def _refused(problem: str) -> Explanation:
    return Explanation(candidates=(), reason=Reason.BAD_REQUEST, resolved={"problem": problem})
