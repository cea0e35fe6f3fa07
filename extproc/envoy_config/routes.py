"""Which requests go where: blocked paths end here, everything else goes to a llama-server."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator

from envoy_data_plane.envoy.config.core.v3 import (
    DataSource,
    HeaderValue,
    HeaderValueOption,
    HeaderValueOptionHeaderAppendAction,
)
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
from envoy_data_plane.envoy.extensions.retry.host.previous_hosts.v3 import PreviousHostsPredicate
from envoy_data_plane.envoy.type.matcher.v3 import RegexMatcher, StringMatcher

from extproc.core.blocked_path import BlockedPath
from extproc.envoy_config import names
from extproc.envoy_config.blocked_path import HIDDEN_CHARACTER, path_pattern
from extproc.envoy_config.messages import NEVER, seconds, typed
from extproc.envoy_config.options import EnvoyOptions

FORBIDDEN = 403
LOADING = 503
"""What a llama-server answers while its model is not there yet."""


def route_configuration(options: EnvoyOptions) -> RouteConfiguration:
    """All routes, for every host name."""
    return RouteConfiguration(
        name="coxswain",
        virtual_hosts=[VirtualHost(name="coxswain", domains=["*"], routes=routes(options))],
        # Where the picker serves the cluster, it is not there before the picker is.
        validate_clusters=False if options.has_served_cluster else None,
    )


def routes(options: EnvoyOptions) -> list[Route]:
    """The blocked paths, one route for each method, the queue, then the way to the servers."""
    queue = [_queue_route(options)] if options.status is not None else []
    return [*_blocked_routes(options.blocked_paths), *queue, _server_route(options)]


def _queue_route(options: EnvoyOptions) -> Route:
    """Where a waiting request stands; the picker answers it itself, over HTTP."""
    is_get = HeaderMatcher(name=":method", string_match=StringMatcher(exact="GET"))
    return Route(
        name="queue",
        match=RouteMatch(prefix="/queue/", headers=[is_get]),
        # A stream tells until the request is served.
        route=RouteAction(cluster=options.status_cluster, timeout=NEVER, idle_timeout=NEVER),
    )


def _blocked_routes(rules: tuple[BlockedPath, ...]) -> Iterator[Route]:
    by_method: defaultdict[str | None, list[BlockedPath]] = defaultdict(list)
    for rule in rules:
        by_method[rule.method].append(rule)
    if rules:
        yield _refusal("blocked-escape", HIDDEN_CHARACTER, None)
    for method, group in by_method.items():
        name = f"blocked-{method.lower()}" if method else "blocked"
        yield _refusal(name, path_pattern(group), method)


def _refusal(name: str, pattern: str, method: str | None) -> Route:
    """A route that answers 403 by itself; the picker neither sees it nor is needed for it."""
    is_method = HeaderMatcher(name=":method", string_match=StringMatcher(exact=method))
    return Route(
        name=name,
        match=RouteMatch(
            safe_regex=RegexMatcher(regex=pattern), headers=[is_method] if method else []
        ),
        direct_response=DirectResponseAction(
            status=FORBIDDEN, body=DataSource(inline_string=_refusal_body())
        ),
        response_headers_to_add=[
            _header("content-type", "application/json"),
            _header(names.REASON, names.BLOCKED_PATH),
        ],
    )


def _refusal_body() -> str:
    error = {
        "message": "This path is closed here: it would show or change a server for everybody.",
        "type": "permission_error",
        "code": names.BLOCKED_PATH,
    }
    return json.dumps({"error": error}, separators=(",", ":"))


def _header(key: str, value: str) -> HeaderValueOption:
    return HeaderValueOption(
        header=HeaderValue(key=key, value=value),
        append_action=HeaderValueOptionHeaderAppendAction.OVERWRITE_IF_EXISTS_OR_ADD,
    )


def _server_route(options: EnvoyOptions) -> Route:
    return Route(
        name="llama",
        match=RouteMatch(prefix="/"),
        route=RouteAction(
            cluster=options.llama_cluster,
            timeout=NEVER,  # an answer may take hours
            idle_timeout=NEVER,  # and so may the line before it
            auto_host_rewrite=True if options.host_rewrite else None,
            retry_policy=_retry_policy(options),
        ),
        # A try can be repeated only while its body is still at hand.
        request_body_buffer_limit=options.body_buffer_bytes,
        # Only here is the picker asked; the filter itself is off by default.
        typed_per_filter_config={
            names.EXT_PROC_FILTER: typed(
                FilterConfig(config=typed(ExtProcPerRoute(overrides=ExtProcOverrides())))
            )
        },
    )


def _retry_policy(options: EnvoyOptions) -> RetryPolicy:
    """Try the next endpoint of the picker's list, but only where no server began the work.

    A server that broke down over a request is no reason to bring the next one down with it,
    so a reset after the request was sent is not retried.
    """
    walks = options.has_discovery
    causes = ["connect-failure", "refused-stream", "reset-before-request"]
    return RetryPolicy(
        retry_on=",".join([*causes, "retriable-status-codes"] if walks else causes),
        retriable_status_codes=[LOADING] if walks else [],
        num_retries=options.retries if walks else min(options.retries, 1),
        per_try_idle_timeout=seconds(options.per_try_idle_timeout_s),
        retry_back_off=RetryPolicyRetryBackOff(
            base_interval=seconds(0.005), max_interval=seconds(0.1)
        ),
        retry_host_predicate=[
            RetryPolicyRetryHostPredicate(
                name="envoy.retry_host_predicates.previous_hosts",
                typed_config=typed(PreviousHostsPredicate()),
            )
        ]
        if walks
        else [],
        host_selection_retry_max_attempts=5 if walks else 0,
    )
