"""The routes: open paths lead to a llama-server, all others are rejected; Envoy itself answers the
preflights of browsers."""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import betterproto2
from envoy_data_plane.envoy.config.core.v3 import DataSource
from envoy_data_plane.envoy.config.route.v3 import (
    DirectResponseAction,
    FilterConfig,
    HeaderMatcher,
    RetryPolicy,
    RetryPolicyRetryBackOff,
    RetryPolicyRetryHostPredicate,
    Route,
    RouteAction,
    RouteConfiguration,
    RouteMatch,
    VirtualHost,
)
from envoy_data_plane.envoy.extensions.filters.http.ext_proc.v3 import (
    ExtProcOverrides,
    ExtProcPerRoute,
)
from envoy_data_plane.envoy.extensions.filters.http.header_mutation.v3 import HeaderMutationPerRoute
from envoy_data_plane.envoy.extensions.retry.host.previous_hosts.v3 import PreviousHostsPredicate
from envoy_data_plane.envoy.type.matcher.v3 import (
    RegexMatchAndSubstitute,
    RegexMatcher,
    StringMatcher,
)
from envoy_data_plane.envoy.type.v3 import Int64Range

from extproc import header_names
from extproc.envoy_config import names
from extproc.envoy_config.messages import NEVER, has_metadata, seconds, set_header, typed
from extproc.envoy_config.options import EnvoyOptions
from extproc.envoy_config.path_patterns import blocked_patterns, open_patterns, path_patterns
from extproc.runners.apis import (
    APIS,
    CLOSED,
    CLOSED_PATHS,
    MODEL_PATHS,
    OPEN_PATHS,
    UNKNOWN,
    UNSTREAMED_PATHS,
)
from extproc.security.path_rule import DETOUR, HIDDEN_CHARACTER, PathRule

OK = 200
FORBIDDEN = 403
NOT_FOUND = 404
LOADING = 503
"""The response of a llama-server while its model is loading."""
PREFLIGHT = "OPTIONS"
BATCH_PATHS = "/v1/(?:files|batches)(?:/[A-Za-z0-9_-]+){0,2}"
"""With ids, `/content` and `/cancel`."""
NOTHING_BEGUN = ("connect-failure", "refused-stream", "reset-before-request")
"""Causes of a retry after which nobody has seen the request."""
LONG_BODY_BYTES = 32 * 1024
"""Envoy opens a stream again at another front with up to 64 KiB, headers and framing included."""
HOST_ATTEMPTS = 5
"""How often Envoy chooses again when it has chosen a host that was tried already."""


def route_configuration(options: EnvoyOptions) -> RouteConfiguration:
    """All routes, for every host name."""
    return RouteConfiguration(
        name="coxswain",
        virtual_hosts=[VirtualHost(name="coxswain", domains=["*"], routes=routes(options))],
        # Where the picker serves the cluster, it is not there before the picker is.
        validate_clusters=False if options.has_served_cluster else None,
    )


def routes(options: EnvoyOptions, *, is_shared: bool = False) -> list[Route]:
    """Preflights, what is blocked, the queue, what is closed, one model, what is unknown by each
    method, then the way to the servers.

    On a listener that `is_shared` with other routes, paths are not normalised before they are
    matched: those that would be are rejected.
    """
    queue = [_queue_route(options)] if options.status is not None else []
    return [
        _preflight_route(),
        *([_rejection("blocked-detour", _match(DETOUR), SHUT)] if is_shared else ()),
        *_blocked_routes(options.envoy.blocked),
        *queue,
        *([_batches_route(options)] if options.envoy.batches is not None else ()),
        *_closed_routes(options),
        _model_route(options),
        *_unknown_routes((*OPEN_PATHS, *options.envoy.opened), options.path_prefix),
        *_server_routes(options, is_shared=is_shared),
    ]


def _preflight_route() -> Route:
    """For every path and without a key, as llama-server answers, and also while nobody else is
    there: what a page may not do, it reads in the response to its request."""
    return Route(
        name="preflight",
        match=RouteMatch(prefix="/", headers=[_is_method(PREFLIGHT)]),
        direct_response=DirectResponseAction(status=OK),
        response_headers_to_add=[
            set_header(name, value) for name, value in header_names.PREFLIGHT.items()
        ],
    )


