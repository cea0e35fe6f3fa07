"""Keeps the llama-servers' cluster, as Envoy is served it, in line with whom to trust for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from extproc.xds.abilities import KEYS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from extproc.core.fleet import Member
    from extproc.core.trust import Trust
    from extproc.settings import Settings
    from extproc.xds.clusters import WriteCluster


class ServedCluster:
    """Publishes a cluster at the start, and then whenever `follow` brings news. Never blocks.

    Whom nobody names any more is still held, until something else changes: an endpoint that
    comes and goes costs one change, and one that leaves keeps what its requests need.
    """

    def __init__(self, settings: Settings, publish: Callable[[WriteCluster], None]) -> None:
        self._settings = settings
        self._publish = publish
        self._held: dict[str, Trust] = {}
        self._has_keys = False
        self._tell()

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
        self._tell()

    def _tell(self) -> None:
        held = [self._held[profile] for profile in sorted(self._held)]
        has_keys = self._has_keys
        written: dict[bool, bytes] = {}

        def write(abilities: frozenset[str]) -> bytes:
            # Envoy's full types take a second to load and many megabytes: only if one asks.
            from extproc.app.envoy import served_cluster

            injects_keys = has_keys and KEYS in abilities
            if injects_keys not in written:
                written[injects_keys] = served_cluster(self._settings, held, injects_keys)
            return written[injects_keys]

        self._publish(write)
