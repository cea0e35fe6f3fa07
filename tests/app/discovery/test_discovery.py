"""All sources of endpoints together: mixed, replaced, with their keys, and complete or not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from extproc.app.discovery.discovery import Discovery
from extproc.core.address import Address
from extproc.core.fleet.endpoint import EndpointSpec
from extproc.core.fleet.membership import Fleet
from extproc.settings import Settings, SettingsError, load_settings
from scraper.discovery.discovered_endpoint import DiscoveredEndpoint
from tests.fakes.api_server import FakeApiServer
from tests.fakes.dns_server import FakeDnsServer
from tests.fakes.picker import until


class World:
    """A fleet whose members the sources of some settings name."""

    def __init__(self, settings: Settings) -> None:
        self.fleet = Fleet()
        self.known = asyncio.Event()
        self._changed = asyncio.Event()
        self.members = Discovery(settings, self._set_members, self.known.set)

    def _set_members(self, source: str, specs: list[EndpointSpec]) -> None:
        self.fleet.set_members(source, specs)
        self._changed.set()

    @property
    def addresses(self) -> set[str]:
        return {str(endpoint.address) for endpoint in self.fleet if not endpoint.is_removed}

    async def are(self, *addresses: str) -> None:
        while self.addresses != set(addresses):
            self._changed.clear()
            await self._changed.wait()

    async def next_addresses(self) -> set[str]:
        """What they are at the next change of any of them."""
        self._changed.clear()
        await self._changed.wait()
        return self.addresses

    async def have_key(self, key: str, *addresses: str) -> None:
        while {self.key_of(address) for address in addresses} != {key}:
            self._changed.clear()
            await self._changed.wait()

    def key_of(self, address: str) -> str | None:
        endpoint = self.fleet.get(Address.parse(address))
        assert endpoint is not None
        target = self.members.target(endpoint.spec)
        assert target is not None
        return target.api_key


def settings(**flags: Any) -> Settings:
    """Of these flags; the grace is endless unless it is one of them, beyond what it may be."""
    loaded = load_settings(
        flags={key.replace("__", "."): value for key, value in flags.items()}, environ={}
    )
    if "discovery__grace_s" in flags:
        return loaded
    discovery = loaded.discovery.model_copy(update={"grace_s": 3600.0})
    return loaded.model_copy(update={"discovery": discovery})


@asynccontextmanager
async def running(given: Settings) -> AsyncIterator[World]:
    world = World(given)
    world.members.start()
    try:
        yield world
    finally:
        await world.members.aclose()


async def test_a_server_under_two_names_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    """Or somebody looks for an endpoint that the fleet does not have; the first name counts."""
    named = [
        {"address": "10.0.0.1:1", "name": "a"},
        {"address": "[::ffff:10.0.0.1]:1", "name": "b"},
        {"address": "10.0.0.2:1", "name": "c"},
    ]
    async with running(settings(endpoints=named)) as world:
        await world.are("10.0.0.1:1", "10.0.0.2:1")
        assert world.fleet.specs_of("settings")[Address("10.0.0.1", 1)].name == "a"
        await world.members.renew(settings(endpoints=[*named, "10.0.0.3:1"]))
        await world.are("10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1")
    assert [record.getMessage() for record in caplog.records] == [
        "settings: 10.0.0.1:1 is listed more than once, by a, b; the first one is used"
    ]


async def test_one_address_is_one_endpoint_who_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_KEY", "sesame")
    file = tmp_path / "fleet.yaml"
    file.write_text("endpoints:\n- {address: '10.0.0.1:1', api_key_env: LLAMA_KEY}\n- 10.0.0.2:1\n")
    given = settings(endpoints=["10.0.0.1:1"], discovery__file=str(file))
    async with running(given) as world:
        await world.known.wait()
        assert world.addresses == {"10.0.0.1:1", "10.0.0.2:1"}
        assert world.fleet.sources_of(Address("10.0.0.1", 1)) == ["file", "settings"]
        assert world.key_of("10.0.0.1:1") == "sesame"
        await world.members.renew(settings(discovery__file=str(file)))
        assert world.addresses == {"10.0.0.1:1", "10.0.0.2:1"}
        await world.members.renew(settings())
        assert world.addresses == set()


async def test_the_fleet_is_known_when_every_source_has_spoken(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    async with FakeDnsServer() as server:
        server.broken.add("llama.test")
        given = settings(
            endpoints=["10.0.0.1:1"],
            discovery__file=str(file),
            discovery__dns=["dns://llama.test.:8080"],
            discovery__dns_min_s=0.01,
            discovery__nameservers=[str(server.address)],
        )
        async with running(given) as world:
            await world.are("10.0.0.1:1")
            file.write_text("endpoints: [10.0.0.2:1]")
            await world.are("10.0.0.1:1", "10.0.0.2:1")
            assert not world.known.is_set()
            server.records["llama.test", "A"] = ["10.0.0.3"]
            server.broken.clear()
            await world.known.wait()
            assert world.addresses == {"10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:8080"}


async def test_a_source_that_does_not_speak_is_waited_for_no_longer_than_the_grace(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = settings(discovery__file=str(tmp_path / "missing"), discovery__grace_s=0.05)
    async with running(given) as world:
        await world.known.wait()
        assert "publishing an incomplete fleet to Envoy; still unresolved: file" in caplog.text


async def test_where_only_agents_could_name_endpoints_they_get_the_grace() -> None:
    async with running(settings(discovery__grace_s=0.05)) as world:
        assert not world.known.is_set()
        await world.known.wait()


async def test_expected_agents_are_waited_for() -> None:
    async with running(settings(endpoints=["10.0.0.1:1"], agents__expected=1)) as world:
        await world.are("10.0.0.1:1")
        assert not world.known.is_set()
        spec = EndpointSpec(address=Address("10.0.0.2", 1))
        world.members.publish("agents", [DiscoveredEndpoint(spec=spec, target=None)], True)
        assert world.known.is_set()
        assert world.members.target(spec) is None


async def test_a_key_that_is_not_there_changes_nothing() -> None:
    async with running(settings(endpoints=["10.0.0.1:1"])) as world:
        await world.are("10.0.0.1:1")
        bad = settings(endpoints=[{"address": "10.0.0.2:1", "api_key_env": "NOT_SET_ANYWHERE"}])
        for renewing in (world.members.rehearse, world.members.renew):
            with pytest.raises(SettingsError):
                await renewing(bad)
        assert world.addresses == {"10.0.0.1:1"}


async def test_a_rehearsal_reports_what_is_new_and_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("sk-1")
    given = settings(endpoints=[{"address": "10.0.0.1:1", "api_key_file": str(file)}])
    async with running(given) as world:
        await world.have_key("sk-1", "10.0.0.1:1")
        assert await world.members.rehearse(given) == ()
        file.write_text("sk-2")
        assert await world.members.rehearse(given) == ("endpoints",)
        assert world.key_of("10.0.0.1:1") == "sk-1"


async def test_other_sources_may_come_with_a_reload(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text("endpoints: [10.0.0.2:1]")
    async with FakeDnsServer() as server, running(settings(endpoints=["10.0.0.1:1"])) as world:
        server.records["llama.test", "A"] = ["10.0.0.3"]
        names = {
            "discovery__dns": ["dns://llama.test.:8080"],
            "discovery__nameservers": [str(server.address)],
        }
        await world.members.renew(settings(endpoints=["10.0.0.1:1"], discovery__file=str(file)))
        await world.are("10.0.0.1:1", "10.0.0.2:1")
        await world.members.renew(settings(**names))
        await world.are("10.0.0.3:8080")
        await world.members.renew(settings(**names, endpoints=["10.0.0.1:1"]))
        await world.are("10.0.0.3:8080", "10.0.0.1:1")


async def test_other_resolvers_take_no_server_out_of_the_fleet() -> None:
    """At no moment, also where the new name server knows nothing."""
    async with FakeDnsServer() as server, FakeDnsServer() as mistyped:
        server.records["llama.test", "A"] = ["10.0.0.1"]
        mistyped.broken.add("llama.test")
        given = {"discovery__dns": ["dns://llama.test.:8080"]}
        good = settings(**given, discovery__nameservers=[str(server.address)])
        async with running(good) as world:
            await world.are("10.0.0.1:8080")
            bad = [str(mistyped.address)]
            await world.members.renew(settings(**given, discovery__nameservers=bad))
            assert world.addresses == {"10.0.0.1:8080"}
            await mistyped.was_asked("llama.test", 2)
            assert world.addresses == {"10.0.0.1:8080"}
            await world.members.renew(settings(discovery__nameservers=bad))
            assert world.addresses == set()


async def test_another_endpoints_file_keeps_what_was_resolved(tmp_path: Path) -> None:
    """So a name that both hold loses its servers at no moment."""
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    old.write_text("endpoints: ['localhost:1']")
    new.write_text("endpoints: ['localhost:1', '10.0.0.2:1']")
    async with running(settings(discovery__file=str(old))) as world:
        await world.are("127.0.0.1:1")
        await world.members.renew(settings(discovery__file=str(new)))
        seen = []
        while world.addresses != {"127.0.0.1:1", "10.0.0.2:1"}:
            seen.append(await world.next_addresses())
        assert seen == [{"127.0.0.1:1", "10.0.0.2:1"}]


async def test_a_missing_key_keeps_back_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither of the settings nor of the endpoints file; its own server keeps the old one."""
    keys = {name: tmp_path / name for name in ("missing", "listed", "filed", "named")}
    for key in keys.values():
        key.write_text("old")
    file = tmp_path / "fleet.yaml"
    file.write_text(f"endpoints: [{{address: '10.0.0.3:1', api_key_file: {keys['filed']}}}]")
    async with FakeDnsServer() as server:
        server.records["llama.test", "A"] = ["10.0.0.4"]
        given = settings(
            endpoints=[
                {"address": "10.0.0.1:1", "api_key_file": str(keys["missing"])},
                {"address": "10.0.0.2:1", "api_key_file": str(keys["listed"])},
            ],
            discovery__file=str(file),
            discovery__dns=[{"name": "llama.test.", "port": 1, "api_key_file": str(keys["named"])}],
            discovery__nameservers=[str(server.address)],
        )
        async with running(given) as world:
            await world.are(*(f"10.0.0.{number}:1" for number in (1, 2, 3, 4)))
            for key in keys.values():
                key.write_text("new")
            keys["missing"].unlink()
            assert await world.members.refresh() == ("endpoints", "discovery.dns")
            await world.have_key("new", "10.0.0.2:1", "10.0.0.3:1", "10.0.0.4:1")
            assert world.key_of("10.0.0.1:1") == "old"
            (problem,) = world.members.problems
            assert problem.startswith("10.0.0.1:1: keeping its previous key and CA: ")
            file.write_text("endpoints: nonsense")
            await until(lambda: len(world.members.problems) == 2)
            assert world.members.problems[1].endswith("keeping its previous 1 endpoints")
            with pytest.raises(SettingsError):
                await world.members.renew(given)
            keys["missing"].write_text("new")
            assert await world.members.refresh() == ("endpoints",)
            await world.have_key("new", "10.0.0.1:1")
            assert len(world.members.problems) == 1, "the file's is left"
    lines = [line for line in caplog.messages if "keeping its previous key" in line]
    assert len(lines) == 1 and lines[0].startswith("10.0.0.1:1: ")


