"""The API keys of clients, which Envoy checks by their digests.

The filter's configuration comes from the picker (extension config discovery), so a key that is
added or revoked needs no restart of Envoy, and Envoy checks with the last ones while no picker
answers. An Envoy that never heard of any lets nobody in. Without discovery the configuration
holds the digests itself.
"""

from collections.abc import Iterable
from dataclasses import replace
from importlib.resources import files
from typing import Final

from envoy_data_plane.envoy.config.core.v3 import (
    DataSource,
    ExtensionConfigSource,
    TypedExtensionConfig,
)
from envoy_data_plane.envoy.config.route.v3 import FilterConfig, Route
from envoy_data_plane.envoy.extensions.filters.http.lua.v3 import Lua, LuaPerRoute
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import HttpFilter
from envoy_data_plane.google.protobuf import Struct

from extproc.envoy_config.config_source import from_picker
from extproc.envoy_config.messages import typed
from extproc.envoy_config.options import EnvoyOptions
from extproc.envoy_config.tls_files import ClientKey

CHECK: Final = "coxswain.client_keys"
"""The filter, and the resource by which the picker serves its configuration."""
SCRIPT: Final = "client_keys.lua"


def check_of_clients(options: EnvoyOptions, *, on_named_routes: bool = False) -> HttpFilter:
    """Reject requests without a client's key with 401, and remove the key.

    `on_named_routes`: only on those that `with_check_of_clients` made.
    """
    if not options.has_discovery:
        known = typed(_check(options.client_keys))
        return HttpFilter(name=CHECK, disabled=on_named_routes, typed_config=known)
    none_known = typed(_check(None))
    served = ExtensionConfigSource(
        config_source=from_picker(options),
        default_config=none_known,
        type_urls=[none_known.type_url],
    )
    return HttpFilter(name=CHECK, disabled=on_named_routes, config_discovery=served)


def with_check_of_clients(route: Route) -> Route:
    """The same route, with authentication of clients."""
    is_on = typed(FilterConfig(config=typed(LuaPerRoute(filter_context=Struct()))))
    return replace(route, typed_per_filter_config={**route.typed_per_filter_config, CHECK: is_on})


def served_check(keys: Iterable[ClientKey]) -> bytes:
    """The filter's configuration as the picker serves it, in wire format."""
    return bytes(TypedExtensionConfig(name=CHECK, typed_config=typed(_check(keys))))


def _check(keys: Iterable[ClientKey] | None) -> Lua:
    """The check against these keys; without any, until there are some, it rejects with 503."""
    known = "false"
    if keys is not None:
        # Names have no brackets: settings/client_keys.py.
        lines = "\n".join(f"{key.client} {key.digest}" for key in keys)
        known = f"[[\n{lines}\n]]"
    script = files("extproc.envoy_config").joinpath(SCRIPT).read_text("utf-8")
    source = f"local CLIENTS = {known}\n{script}"
    return Lua(default_source_code=DataSource(inline_string=source))