def _queue_route(options: EnvoyOptions) -> Route:
    """The countdown, which the picker serves over HTTP."""
    is_get = HeaderMatcher(name=":method", string_match=StringMatcher(exact="GET"))
    return Route(
        name=names.QUEUE_ROUTE,
        match=RouteMatch(prefix="/queue/", headers=[is_get]),
        # A stream sends events until the request is served.
        route=RouteAction(
            cluster=names.STATUS_CLUSTER,
            timeout=NEVER,
            idle_timeout=NEVER,
            retry_policy=_next_member(options) if options.other_status else None,
        ),
    )


def _batches_route(options: EnvoyOptions) -> Route:
    """The API of batches, which checks the clients' keys itself: nothing here takes a slot."""
    prefix = re.escape(options.path_prefix)
    return Route(
        name=names.BATCHES_ROUTE,
        match=_match(f"(?:{prefix})?{BATCH_PATHS}"),
        route=RouteAction(
            cluster=names.BATCHES_CLUSTER,
            timeout=NEVER,  # of a large file
            regex_rewrite=_without_prefix(prefix) if prefix else None,
        ),
    )


def _without_prefix(prefix: str) -> RegexMatchAndSubstitute:
    return RegexMatchAndSubstitute(
        pattern=RegexMatcher(regex=f"^{prefix}/v1/"), substitution="/v1/"
    )


def _model_route(options: EnvoyOptions) -> Route:
    """One model by its name, which the picker answers. No server has such a path, so without the
    picker Envoy says that nothing is there."""
    pattern = f"(?:{re.escape(options.path_prefix)})?{MODEL_PATHS}"
    unopened = _match_all_but(options.envoy.opened, options.path_prefix, [_is_method("GET")])
    return replace(
        _rejection("model", _match(pattern, unopened.headers), NOT_SERVED),
        typed_per_filter_config=_turned_on([(names.EXT_PROC_FILTER, _ASKING)]),
    )


def _blocked_routes(rules: Collection[PathRule]) -> Iterator[Route]:
    yield _rejection("blocked-escape", _match(HIDDEN_CHARACTER), SHUT)
    for method, group in _by_method(rules):
        headers = [_is_method(method)] if method else []
        for number, pattern in enumerate(blocked_patterns(group), 1):
            yield _rejection(_numbered("blocked", method, number), _match(pattern, headers), SHUT)


def _by_method(rules: Collection[PathRule]) -> Iterator[tuple[str | None, list[PathRule]]]:
    for method in dict.fromkeys(rule.method for rule in rules):
        yield method, [rule for rule in rules if rule.method == method]


def _numbered(name: str, method: str | None, number: int) -> str:
    return "-".join([name, *([method.lower()] if method else ()), str(number)])


def _closed_routes(options: EnvoyOptions) -> Iterator[Route]:
    """What is closed on purpose, unless the settings open it for some method."""
    plain = [rule for api in APIS if api.has_plain_errors for rule in api.closed_paths]
    others = [rule for rule in CLOSED_PATHS if rule not in plain]
    for first, rules, why in (("closed", others, SHUT), ("closed-plain", plain, SHUT_PLAINLY)):
        for method, group in _by_method(rules):
            headers = [_is_method(method)] if method else []
            unopened = _match_all_but(options.envoy.opened, options.path_prefix, headers)
            for number, pattern in enumerate(path_patterns(group, options.path_prefix), 1):
                name = _numbered(first, method, number)
                yield _rejection(name, _match(pattern, unopened.headers), why)


def _unknown_routes(rules: Collection[PathRule], prefix: str) -> Iterator[Route]:
    """One for each method with rules of its own, and one for all others: each takes what none of
    the patterns for that method opens."""
    methods = sorted({rule.method for rule in rules if rule.method})
    for method in methods:
        opened = [replace(rule, method=None) for rule in rules if rule.concerns(method)]
        match = _match_all_but(opened, prefix, [_is_method(method)])
        yield _rejection(f"unknown-{method.lower()}", match, NOT_SERVED)
    opened = [rule for rule in rules if rule.method is None]
    others = [replace(_is_method(method), invert_match=True) for method in methods]
    yield _rejection("unknown", _match_all_but(opened, prefix, others), NOT_SERVED)