async def test_other_keys_at_the_same_places_are_read_at_a_renewal(tmp_path: Path) -> None:
    """The settings are equal and the files they name are not: in the list, by DNS, in the file."""
    keys = {name: tmp_path / name for name in ("listed", "named", "filed")}
    for key in keys.values():
        key.write_text("old")
    file = tmp_path / "fleet.yaml"
    file.write_text(f"endpoints: [{{address: '10.0.0.3:1', api_key_file: {keys['filed']}}}]")
    async with FakeDnsServer() as server:
        server.records["llama.test", "A"] = ["10.0.0.2"]
        given = settings(
            endpoints=[{"address": "10.0.0.1:1", "api_key_file": str(keys["listed"])}],
            discovery__file=str(file),
            discovery__dns=[{"name": "llama.test.", "port": 1, "api_key_file": str(keys["named"])}],
            discovery__nameservers=[str(server.address)],
        )
        async with running(given) as world:
            addresses = [f"10.0.0.{number}:1" for number in (1, 2, 3)]
            await world.are(*addresses)
            assert world.members.secrets == set(keys.values())
            assert await world.members.renew(given) == ()
            for key in keys.values():
                key.write_text("new")
            assert await world.members.renew(given) == ("endpoints", "discovery.dns")
            await world.have_key("new", *addresses)
            assert world.addresses == set(addresses)
            keys["filed"].write_text("")  # a key that is gone changes nothing
            await world.members.renew(settings(discovery__file=str(file)))
            await world.are("10.0.0.3:1")
            assert world.key_of("10.0.0.3:1") == "new"


