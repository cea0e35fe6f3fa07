"""API keys: those of clients, which Envoy checks, and those of servers, which Envoy sends.

A server's key comes with its address from discovery and is set at each try, when the server
is known: a retry on another server carries that one's key, or the client's own again where
it has none. What the client sent is remembered before, since tries share their headers.
"""

from dataclasses import replace
from typing import Final

from envoy_data_plane.envoy.config.common.mutation_rules.v3 import HeaderMutation
from envoy_data_plane.envoy.config.core.v3 import (
    HeaderValue,
    HeaderValueOption,
    HeaderValueOptionHeaderAppendAction,
)
from envoy_data_plane.envoy.config.route.v3 import FilterConfig, Route
from envoy_data_plane.envoy.extensions.filters.http.api_key_auth.v3 import (
    ApiKeyAuth,
    ApiKeyAuthPerRoute,
    Credential,
    Forwarding,
    KeySource,
)
from envoy_data_plane.envoy.extensions.filters.http.header_to_metadata.v3 import (
    Config,
    ConfigKeyValuePair,
    ConfigRule,
    ConfigValueType,
)
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import HttpFilter

from extproc.envoy_config import names
from extproc.envoy_config.messages import typed
from extproc.envoy_config.tls_files import ClientKey

CHECK = "envoy.filters.http.api_key_auth"
AUTHORIZATION = "authorization"
REMEMBERED = "client_authorization"
_FORWARDING: Final = Forwarding(header=names.CLIENT, hide_credentials=True)
"""A route that switches the check on inherits the keys that are known, but not this."""


def check_of_clients(keys: tuple[ClientKey, ...], *, on_named_routes: bool = False) -> HttpFilter:
    """Reject requests without one of these keys with 401, and remove the key.

    `on_named_routes`: only on those that `with_check_of_clients` made.
    """
    return HttpFilter(
        name=CHECK,
        disabled=on_named_routes,
        typed_config=typed(
            ApiKeyAuth(
                credentials=[Credential(key=key.key, client=key.client) for key in keys],
                key_sources=[KeySource(header=AUTHORIZATION), KeySource(header="x-api-key")],
                forwarding=_FORWARDING,
            )
        ),
    )


def with_check_of_clients(route: Route) -> Route:
    """The same route, with authentication of clients."""
    is_on = typed(FilterConfig(config=typed(ApiKeyAuthPerRoute(forwarding=_FORWARDING))))
    return replace(route, typed_per_filter_config={**route.typed_per_filter_config, CHECK: is_on})


def memory_of_authorization() -> HttpFilter:
    """Keep the client's own key for attempts at servers without an injected key."""
    remembered = ConfigKeyValuePair(
        metadata_namespace=names.COXSWAIN_NAMESPACE, key=REMEMBERED, type=ConfigValueType.STRING
    )
    return HttpFilter(
        name="envoy.filters.http.header_to_metadata",
        typed_config=typed(
            Config(request_rules=[ConfigRule(header=AUTHORIZATION, on_header_present=remembered)])
        ),
    )


def authorization_steps() -> list[HeaderMutation]:
    """Before each attempt: the server's key if it has one, else the client's header."""
    namespace = names.COXSWAIN_NAMESPACE
    return [
        HeaderMutation(remove=AUTHORIZATION),
        _set(f"%DYNAMIC_METADATA({namespace}:{REMEMBERED})%"),
        _set(f"%UPSTREAM_METADATA({namespace}:{names.SERVER_AUTHORIZATION})%"),
    ]


def _set(value: str) -> HeaderMutation:
    """An empty value leaves the header as it is."""
    return HeaderMutation(
        append=HeaderValueOption(
            header=HeaderValue(key=AUTHORIZATION, value=value),
            append_action=HeaderValueOptionHeaderAppendAction.OVERWRITE_IF_EXISTS_OR_ADD,
        )
    )