def _match_all_but(
    opened: Collection[PathRule], prefix: str, headers: list[HeaderMatcher]
) -> RouteMatch:
    patterns = open_patterns(opened, prefix)
    return RouteMatch(
        prefix="/",
        headers=[
            *headers,
            *(
                HeaderMatcher(name=":path", string_match=_regex(pattern), invert_match=True)
                for pattern in patterns
            ),
        ],
    )


def _match(pattern: str, headers: Sequence[HeaderMatcher] = ()) -> RouteMatch:
    return RouteMatch(safe_regex=RegexMatcher(regex=pattern), headers=list(headers))


def _is_method(method: str) -> HeaderMatcher:
    """HEAD goes with GET."""
    text = _regex("GET|HEAD") if method == "GET" else StringMatcher(exact=method)
    return HeaderMatcher(name=":method", string_match=text)


def _regex(pattern: str) -> StringMatcher:
    return StringMatcher(safe_regex=RegexMatcher(regex=pattern))


class _Rejection(NamedTuple):
    """A rejection by a route, in OpenAI's error format, or in Ollama's if it `is_plain`; the code
    is the reason, too."""

    status: int
    message: str
    type: str
    code: str
    is_plain: bool = False


SHUT = _Rejection(FORBIDDEN, CLOSED, "permission_error", names.BLOCKED_PATH)
SHUT_PLAINLY = SHUT._replace(is_plain=True)
NOT_SERVED = _Rejection(NOT_FOUND, UNKNOWN, "invalid_request_error", names.UNKNOWN_PATH)


def _rejection(name: str, match: RouteMatch, why: _Rejection) -> Route:
    """A route that rejects by itself; the picker neither sees it nor is needed for it."""
    error = {"message": why.message, "type": why.type, "code": why.code}
    found = why.message if why.is_plain else error
    body = json.dumps({"error": found}, separators=(",", ":"))
    return Route(
        name=name,
        match=match,
        direct_response=DirectResponseAction(
            status=why.status, body=DataSource(inline_string=body)
        ),
        response_headers_to_add=[
            set_header("content-type", "application/json"),
            set_header(header_names.REASON, why.code),
        ],
    )


def _server_routes(options: EnvoyOptions, *, is_shared: bool) -> Iterator[Route]:
    for way in _ways(options, is_shared=is_shared):
        if options.asks_again:
            yield from _ways_of_uploads(way, options)
        yield way


def _ways(options: EnvoyOptions, *, is_shared: bool) -> Iterator[Route]:
    """One for all, the last, or those before it for requests that leave a connection to the next.

    llama-server closes the connection of a stream without saying so. Where it is asked to, it says
    so with the response, and no other request is sent on it.
    """
    route = _server_route(options, is_shared=is_shared)
    if not options.envoy.reuse_connections:
        yield route
        return
    rules = [PathRule(path) for path in UNSTREAMED_PATHS]
    for number, pattern in enumerate(path_patterns(rules, options.path_prefix), 1):
        match = _match(pattern, [_is_method("POST")])
        yield replace(route, name=f"llama-unstreamed-{number}", match=match)
    yield replace(route, request_headers_to_add=[set_header("connection", "close")])


def _ways_of_uploads(way: Route, options: EnvoyOptions) -> Iterator[Route]:
    """The same way for bodies with which a front may be lost.

    What the router keeps to be able to retry, it would send twice when the filter that asks the
    picker gives up, so a body that still comes is tried once. If it has no server yet, it is asked
    for again. A request goes another way when it has its server: then its route is chosen again.
    """
    assert way.route is not None
    once = replace(
        way,
        route=replace(way.route, retry_policy=_one_try(options)),
        typed_per_filter_config={
            **way.typed_per_filter_config,
            **_turned_on([(names.AGAIN_FILTER, _ASKING)]),
        },
    )
    unsized = HeaderMatcher(name="content-length", present_match=True, invert_match=True)
    yield _narrowed(once, "uploading", known=header_names.UPLOAD)
    yield _narrowed(way, "decided", known=header_names.DESTINATION)
    yield _narrowed(once, "long", _LONG)
    yield _narrowed(once, "unsized", _is_method("POST"), unsized)