async def test_who_says_that_a_server_may_sleep_is_believed(tmp_path: Path) -> None:
    """Of several sources, also one that says nothing else; and a name says it for all."""
    file = tmp_path / "fleet.yaml"
    file.write_text("endpoints: [{address: '10.0.0.1:1', may_sleep: true}]")
    async with FakeDnsServer() as server:
        server.records["llama.test", "A"] = ["10.0.0.2"]
        given = settings(
            endpoints=["10.0.0.1:1", "10.0.0.3:1"],
            discovery__file=str(file),
            discovery__dns=[{"name": "llama.test.", "port": 1, "may_sleep": False}],
            discovery__nameservers=[str(server.address)],
        )
        async with running(given) as world:
            await world.known.wait()
            said = {}
            for endpoint in world.fleet:
                target = world.members.target(endpoint.spec)
                assert target is not None
                said[endpoint.address.host] = target.may_sleep
            assert said == {"10.0.0.1": True, "10.0.0.2": False, "10.0.0.3": None}


async def test_servers_of_a_name_are_reached_as_it_says(tmp_path: Path) -> None:
    """By TLS, with the name that was looked up, and with a key that Envoy sends them."""
    key = tmp_path / "key"
    key.write_text("sesame")
    async with FakeDnsServer() as server:
        server.records["llama.test", "A"] = ["10.0.0.1"]
        name = {"name": "llama.test.", "port": 1, "tls": True, "api_key_file": str(key)}
        given = settings(
            discovery__dns=[{**name, "inject_key": True}],
            discovery__nameservers=[str(server.address)],
        )
        async with running(given) as world:
            await world.are("10.0.0.1:1")
            endpoint = world.fleet.get(Address.parse("10.0.0.1:1"))
            assert endpoint is not None
            target = world.members.target(endpoint.spec)
            assert target is not None and target.is_tls and target.host_name == "llama.test"
            assert endpoint.spec.tls_profile and endpoint.spec.server_name == "llama.test"
            assert endpoint.spec.authorization == "Bearer sesame"


