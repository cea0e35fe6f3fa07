"""Keeps the served cluster of the llama-servers consistent with their CAs."""

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from extproc.core.fleet.membership import Member
from extproc.header_names import KEYS, REUSE
from extproc.security.trust import Trust
from extproc.settings import Settings
from extproc.xds.clusters import WriteCluster

MAX_WRITTEN: Final = 8
"""Kinds of cluster that are kept as they were written: one, unless Envoys differ in what they
take."""
ONE_AT_A_TIME: Final = threading.Lock()
"""Streams write in threads. betterproto2 prepares each of Envoy's types with its first message, and
a second thread finds it half prepared."""


class ServedCluster:
    """Publishes a cluster at the start, and then whenever `follow` brings news. Never blocks.

    Whom nobody names any more is still held, until something else changes: an endpoint that
    comes and goes costs one change, and one that leaves keeps what its requests need.
    """

    def __init__(
        self,
        settings: Settings,
        publish: Callable[[Mapping[str, Trust], WriteCluster], None],
    ) -> None:
        self._settings = settings
        self._publish = publish
        self._held: dict[str, Trust] = {}
        self._has_keys = False
        self._publish_all()

    def follow(self, trusts: Mapping[str, Trust], members: Iterable[Member]) -> None:
        """Hold these, and of those held before what members of the fleet still have."""
        members = tuple(members)
        needs_keys = not self._has_keys and any(member.authorization for member in members)
        is_held = all(self._held.get(profile) == trust for profile, trust in trusts.items())
        if is_held and not needs_keys:
            return
        in_use = {member.tls_profile for member in members}
        kept = {profile: trust for profile, trust in self._held.items() if profile in in_use}
        self._held = {**kept, **trusts}
        self._has_keys |= needs_keys
        self._publish_all()

    def _publish_all(self) -> None:
        has_keys = self._has_keys
        written: dict[tuple[bool, bool, tuple[Trust, ...]], bytes] = {}

        def write(abilities: frozenset[str], trusts: tuple[Trust, ...]) -> bytes:
            injects_keys, reuses = has_keys and KEYS in abilities, REUSE in abilities
            kind = injects_keys, reuses, trusts
            with ONE_AT_A_TIME:
                # Envoy's full types take a second to load and many megabytes: only if one asks.
                from extproc.envoy_config.clusters import served_llama  # noqa: PLC0415

                known = written.get(kind)
                if known is None:
                    if len(written) >= MAX_WRITTEN:
                        written.clear()
                    known = written[kind] = served_llama(
                        self._settings, trusts, injects_keys=injects_keys, reuses=reuses
                    )
            return known

        self._publish(self._held, write)
