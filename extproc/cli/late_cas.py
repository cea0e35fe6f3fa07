"""Reads the system's CAs when a TLS context is used.

aiohttp makes two contexts as it is imported, for a client that asks Envoy over plain HTTP: to read
all CAs twice is a tenth of the time of a start.
"""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class _LateContext(ssl.SSLContext):
    """Reads the CAs at its first connection, and is a plain context from then on."""

    def wrap_bio(self, *given: Any, **named: Any) -> ssl.SSLObject:
        """What an event loop calls for each connection."""
        return self._completed().wrap_bio(*given, **named)

    def wrap_socket(self, *given: Any, **named: Any) -> ssl.SSLSocket:
        """What blocking clients call for each connection."""
        return self._completed().wrap_socket(*given, **named)

    def _completed(self) -> ssl.SSLContext:
        context: ssl.SSLContext = self
        context.__class__ = ssl.SSLContext
        context.set_default_verify_paths()
        return context


@contextmanager
def cas_read_late() -> Iterator[None]:
    """What makes a TLS context in this context, with the system's CAs, reads them later."""
    plain = ssl.SSLContext
    load, set_paths = plain.load_default_certs, plain.set_default_verify_paths

    def read_late(context: ssl.SSLContext, *_: object) -> None:
        context.__class__ = _LateContext

    plain.load_default_certs = read_late  # type: ignore[assignment, method-assign]
    plain.set_default_verify_paths = read_late  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        plain.load_default_certs = load  # type: ignore[method-assign]
        plain.set_default_verify_paths = set_paths  # type: ignore[method-assign]
