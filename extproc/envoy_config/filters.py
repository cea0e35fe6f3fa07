"""The HTTP filters: ask the picker, then forward."""

from envoy_data_plane.envoy.config.common.mutation_rules.v3 import (
    HeaderMutation as HeaderMutationStep,
)
from envoy_data_plane.envoy.config.common.mutation_rules.v3 import (
    HeaderMutationRemoveOnMatch,
    HeaderMutationRules,
)
from envoy_data_plane.envoy.config.core.v3 import BackoffStrategy, GrpcService, RetryPolicy
from envoy_data_plane.envoy.extensions.filters.http.ext_proc.v3 import (
    ExternalProcessor,
    ExternalProcessorRouteCacheAction,
    HeaderForwardingRules,
    MetadataOptions,
    MetadataOptionsMetadataNamespaces,
    ProcessingMode,
    ProcessingModeBodySendMode,
    ProcessingModeHeaderSendMode,
)
from envoy_data_plane.envoy.extensions.filters.http.header_mutation.v3 import (
    HeaderMutation,
    Mutations,
)
from envoy_data_plane.envoy.extensions.filters.http.router.v3 import Router
from envoy_data_plane.envoy.extensions.filters.http.upstream_codec.v3 import UpstreamCodec
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import HttpFilter
from envoy_data_plane.envoy.type.matcher.v3 import ListStringMatcher, StringMatcher
from envoy_data_plane.envoy.type.v3 import HttpStatus, StatusCode

from extproc import header_names
from extproc.envoy_config import names
from extproc.envoy_config.broken_framing import unless_malformed
from extproc.envoy_config.credentials import authorization_steps, memory_of_authorization
from extproc.envoy_config.messages import grpc_service, seconds, set_header, typed
from extproc.envoy_config.options import EnvoyOptions, Mode
from extproc.transport.long_wait import LONG, LONG_WAIT

RESPONSE_ATTRIBUTES = [
    "upstream.address",
    "upstream.request_attempt_count",
    "response.code_details",
]
"""The attributes that the picker gets with the response headers: serving host, attempts, details.
"""
ARRIVAL = "%START_TIME(%s.%6f)%"
"""Envoy's own time of a request's arrival, in the form that the picker reads."""

OWN_HEADERS = (
    header_names.DESTINATION,
    header_names.SERVED,
    header_names.SUBSET,
    header_names.CLIENT,
)
"""Headers that control routing or identify the client; clients must not set them."""

REOPENINGS = 5
"""How often a stream is opened again, over about half a second: a front is replaced in less, and
connections reach the others meanwhile."""


def ext_proc(options: EnvoyOptions) -> list[HttpFilter]:
    """The filter that asks the picker, and where a front may be lost with a part of a long body,
    the same filter again: it is on for those bodies, and asks for a request that has no server yet.
    """
    first = _asking(options)
    return [first, _asking(options, again=True)] if options.asks_again else [first]


def _asking(options: EnvoyOptions, *, again: bool = False) -> HttpFilter:
    """Ask the picker once for each request, whatever its number of tries.

    Bodies stay out of it unless the picker asks for one by `mode_override`, but for the mode
    of gateways, where all of them flow through it. Response trailers are on although
    llama-server sends none: it keeps the stream, and with it the lease, open until the answer
    has ended.

    It is on for the route to the servers alone. A request that is rejected before it has a
    route (too many headers, not HTTP) would otherwise have its rejection held back for the
    picker's word about it, and lost, since Envoy closes such a connection at once; behind the
    route, `unless_malformed` lets such a rejection pass.
    """
    name = names.AGAIN_FILTER if again else names.EXT_PROC_FILTER
    return HttpFilter(
        name=name,
        disabled=True,  # but on the route to the servers
        typed_config=typed(
            unless_malformed(name, _processor(options, again=again), or_has_server=again)
        ),
    )


def _processor(options: EnvoyOptions, *, again: bool) -> ExternalProcessor:
    arrival = [header_names.ARRIVED_AT] if options.has_fronts else []
    headers = sorted(
        {
            *header_names.REQUEST_HEADERS,
            *header_names.RESPONSE_HEADERS,
            *arrival,
            *options.pool_headers,
        }
    )
    return ExternalProcessor(
        grpc_service=_picker_service(options, again=again),
        stat_prefix=names.STAT_PREFIX,
        failure_mode_allow=options.fails_open,
        status_on_error=None
        if options.fails_open
        else HttpStatus(code=StatusCode.ServiceUnavailable),
        processing_mode=_processing_mode(options),
        allow_mode_override=options.mode is not Mode.GATEWAY,
        send_body_without_waiting_for_header_response=options.sends_early,
        message_timeout=seconds(options.message_timeout_s),
        max_message_timeout=seconds(options.envoy.max_message_timeout_s),
        # Routes are chosen before the picker is asked: it cannot be talked into opening a blocked
        # path. With fronts its decision chooses between those to the servers.
        route_cache_action=(
            ExternalProcessorRouteCacheAction.CLEAR
            if options.asks_again
            else ExternalProcessorRouteCacheAction.RETAIN
        ),
        # x-envoy-max-retries: a retry after the last fallback could reach any server.
        mutation_rules=HeaderMutationRules(allow_all_routing=False, allow_envoy=True),
        forward_rules=HeaderForwardingRules(
            allowed_headers=ListStringMatcher(
                patterns=[StringMatcher(exact=name) for name in headers]
            )
        ),
        metadata_options=MetadataOptions(
            forwarding_namespaces=MetadataOptionsMetadataNamespaces(
                untyped=_forwarded_namespaces(options)
            ),
            receiving_namespaces=MetadataOptionsMetadataNamespaces(
                untyped=[header_names.LB_NAMESPACE]
            ),
        ),
        request_attributes=list(options.pool_attributes),
        response_attributes=RESPONSE_ATTRIBUTES,
    )


