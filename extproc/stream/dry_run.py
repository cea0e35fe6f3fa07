"""The dry run: explains the decision about a request that is not sent."""

from dataclasses import replace

from extproc.core.rejection import Reason
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.core.scheduler.explain import DryRunRequest, Explanation, explain, explain_passing
from extproc.pb import external_processor_pb2 as pb
from extproc.stream.envoy import codec
from extproc.stream.exchange import ExchangeOptions
from extproc.stream.model_list import OURS, fleet_models
from extproc.stream.request.translate import NOT_READ, understand


def dry_run(
    dispatcher: Dispatcher, options: ExchangeOptions, inquiry: DryRunRequest, now: float
) -> Explanation:
    """Read the request as an exchange does, and explain its outcome at `now`. Changes nothing."""
    headers = pb.HttpHeaders()
    pseudo = {":method": inquiry.method, ":path": inquiry.path}
    for key, value in {**inquiry.headers, **pseudo}.items():
        headers.headers.headers.add(key=key.lower(), raw_value=value.encode())
    try:
        head = codec.read_request_head(headers)
    except codec.BadRequestError as error:
        return _refused(str(error))
    if options.answers_health and options.paths.asks_for_health(head.method, head.path):
        return Explanation(candidates=(), takes_slot=False, resolved={"answered_by": OURS})
    kind = options.paths.slot_kind(head.method, head.path)
    if kind is None:
        if options.paths.is_closed(head.method, head.path):
            return Explanation(candidates=(), reason=Reason.BLOCKED_PATH, takes_slot=False)
        asks_for_models = options.paths.asks_for_models(head.method, head.path)
        if asks_for_models and fleet_models(dispatcher, options.started_at) is not None:
            return Explanation(candidates=(), takes_slot=False, resolved={"answered_by": OURS})
        return explain_passing(dispatcher)
    raw = inquiry.body if options.reading.wants_body(head) else b""
    body = options.reading.read(kind, raw, is_whole=True) if raw and head.has_json else NOT_READ
    if options.reading.is_strict and body.problem is not None:
        return _refused(f"The body {body.problem}.")
    request = understand(
        head,
        body,
        raw,
        kind=kind,
        is_whole=True,
        allowed=None,
        longest_s=options.queue_timeout_s,
        resolver=dispatcher.resolver,
    )
    if isinstance(request, str):
        return _refused(request)
    explanation = explain(dispatcher, request, now)
    if body.problem is None:
        return explanation
    # The request is routed without the missing information, so report the problem.
    return replace(explanation, resolved={**explanation.resolved, "body": f"it {body.problem}"})


def _refused(problem: str) -> Explanation:
    return Explanation(candidates=(), reason=Reason.BAD_REQUEST, resolved={"problem": problem})
