"""Servers behind TLS over the real Envoy, with a cluster that was printed: no word to them in the
clear, and no key, whatever Envoy's configuration knows of them. `test_served_cluster.py` is about
the cluster that the picker serves."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import httpx
import pytest

from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.pb.coxswain.v1.admin_pb2_grpc import AdminStub
from tests.e2e.one_process import Running, running, server_side
from tests.e2e.secured import KEY, Secured, secured, write
from tests.fakes.llama_server import FakeLlamaServer
from tests.fakes.picker import until

pytestmark = pytest.mark.e2e

CHAT = {"messages": [], "max_tokens": 1}


async def ask_in_every_way(client: httpx.AsyncClient) -> set[int]:
    """Requests that take a slot and such that take none; what they were answered."""
    answers = [await client.get("/props?mine=1") for _ in range(3)]
    answers += [await client.post("/v1/chat/completions?mine=1", json=CHAT) for _ in range(3)]
    return {answer.status_code for answer in answers}


def issues(stack: Running, secret: Secured) -> list[str]:
    return [issue.code for issue in stack.endpoint(secret.tap.address).issues]


async def test_what_envoy_cannot_speak_tls_to_is_withheld_from_it(tmp_path: Path) -> None:
    """Added by the file, by a reload and by both: Envoy hears neither its address nor its key,
    and the operator hears what to do."""
    file = tmp_path / "fleet.json"
    async with FakeLlamaServer() as plain, secured(tmp_path) as secret:
        write(file, str(plain.address))
        values = {"discovery": {"file": str(file)}, "queue": {"timeout_s": 0.2}}
        async with running(tmp_path, values, is_printed_whole=True) as stack:
            write(file, str(plain.address), secret.named)
            await stack.until_seen(secret.tap.address)
            await until(lambda: issues(stack, secret) == ["envoy-lacks-tls"])
            assert "config envoy" in stack.endpoint(secret.tap.address).issues[0].remedy
            assert await ask_in_every_way(stack.client) == {200, 404}
            write(file, secret.named)
            await stack.until_gone(plain.address)
            async with asyncio.timeout(20):
                while str(plain.address) in await stack.hosts():
                    pass
            assert min(await ask_in_every_way(stack.client)) >= 500
            write(file)
            await stack.until_gone(secret.tap.address)
            fresh = stack.settings.model_dump() | {"endpoints": [secret.named]}
            stack.settings = type(stack.settings).model_validate(fresh)
            await stack.service.settings.reload(is_dry_run=False)
            await stack.until_seen(secret.tap.address)
            assert min(await ask_in_every_way(stack.client)) >= 500
            assert str(secret.tap.address) not in await stack.hosts()
            assert secret.tap.beginnings, "the picker itself looked, over TLS"
            assert secret.tap.in_the_clear == []
            assert secret.served == 0


async def test_a_new_server_of_known_cas_needs_no_new_configuration(
    tmp_path: Path,
) -> None:
    """Envoy knows the CAs; the name to find in the certificate comes with the server."""
    file = tmp_path / "fleet.json"
    async with FakeLlamaServer() as plain, secured(tmp_path) as secret:
        write(file, str(plain.address))
        values = {
            "discovery": {"file": str(file)},
            "envoy": {"server_ca_files": [str(secret.authority.ca)], "inject_keys": True},
        }
        async with running(tmp_path, values, is_printed_whole=True) as stack:
            write(file, secret.named)
            await stack.until_seen(secret.tap.address)
            await stack.until_gone(plain.address)
            await until(lambda: stack.endpoint(secret.tap.address).is_pickable)
            assert issues(stack, secret) == []
            assert await ask_in_every_way(stack.client) == {200, 404}
            assert secret.served == 6, "with its key, which the clients do not know"
            assert secret.tap.in_the_clear == []


async def test_a_key_that_envoy_would_not_send_keeps_requests_away(tmp_path: Path) -> None:
    """The server would refuse them; the operator hears what to do."""
    file = tmp_path / "fleet.json"
    async with FakeLlamaServer() as plain, secured(tmp_path) as secret:
        write(file, str(plain.address))
        values = {
            "discovery": {"file": str(file)},
            "envoy": {"server_ca_files": [str(secret.authority.ca)]},
        }
        async with running(tmp_path, values, is_printed_whole=True) as stack:
            write(file, str(plain.address), secret.named)
            await stack.until_seen(secret.tap.address)
            await until(lambda: issues(stack, secret) == ["envoy-lacks-keys"])
            assert await ask_in_every_way(stack.client) == {200, 404}
            assert secret.served == 0


async def test_an_address_may_stand_in_the_certificate(tmp_path: Path) -> None:
    """A server that goes by its IP address shows a certificate for that one."""
    async with secured(tmp_path) as secret:
        named = {**secret.named, "server_name": None}
        async with running(tmp_path, {"endpoints": [named]}) as stack:
            assert (await stack.client.get("/props?mine=1")).status_code == 200
            assert secret.tap.in_the_clear == []


async def test_an_operator_adds_one_with_its_key(tmp_path: Path) -> None:
    """Over the admin port: the key is named, never told, and only those set aside can be."""
    keys = tmp_path / "keys"
    keys.mkdir()
    async with FakeLlamaServer() as plain, secured(tmp_path) as secret:
        values = {
            "endpoints": [str(plain.address)],
            "admin": {"api_key_folder": str(keys)},
            "envoy": {"server_ca_files": [str(secret.authority.ca)], "inject_keys": True},
        }
        async with (
            running(tmp_path, values, is_printed_whole=True) as stack,
            grpc.aio.insecure_channel(f"127.0.0.1:{stack.service.admin_port}") as channel,
        ):
            admin = AdminStub(channel)
            request = pb.AddEndpointRequest(
                **{**secret.named, "api_key_file": str(keys / "key"), "name": "gpu"}
            )
            elsewhere = pb.AddEndpointRequest(**secret.named)
            for rejected in (request, elsewhere):  # it is not there yet; it is not set aside
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await admin.AddEndpoint(rejected)
                assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            secret.key_file.rename(keys / "key")
            told = [str(await admin.AddEndpoint(request))]
            await until(lambda: stack.endpoint(secret.tap.address).is_pickable)
            await admin.Disable(pb.DisableRequest(address=str(plain.address)))
            assert await ask_in_every_way(stack.client) == {200, 404}
            assert secret.served == 6, "with its key, which the clients do not know"
            assert secret.tap.in_the_clear == []
            told += [
                str(await admin.ListEndpoints(pb.ListEndpointsRequest())),
                str(await admin.GetSettings(pb.GetSettingsRequest())),
                str(await admin.GetStatus(pb.GetStatusRequest())),
            ]
            assert KEY not in "".join(told)


async def test_the_name_in_the_certificate_counts(tmp_path: Path) -> None:
    """An impostor with a certificate of the right authority, for another name, gets nothing."""
    async with secured(tmp_path) as secret:
        other = secret.authority.issue("other", hosts=("other.example",))
        async with (
            FakeLlamaServer(tls=server_side(other)) as impostor,
            running(tmp_path, {"endpoints": [secret.named]}) as stack,
        ):
            assert (await stack.client.get("/props?mine=1")).status_code == 200
            secret.tap.target = impostor.address
            secret.tap.break_connections()
            assert (await stack.client.get("/props?mine=1")).status_code == 503
            assert await stack.statistic("ssl.fail_verify_san") > 0
            assert impostor.asked == []
            assert secret.tap.in_the_clear == []


async def test_without_discovery_a_server_behind_tls_gets_nothing(tmp_path: Path) -> None:
    """Envoy would follow any address that the picker names, in the clear."""
    file = tmp_path / "fleet.json"
    async with FakeLlamaServer() as plain, secured(tmp_path) as secret:
        write(file, str(plain.address))
        values = {
            "discovery": {"file": str(file)},
            "envoy": {"discovery": False},
            "queue": {"timeout_s": 0.2},
        }
        async with running(tmp_path, values, is_printed_whole=True) as stack:
            write(file, secret.named)
            await stack.until_seen(secret.tap.address)
            await stack.until_gone(plain.address)
            assert issues(stack, secret) == ["no-envoy-yet"]
            assert await ask_in_every_way(stack.client) == {503}
            assert secret.tap.in_the_clear == []
            assert secret.served == 0


async def test_who_says_tls_is_believed(tmp_path: Path) -> None:
    """Another source that names the same address without TLS changes nothing."""
    file = tmp_path / "fleet.json"
    async with secured(tmp_path) as secret:
        write(file, str(secret.tap.address))
        values = {"endpoints": [secret.named], "discovery": {"file": str(file)}}
        async with running(tmp_path, values, is_printed_whole=True) as stack:
            fleet = stack.service.dispatcher.fleet
            await until(lambda: len(fleet.sources_of(secret.tap.address)) == 2)
            assert (await stack.client.get("/props?mine=1")).status_code == 200
            assert secret.tap.in_the_clear == []