def _picker_service(options: EnvoyOptions, *, again: bool) -> GrpcService:
    """With several fronts, a stream whose front died before it answered goes to another one. So
    that no answer is needed while a request is queued, the message timeout is long, and the header
    says so."""
    if not options.has_fronts:
        return grpc_service(names.PICKER_CLUSTER)
    reopening = RetryPolicy(
        num_retries=REOPENINGS,
        retry_on="reset,connect-failure,refused-stream,unavailable,internal,cancelled",
        retry_back_off=BackoffStrategy(base_interval=seconds(0.025), max_interval=seconds(0.25)),
    )
    cluster = names.PICKER_AGAIN_CLUSTER if again else names.PICKER_CLUSTER
    return grpc_service(cluster, metadata=[(LONG_WAIT, LONG)], reopening=reopening)


def _forwarded_namespaces(options: EnvoyOptions) -> list[str]:
    """The metadata that Envoy sends to the picker: the subset hint. Gateways also report there who
    served; here an attribute does, so the picker's own metadata is not sent back."""
    if options.mode is Mode.GATEWAY:
        namespaces = [header_names.LB_NAMESPACE, header_names.SUBSET_NAMESPACE]
    else:
        namespaces = [header_names.SUBSET_NAMESPACE]
    return [*namespaces, *(one for one in options.pool_namespaces if one not in namespaces)]


def _processing_mode(options: EnvoyOptions) -> ProcessingMode:
    is_gateway = options.mode is Mode.GATEWAY
    request = response = ProcessingModeBodySendMode.NONE
    if is_gateway:
        request = response = ProcessingModeBodySendMode.FULL_DUPLEX_STREAMED
    elif options.sends_early:
        request = ProcessingModeBodySendMode.STREAMED
    send, skip = ProcessingModeHeaderSendMode.SEND, ProcessingModeHeaderSendMode.SKIP
    return ProcessingMode(
        request_header_mode=send,
        response_header_mode=send,
        request_body_mode=request,
        response_body_mode=response,
        request_trailer_mode=skip if request is ProcessingModeBodySendMode.NONE else send,
        response_trailer_mode=send,
    )


def router() -> HttpFilter:
    """The last filter, the router."""
    return HttpFilter(
        name="envoy.filters.http.router",
        typed_config=typed(Router(suppress_envoy_headers=True)),
    )


def first_filters(options: EnvoyOptions) -> list[HttpFilter]:
    """The filters before the picker: storage of the client's key, unless that is for the picker
    alone, and with fronts the time of arrival."""
    is_kept = options.keeps_authorization and not options.checks_clients
    found = [memory_of_authorization()] if is_kept else []
    return [*found, _arrival()] if options.has_fronts else found


def removed_headers() -> list[HeaderMutationStep]:
    """Removes control headers that a client has sent."""
    envoys_own = HeaderMutationRemoveOnMatch(key_matcher=StringMatcher(prefix="x-envoy-"))
    return [
        *(HeaderMutationStep(remove=name) for name in OWN_HEADERS),
        HeaderMutationStep(remove_on_match=envoys_own),
    ]


def removals() -> HttpFilter:
    """Remove control headers, on the route to the servers alone: for a listener with other routes.
    Envoy reads its own headers only in the router."""
    return HttpFilter(
        name=names.REMOVALS_FILTER,
        disabled=True,
        typed_config=typed(
            HeaderMutation(mutations=Mutations(request_mutations=removed_headers()))
        ),
    )


def _arrival() -> HttpFilter:
    """Write into each request when it arrived, over what its client may have written there.

    The attribute `request.time` would say the same, but Envoy evaluates an expression for it,
    which costs many times as much. It is on for the route to the servers alone.
    """
    step = HeaderMutationStep(append=set_header(header_names.ARRIVED_AT, ARRIVAL))
    return HttpFilter(
        name=names.ARRIVAL_FILTER,
        disabled=True,
        typed_config=typed(HeaderMutation(mutations=Mutations(request_mutations=[step]))),
    )


def last_filters(options: EnvoyOptions) -> list[HttpFilter]:
    """The filters after the selection of the server: removed headers, and servers' keys."""
    ours = (
        header_names.DESTINATION,
        header_names.ARRIVED_AT,
        *sorted(header_names.CONTROL_HEADERS),
    )
    steps = [HeaderMutationStep(remove=name) for name in ours]
    if options.injects_keys:
        steps += authorization_steps()
    forget = Mutations(request_mutations=steps)
    return [
        HttpFilter(
            name="envoy.filters.http.header_mutation",
            typed_config=typed(HeaderMutation(mutations=forget)),
        ),
        HttpFilter(name="envoy.filters.http.upstream_codec", typed_config=typed(UpstreamCodec())),
    ]
