"""Which pool a request is for: by the port, its route's metadata, a header or its host.

Envoy sends a value of the route's metadata as an attribute, if it is asked for that (`EXPRESSION`
in `extproc.settings.pool_section`), and what a filter before the picker has written as metadata of
the request.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from google.protobuf import struct_pb2
from google.protobuf.message import DecodeError

from extproc.header_names import FILTER_ATTRIBUTES
from extproc.pb import external_processor_pb2 as pb
from extproc.settings.pool_section import PoolMetadataSettings, PoolSettings, default_pool

AUTHORITY: Final = ":authority"
HOST: Final = "host"
"""What a gateway may write in its place."""


class PoolChoice:
    """Made of the settings of all pools. Without side effects."""

    def __init__(self, pools: Mapping[str, PoolSettings]) -> None:
        self._names = frozenset(pools)
        self._default = default_pool(pools)
        self._headers: dict[tuple[str, str], str] = {}
        self._hosts: dict[str, str] = {}
        self._metadata: list[tuple[PoolMetadataSettings, str]] = []
        for name, pool in pools.items():
            if pool.header is not None:
                self._headers[pool.header.name, pool.header.value] = name
            if pool.metadata is not None:
                self._metadata.append((pool.metadata, name))
            self._hosts.update(dict.fromkeys(pool.hosts, name))
        self._read: frozenset[str] = frozenset(name for name, _ in self._headers)
        if self._hosts:
            self._read |= {AUTHORITY, HOST}

    def has(self, pool: str) -> bool:
        """Whether there is a pool of this name."""
        return pool in self._names

    def of(self, message: pb.ProcessingRequest) -> str:
        """The pool of the request with these headers; empty if there is none for it."""
        return self._by_metadata(message) or self._by_headers(message) or self._default

    def _by_metadata(self, message: pb.ProcessingRequest) -> str:
        if not self._metadata:
            return ""
        attributes: Mapping[str, str] = {}
        if FILTER_ATTRIBUTES in message.attributes:
            attributes = _texts(message.attributes[FILTER_ATTRIBUTES])
        namespaces = message.metadata_context.filter_metadata
        for wanted, name in self._metadata:
            if attributes.get(wanted.attribute) == wanted.value:
                return name
            if wanted.namespace in namespaces:
                fields = namespaces[wanted.namespace].fields
                if wanted.key in fields and fields[wanted.key].string_value == wanted.value:
                    return name
        return ""

    def _by_headers(self, message: pb.ProcessingRequest) -> str:
        if not self._read:
            return ""
        authority = ""
        for header in message.request_headers.headers.headers:
            key = header.key.lower()
            if key not in self._read:
                continue
            value = header.raw_value.decode("utf-8", "replace") or header.value
            if key in (AUTHORITY, HOST):
                authority = authority or value.lower()
            elif (name := self._headers.get((key, value))) is not None:
                return name
        return self._by_host(authority)

    def _by_host(self, authority: str) -> str:
        known = self._hosts.get(authority)
        if known is not None:
            return known
        host, colon, port = authority.rpartition(":")
        return self._hosts.get(host, "") if colon and port.isdigit() else ""


@lru_cache(maxsize=1024)  # routes are few
def _texts(attributes: bytes) -> Mapping[str, str]:
    """The texts among encoded attributes."""
    try:
        fields = struct_pb2.Struct.FromString(attributes).fields
    except DecodeError:
        return {}
    return {name: value.string_value for name, value in fields.items()}