def _narrowed(way: Route, name: str, *headers: HeaderMatcher, known: str | None = None) -> Route:
    """`way` for requests that match these headers too, and of which the picker set what is
    `known`."""
    assert way.match is not None
    match = replace(
        way.match,
        headers=[*way.match.headers, *headers],
        dynamic_metadata=[] if known is None else [has_metadata(known)],
    )
    return replace(way, name=f"{way.name}-{name}", match=match)


def _server_route(options: EnvoyOptions, *, is_shared: bool) -> Route:
    return Route(
        name="llama",
        match=RouteMatch(prefix="/"),
        route=RouteAction(
            cluster=names.LLAMA_CLUSTER,
            timeout=NEVER,  # an answer may take hours
            idle_timeout=NEVER,  # and so may the time in the queue
            auto_host_rewrite=True if options.envoy.host_rewrite else None,
            retry_policy=_retry_policy(options),
        ),
        # A try can be repeated only while its body is still at hand.
        request_body_buffer_limit=options.envoy.body_buffer_bytes,
        typed_per_filter_config=_turned_on(_filters_of_servers(options, is_shared=is_shared)),
    )


def _filters_of_servers(
    options: EnvoyOptions, *, is_shared: bool
) -> Iterator[tuple[str, betterproto2.Message]]:
    """The filters that are on for this route alone, with what it sets in them: nothing."""
    if is_shared:
        yield names.REMOVALS_FILTER, HeaderMutationPerRoute()
    yield names.EXT_PROC_FILTER, _ASKING
    if options.has_usage_filter:
        yield names.USAGE_FILTER, _ASKING
    if options.has_fronts:
        yield names.ARRIVAL_FILTER, HeaderMutationPerRoute()


def _turned_on(filters: Iterable[tuple[str, betterproto2.Message]]) -> dict[str, Any]:
    """Filters are off unless their route turns them on."""
    return {name: typed(FilterConfig(config=typed(nothing))) for name, nothing in filters}


_ASKING = ExtProcPerRoute(overrides=ExtProcOverrides())
_LONG = HeaderMatcher(
    name="content-length", range_match=Int64Range(start=LONG_BODY_BYTES, end=2**63 - 1)
)


def _next_member(options: EnvoyOptions) -> RetryPolicy:
    """Ask the next member of a cluster when one cannot be reached."""
    return RetryPolicy(
        retry_on=",".join(NOTHING_BEGUN),
        num_retries=len(options.other_status),
        retry_host_predicate=[_previous_hosts()],
        host_selection_retry_max_attempts=HOST_ATTEMPTS,
    )


def _previous_hosts() -> RetryPolicyRetryHostPredicate:
    return RetryPolicyRetryHostPredicate(
        name="envoy.retry_host_predicates.previous_hosts",
        typed_config=typed(PreviousHostsPredicate()),
    )


def _retry_policy(options: EnvoyOptions) -> RetryPolicy:
    """Try the next endpoint of the picker's list, but only where no server began the work.

    A server that broke down over a request is no reason to bring the next one down with it,
    so a reset after the request was sent is not retried.
    """
    walks = options.has_discovery
    return RetryPolicy(
        retry_on=",".join((*NOTHING_BEGUN, *(["retriable-status-codes"] if walks else []))),
        retriable_status_codes=[LOADING] if walks else [],
        num_retries=options.envoy.retries if walks else min(options.envoy.retries, 1),
        per_try_idle_timeout=seconds(options.envoy.per_try_idle_timeout_s),
        retry_back_off=RetryPolicyRetryBackOff(
            base_interval=seconds(0.005), max_interval=seconds(0.1)
        ),
        retry_host_predicate=[_previous_hosts()] if walks else [],
        host_selection_retry_max_attempts=HOST_ATTEMPTS if walks else 0,
    )


def _one_try(options: EnvoyOptions) -> RetryPolicy:
    return RetryPolicy(per_try_idle_timeout=seconds(options.envoy.per_try_idle_timeout_s))
