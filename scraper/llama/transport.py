"""httpx's transport to a llama-server, over the network backend of the scraper."""

import ssl
from functools import cache

import httpcore
import httpx

from scraper.llama.interim_limit import InterimLimitBackend

MAX_CONNECTIONS = 4
"""To one server; further requests wait for one."""


class LlamaTransport(httpx.AsyncHTTPTransport):
    """With our own network backend, for which httpx has no argument."""

    def __init__(self, tls: ssl.SSLContext) -> None:
        super().__init__(verify=tls, trust_env=False)
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=tls,
            max_connections=MAX_CONNECTIONS,
            max_keepalive_connections=MAX_CONNECTIONS,
            keepalive_expiry=None,
            network_backend=InterimLimitBackend(httpcore.AnyIOBackend()),
        )


@cache
def no_tls() -> ssl.SSLContext:
    """One empty context for plain http: httpx wants one, and even that takes a millisecond."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
