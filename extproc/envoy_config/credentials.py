"""Keys: those that clients must show to Envoy, and those that Envoy shows to the servers.

A server's key comes with its address from discovery and is set at each try, when the server
is known: a retry on another server carries that one's key, or the client's own again where
it has none. What the client sent is remembered before, since tries share their headers.
"""

from __future__ import annotations

from envoy_data_plane.envoy.config.common.mutation_rules.v3 import HeaderMutation
from envoy_data_plane.envoy.config.core.v3 import (
    HeaderValue,
    HeaderValueOption,
    HeaderValueOptionHeaderAppendAction,
)
from envoy_data_plane.envoy.extensions.filters.http.api_key_auth.v3 import (
    ApiKeyAuth,
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
from extproc.envoy_config.trust import ClientKey

AUTHORIZATION = "authorization"
REMEMBERED = "client_authorization"


def check_of_clients(keys: tuple[ClientKey, ...]) -> HttpFilter:
    """Refuse with 401 who shows none of these keys. The servers do not get to see them."""
    return HttpFilter(
        name="envoy.filters.http.api_key_auth",
        typed_config=typed(
            ApiKeyAuth(
                credentials=[Credential(key=key.key, client=key.client) for key in keys],
                key_sources=[KeySource(header=AUTHORIZATION), KeySource(header="x-api-key")],
                forwarding=Forwarding(header=names.CLIENT, hide_credentials=True),
            )
        ),
    )


def memory_of_authorization() -> HttpFilter:
    """Keep the client's own key for the tries on servers that have none of ours."""
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
    """Before each try: the server's key where it has one, else what the client sent."""
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
