"""Claims about extproc/app/discovery/admin_endpoints.py: keys and networks of added endpoints."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from extproc.admin.dependencies import NewEndpoint, NewEndpointError
from extproc.app.discovery.admin_endpoints import AddedEndpoints
from extproc.app.security.ca_bundles import MAX_CA_BYTES
from extproc.core.address import Address
from extproc.settings import AdminSettings
from scraper.discovery.discovered_endpoint import DiscoveredEndpoint
from tests.fakes.authority import Authority

ADDRESS = Address("10.0.0.7", 8080)


class Roll:
    """What was published last."""

    def __init__(self) -> None:
        self.discovered: Sequence[DiscoveredEndpoint] = ()

    def publish(
        self, source: str, discovered: Sequence[DiscoveredEndpoint], is_complete: bool
    ) -> None:
        assert (source, is_complete) == ("admin", True)
        self.discovered = discovered

    @property
    def only(self) -> DiscoveredEndpoint:
        (discovered,) = self.discovered
        return discovered


def arrival(**said: Any) -> NewEndpoint:
    return NewEndpoint(**{"address": ADDRESS, "host": ADDRESS.host, **said})


def added(roll: Roll, **rules: Any) -> AddedEndpoints:
    return AddedEndpoints(roll.publish, lambda: AdminSettings(**rules))


async def test_a_key_from_where_operators_may_have_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the environment and from a file; it goes to the scraper and to Envoy, and nowhere
    else."""
    monkeypatch.setenv("GPU_KEY", "sk-from-env")
    key = tmp_path / "gpu"
    key.write_text("sk-from-file\n")
    roll = Roll()
    endpoints = added(roll, api_key_envs=["GPU_KEY"], api_key_folder=str(tmp_path))
    await endpoints.add(arrival(api_key_env="GPU_KEY"))
    assert roll.only.target is not None and roll.only.target.api_key == "sk-from-env"
    assert roll.only.spec.authorization == ""
    endpoints.remove(ADDRESS)
    await endpoints.add(arrival(api_key_file=str(key), inject_key=True))
    assert roll.only.spec.authorization == "Bearer sk-from-file"
    assert endpoints.secrets == {key}
    assert "sk-from" not in repr(roll.discovered)
    endpoints.remove(ADDRESS)
    assert (roll.discovered, endpoints.secrets) == ((), set())


async def test_no_other_key_can_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by dots, not by a link, and not at all where the settings name no place."""
    monkeypatch.setenv("OTHER", "sk-other")
    folder = tmp_path / "keys"
    folder.mkdir()
    outside = tmp_path / "outside"
    outside.write_text("sk-outside")
    (folder / "link").symlink_to(outside)
    roll = Roll()
    open_, closed = added(roll, api_key_folder=str(folder)), added(roll)
    for file in (outside, folder / ".." / "outside", folder / "link"):
        for endpoints in (open_, closed):
            with pytest.raises(NewEndpointError, match="the setting admin") as caught:
                await endpoints.add(arrival(api_key_file=str(file)))
            assert "sk-outside" not in str(caught.value)
    with pytest.raises(NewEndpointError, match="may not use this variable"):
        await open_.add(arrival(api_key_env="OTHER"))
    assert roll.discovered == ()


async def test_what_contradicts_itself_is_rejected(tmp_path: Path) -> None:
    endpoints = added(Roll(), api_key_folder=str(tmp_path))
    for wrong, told in (
        ({"inject_key": True}, "inject_key needs"),
        ({"server_name": "gpu.example"}, "behind TLS"),
        ({"is_tls": True, "server_name": "my gpu"}, "is not a host name"),
        ({"slots": 100_000}, "at most 65536"),
        ({"is_tls": True, "ca_file": str(tmp_path / "missing")}, "no such file"),
        ({"api_key_file": str(tmp_path / "missing")}, "cannot be read"),
    ):
        with pytest.raises(NewEndpointError, match=told):
            await endpoints.add(arrival(**wrong))


async def test_cas_that_have_no_end_are_not_read(tmp_path: Path) -> None:
    """Whoever may add an endpoint may name any file: one that waits or grows for ever, too."""
    pipe, large = tmp_path / "pipe", tmp_path / "large"
    os.mkfifo(pipe)
    with large.open("wb") as stream:
        stream.truncate(MAX_CA_BYTES + 1)
    for file in (pipe, large, Path("/dev/zero")):
        with pytest.raises(NewEndpointError, match="not a file of certificates"):
            await added(Roll()).add(arrival(is_tls=True, ca_file=str(file)))


async def test_a_new_key_in_its_file_is_taken_over(tmp_path: Path) -> None:
    """And one that is gone changes nothing, and is told."""
    key = tmp_path / "key"
    key.write_text("old")
    roll = Roll()
    endpoints = added(roll, api_key_folder=str(tmp_path))
    await endpoints.add(arrival(api_key_file=str(key)))
    for content, wanted in (("new", "new"), ("", "new"), ("newer", "newer"), ("", "newer")):
        key.write_text(content)
        await endpoints.refresh()
        assert roll.only.target is not None and roll.only.target.api_key == wanted
        assert len(endpoints.problems) == (content == "")
    endpoints.remove(ADDRESS)
    assert endpoints.problems == ()


async def test_a_server_behind_tls(tmp_path: Path) -> None:
    """Its name comes from its address, unless another stands in its certificate."""
    roll = Roll()
    endpoints = added(roll)
    ca = str(Authority(tmp_path).ca)
    await endpoints.add(arrival(host="gpu.example", is_tls=True, ca_file=ca))
    spec, target = roll.only.spec, roll.only.target
    assert target is not None and (target.is_tls, target.ca_file) == (True, ca)
    assert (spec.server_name, spec.hostname) == ("gpu.example", "gpu.example")
    assert spec.tls_profile.startswith("tls-")
