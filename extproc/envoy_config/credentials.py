"""The API keys of servers, which Envoy sends.

A key comes with its address from discovery and is set at each try, when the server
is known: a retry on another server carries that one's key, or the client's own again where
it has none. What the client sent is remembered before, since tries share their headers.
"""

from envoy_data_plane.envoy.config.common.mutation_rules.v3 import HeaderMutation
from envoy_data_plane.envoy.extensions.filters.http.header_to_metadata.v3 import (
    Config,
    ConfigKeyValuePair,
    ConfigRule,
    ConfigValueType,
)
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import HttpFilter

from extproc import header_names
from extproc.envoy_config.messages import set_header, typed

AUTHORIZATION = "authorization"
REMEMBERED = "client_authorization"


def memory_of_authorization() -> HttpFilter:
    """Keep the client's own key for attempts at servers without an injected key."""
    remembered = ConfigKeyValuePair(
        metadata_namespace=header_names.COXSWAIN_NAMESPACE,
        key=REMEMBERED,
        type=ConfigValueType.STRING,
    )
    return HttpFilter(
        name="envoy.filters.http.header_to_metadata",
        typed_config=typed(
            Config(request_rules=[ConfigRule(header=AUTHORIZATION, on_header_present=remembered)])
        ),
    )


def authorization_steps() -> list[HeaderMutation]:
    """Before each attempt: the server's key if it has one, else the client's header."""
    namespace = header_names.COXSWAIN_NAMESPACE
    return [
        HeaderMutation(remove=AUTHORIZATION),
        *(
            HeaderMutation(append=set_header(AUTHORIZATION, value))
            for value in (
                f"%DYNAMIC_METADATA({namespace}:{REMEMBERED})%",
                f"%UPSTREAM_METADATA({namespace}:{header_names.SERVER_AUTHORIZATION})%",
            )
        ),
    ]
