"""Claims about extproc/app/discovery/served_cluster.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from extproc.app.discovery.served_cluster import ONE_AT_A_TIME, ServedCluster
from extproc.core.address import Address
from extproc.core.fleet.membership import Member
from extproc.header_names import KEYS, REUSE
from extproc.security.trust import Trust
from extproc.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from extproc.xds.clusters import WriteCluster

ADDRESS = Address.of("10.0.0.5", 8080)
ABLE = frozenset({KEYS})
OURS = Trust(profile="tls-ours", ca_pem="OUR AUTHORITY")
THEIRS = Trust(profile="tls-theirs", ca_pem="THEIR AUTHORITY", ip="10.0.0.6")


class Published:
    """What was published, newest last."""

    def __init__(self, **environ: str) -> None:
        self.versions: list[tuple[Mapping[str, Trust], WriteCluster]] = []
        self.cluster = ServedCluster(load_settings(None, environ=environ), self._publish)

    def _publish(self, trusts: Mapping[str, Trust], write: WriteCluster) -> None:
        self.versions.append((dict(trusts), write))

    def follow(self, *trusts: Trust, members: tuple[Member, ...] = ()) -> int:
        """Which version is the newest then."""
        self.cluster.follow({trust.profile: trust for trust in trusts}, members)
        return len(self.versions)

    def written(self, abilities: frozenset[str] = ABLE) -> bytes:
        """By an Envoy that takes all of it."""
        trusts, write = self.versions[-1]
        return write(abilities, tuple(trusts[name] for name in sorted(trusts)))


def test_there_is_one_from_the_start() -> None:
    """Without any TLS or key, and the same bytes each time that it is written."""
    published = Published()
    assert published.written() == Published().written()
    assert b"transport_sockets" not in published.written()


def test_envoys_that_ask_at_once_are_served_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They ask from threads, which find Envoy's types half prepared otherwise."""

    def written(*_: object, **__: object) -> bytes:
        assert ONE_AT_A_TIME.locked()
        return b"written"

    monkeypatch.setattr("extproc.envoy_config.clusters.served_llama", written)
    assert Published().written() == b"written"
    assert not ONE_AT_A_TIME.locked()


def test_new_cas_and_new_content_are_news_and_others_are_not() -> None:
    published = Published()
    assert published.follow(OURS) == 2
    assert b"OUR AUTHORITY" in published.written() and b"tls-ours" in published.written()
    assert published.follow(OURS) == 2
    renewed = Trust(profile="tls-ours", ca_pem="RENEWED")
    assert published.follow(renewed) == 3
    assert b"RENEWED" in published.written() and b"OUR AUTHORITY" not in published.written()


def test_what_nobody_names_any_more_goes_with_the_next_news_unless_it_is_in_use() -> None:
    published = Published()
    published.follow(OURS, THEIRS)
    assert published.follow(OURS) == 2, "no news by itself"
    leaving = Member(ADDRESS, tls_profile="tls-ours")
    third = Trust(profile="tls-third", ca_pem="THIRD")
    published.follow(third, members=(leaving,))
    assert b"OUR AUTHORITY" in published.written()
    assert b"THEIR AUTHORITY" not in published.written()


def test_the_order_in_which_servers_came_does_not_matter() -> None:
    """A picker that starts again writes what it wrote before."""
    one, other = Published(), Published()
    one.follow(OURS)
    one.follow(OURS, THEIRS)
    other.follow(THEIRS, OURS)
    assert one.written() == other.written()


def test_keys_are_sent_once_one_is_needed_and_where_the_listener_is_ready() -> None:
    published = Published()
    assert b"UPSTREAM_METADATA" not in published.written()
    assert published.follow(members=(Member(ADDRESS, authorization="Bearer k"),)) == 2
    assert b"UPSTREAM_METADATA" in published.written()
    assert b"UPSTREAM_METADATA" not in published.written(frozenset())
    assert b"Bearer k" not in published.written(), "that goes with the address"
    assert published.follow() == 2, "one that comes and goes costs one change"


def test_connections_are_used_again_where_the_routes_of_an_envoy_allow_it() -> None:
    """Whatever the picker's own settings say: one of them may be older than the other."""
    published = Published()
    again, once = published.written(frozenset({REUSE})), published.written(frozenset())
    assert again != once
    published = Published(COXSWAIN_ENVOY__REUSE_CONNECTIONS="true")
    assert (published.written(frozenset({REUSE})), published.written(frozenset())) == (again, once)


def test_an_envoy_that_rejects_some_is_written_the_others() -> None:
    published = Published()
    published.follow(OURS, THEIRS)
    trusts, write = published.versions[-1]
    assert set(trusts) == {"tls-ours", "tls-theirs"}
    for _ in range(2):  # also where both kinds are asked for in turn
        assert b"THEIR AUTHORITY" not in write(ABLE, (OURS,))
        assert b"THEIR AUTHORITY" in write(ABLE, (OURS, THEIRS))
    assert write(ABLE, (OURS,)) is write(ABLE, (OURS,)), "written once"