async def test_pods_of_kubernetes_are_a_source_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waited for at the start, reloaded, and with keys that are renewed."""
    ready = {"podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]}
    key = tmp_path / "key"
    key.write_text("sesame")
    async with FakeApiServer(tmp_path) as api:
        at: dict[str, Any] = {
            "discovery__kubernetes_api": api.url,
            "discovery__kubernetes_folder": str(api.folder),
        }
        group = {"selector": "app=llama", "ports": [8080]}
        api.is_broken = True
        async with running(settings(discovery__kubernetes=[group], **at)) as world:
            api.put(
                "pods", {"metadata": {"name": "a", "labels": {"app": "llama"}}, "status": ready}
            )
            assert not world.known.is_set()
            api.is_broken = False
            await world.are("10.0.0.1:8080")
            await world.known.wait()
            assert world.fleet.sources_of(Address("10.0.0.1", 8080)) == ["kubernetes"]
            keyed = settings(discovery__kubernetes=[{**group, "api_key_file": str(key)}], **at)
            assert await world.members.renew(keyed) == ("discovery.kubernetes",)
            await world.have_key("sesame", "10.0.0.1:8080")
            assert world.members.secrets == {key}
            key.write_text("renewed")
            assert await world.members.refresh() == ("discovery.kubernetes",)
            await world.have_key("renewed", "10.0.0.1:8080")
            key.unlink()
            assert await world.members.refresh() == ()
            assert "pool" not in world.members.problems[0]
            assert "keeping its previous key" in world.members.problems[0]
            await world.members.renew(settings(**at))
            await world.are()


def test_a_service_account_that_is_missing_is_an_error_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    group = {"service": "llama"}
    with pytest.raises(SettingsError, match=r"discovery\.kubernetes_api: this is no pod"):
        World(settings(discovery__kubernetes=[group]))
    at: dict[str, Any] = {
        "discovery__kubernetes_api": "https://k:6443",
        "discovery__kubernetes_folder": str(tmp_path),
    }
    with pytest.raises(SettingsError, match=r"discovery\.kubernetes_namespace: .*namespace"):
        World(settings(discovery__kubernetes=[group], **at))
    World(settings(discovery__kubernetes=[{**group, "namespace": "serving"}], **at))
    World(settings(discovery__kubernetes=[group], discovery__kubernetes_namespace="a", **at))


async def test_servers_of_a_keeper_are_in_the_pool_of_its_machine() -> None:
    """Of two machines whose names begin alike in that of the right one; what is no keeper's, or of
    another machine, is in the default pool. A reload moves them."""

    def placed(**machines: str) -> Settings:
        return settings(
            pools={"chat": {"default": True}, "batch": {"hosts": ["b.test"]}},
            machines={name.replace("_", "-"): {"in_pool": pool} for name, pool in machines.items()},
        )

    async with running(placed(gpu="chat", gpu_1="batch")) as world:
        names = {"gpu-1.small": 2, "gpu.small": 2, "gpu-1.agent": 0, "gpu-2.small": 2}
        found = [
            DiscoveredEndpoint(
                spec=EndpointSpec(
                    address=Address("10.0.0.1", number),
                    name=name,
                    is_reported=True,
                    kept_models=models,
                ),
                target=None,
            )
            for number, (name, models) in enumerate(names.items(), 1)
        ]
        world.members.publish("agents", found, is_complete=True)

        def pools() -> list[str]:
            return [one.spec.pool for one in sorted(world.fleet, key=lambda one: one.spec.address)]

        assert pools() == ["batch", "chat", "chat", "chat"]
        await world.members.renew(placed(gpu_2="batch"))
        assert pools() == ["chat", "chat", "chat", "batch"]
