"""Pods as endpoints, by a real Kubernetes API server, with the role in deploy/ and nothing more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import pytest_asyncio
import yaml

from extproc.app.discovery.pool_objects import PoolObjects
from extproc.kubernetes.api_server import ApiServer, ApiServerError, ExpiredError, Object
from extproc.settings import Settings
from scraper.discovery.discovered_endpoint import EndpointEntry
from scraper.discovery.kubernetes import PODS, ROLE, KubernetesEndpoints, PodGroup
from tests.deploy.stack_files import DEPLOY
from tests.e2e.pool import shares
from tests.fakes.kubernetes import NAMESPACE, NEEDS_KUBERNETES, Kubernetes
from tests.fakes.patience import PATIENCE_S
from tests.fakes.picker import until
from tests.fakes.publications import Publications

pytestmark = [*shares("kubernetes"), NEEDS_KUBERNETES, pytest.mark.timeout(180)]

ENTRY = EndpointEntry(host="x", port=0)
POOL = PodGroup(entry=ENTRY, namespace=NAMESPACE, pool="llama")
SELECTED = PodGroup(entry=ENTRY, namespace=NAMESPACE, selector="app=llama", ports=("8080",))
SERVICE = PodGroup(entry=ENTRY, namespace=NAMESPACE, service="llama")


@pytest_asyncio.fixture(loop_scope="session")
async def api(kubernetes: Kubernetes) -> AsyncIterator[Kubernetes]:
    """Without any pod, pool or slice."""
    yield kubernetes
    for path in (
        PODS.format(NAMESPACE),
        f"/apis/inference.networking.k8s.io/v1/namespaces/{NAMESPACE}/inferencepools",
        f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices",
    ):
        await kubernetes.ask("DELETE", path, gracePeriodSeconds="0")


def pool(*ports: int, **labels: str) -> dict[str, Any]:
    spec = {
        "selector": {"matchLabels": labels or {"app": "llama"}},
        "targetPorts": [{"number": port} for port in ports],
        "endpointPickerRef": {"name": "coxswain", "port": {"number": 9002}},
    }
    return {
        "apiVersion": "inference.networking.k8s.io/v1",
        "kind": "InferencePool",
        "metadata": {"name": "llama"},
        "spec": spec,
    }


def slice_of(name: str, ips: Sequence[str], **conditions: bool) -> dict[str, Any]:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": "llama"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [ip], "conditions": conditions} for ip in ips],
        "ports": [{"name": "http", "port": 8080}],
    }


class Following:
    """A source of the service account `coxswain`, and what it has published."""

    def __init__(self, api: Kubernetes, client: ApiServer) -> None:
        self.seen = Publications()
        self.source = KubernetesEndpoints(self.seen, client)

    async def are(self, *addresses: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await self.seen.are(*addresses)


@asynccontextmanager
async def following(api: Kubernetes, *groups: PodGroup) -> AsyncIterator[Following]:
    folder = await api.service_account()
    role = DEPLOY / "kubernetes/discovery-role.yaml"
    objects = list(yaml.safe_load_all(role.read_text(encoding="utf-8")))
    await api.apply(*objects)
    found = Following(api, ApiServer(api.url, folder, PATIENCE_S, ROLE))
    found.source.set(groups)
    try:
        yield found
    finally:
        await found.source.aclose()


async def test_pods_come_become_ready_are_relabelled_and_terminate(api: Kubernetes) -> None:
    await api.put_pod("a", "10.0.0.1")
    await api.put_pod("b", "10.0.0.2", is_ready=False)
    await api.put_pod("c", "10.0.0.3", labels={"app": "other"})
    async with following(api, SELECTED) as found:
        await found.are("10.0.0.1:8080")
        assert found.seen.is_complete
        await api.set_status("b", "10.0.0.2", is_ready=True)
        await found.are("10.0.0.1:8080", "10.0.0.2:8080")
        await api.put_pod("c", "10.0.0.3", labels={"app": "llama"})
        await found.are("10.0.0.1:8080", "10.0.0.2:8080", "10.0.0.3:8080")
        await api.put_pod("c", "10.0.0.3", labels={"app": "other"})
        await api.terminate("a")
        await found.are("10.0.0.2:8080")
        [condition] = (await api.ask("GET", f"{PODS.format(NAMESPACE)}/a"))["status"]["conditions"]
        assert condition["status"] == "True", "it is there, and ready"
        await api.terminate("a", grace_s=0)
        await api.terminate("b", grace_s=0)
        await found.are()


async def test_a_pool_is_followed_by_its_name(api: Kubernetes) -> None:
    """Each target port is an endpoint; a pool that is deleted leaves them, as long as they are."""
    await api.put_pod("a", "10.0.0.1")
    await api.put_pod("b", "10.0.0.2", annotations={"llm-d.ai/active-ports": "8001"})
    async with following(api, POOL) as found:
        await until(lambda: bool(found.source.problems))
        assert "there is no such InferencePool" in found.source.problems[0]
        await api.apply(pool(8000, 8001))
        await found.are("10.0.0.1:8000", "10.0.0.1:8001", "10.0.0.2:8001")
        await api.apply(pool(8001))
        await found.are("10.0.0.1:8001", "10.0.0.2:8001")
        path = "/apis/inference.networking.k8s.io/v1/namespaces/serving/inferencepools/llama"
        await api.ask("DELETE", path)
        await until(lambda: bool(found.source.problems))
        await api.terminate("a")
        await found.are("10.0.0.2:8001")
        await api.apply(pool(9000, app="llama"))
        await found.are()
        await api.put_pod("b", "10.0.0.2", annotations={"llm-d.ai/active-ports": "9000"})
        await found.are("10.0.0.2:9000")


async def test_a_service_is_followed_by_its_slices(api: Kubernetes) -> None:
    await api.apply(slice_of("one", ["10.0.0.1", "10.0.0.2"], ready=True))
    async with following(api, SERVICE) as found:
        await found.are("10.0.0.1:8080", "10.0.0.2:8080")
        await api.apply(slice_of("two", ["10.0.0.3"], ready=True))
        await api.apply(slice_of("one", ["10.0.0.1"], ready=False, serving=True, terminating=True))
        await found.are("10.0.0.3:8080")


async def test_500_pods_at_once_are_all_found_and_few_publications(api: Kubernetes) -> None:
    """Those that are there at the start come page by page."""
    addresses = [f"10.1.{number // 250}.{number % 250 + 1}" for number in range(500)]
    gate = asyncio.Semaphore(20)

    async def put(number: int) -> None:
        async with gate:
            await api.put_pod(f"p{number}", addresses[number])

    async with following(api, SELECTED) as found:
        await until(lambda: found.seen.is_complete)
        await asyncio.gather(*map(put, range(500)))
        await found.are(*(f"{ip}:8080" for ip in addresses))
        assert found.seen.count < 500
        async with following(api, SELECTED) as other:
            await other.are(*(f"{ip}:8080" for ip in addresses))
            first = other.seen.count
            assert first <= 2
        await api.ask("DELETE", PODS.format(NAMESPACE), gracePeriodSeconds="600")
        await found.are()


async def test_an_api_server_that_restarts_changes_nothing_and_is_caught_up_with(
    api: Kubernetes,
) -> None:
    for name, ip in (("a", "10.0.0.1"), ("b", "10.0.0.2")):
        await api.put_pod(name, ip)
    async with following(api, SELECTED) as found:
        await found.are("10.0.0.1:8080", "10.0.0.2:8080")
        await api.stop()
        await until(lambda: bool(found.source.problems))
        assert "keeping its 2 endpoints" in found.source.problems[0]
        assert found.seen.addresses == {"10.0.0.1:8080", "10.0.0.2:8080"}
        await api.start()
        await api.terminate("a")
        await api.put_pod("c", "10.0.0.3")
        await found.are("10.0.0.2:8080", "10.0.0.3:8080")
        await until(lambda: not found.source.problems)


async def test_a_version_that_is_compacted_is_answered_with_410(api: Kubernetes) -> None:
    """As after hours without a connection; what a watch does with it is in tests/kubernetes."""
    await api.put_pod("a", "10.0.0.1")
    async with following(api):
        client = ApiServer(api.url, await api.service_account(), PATIENCE_S, ROLE)
        with pytest.raises(ExpiredError, match="forgotten"):
            await first_event(client)
        await client.aclose()


async def first_event(client: ApiServer) -> Object:
    parameters = {"watch": "true", "resourceVersion": "1"}
    async with client.watch(PODS.format(NAMESPACE), parameters, PATIENCE_S) as events:
        return await anext(events)


async def test_the_role_allows_nothing_more(api: Kubernetes) -> None:
    """And an account without it is told which one it needs."""
    async with following(api, SELECTED) as found:
        await until(lambda: found.seen.is_complete)
        folder = await api.service_account()
        headers = {"authorization": f"Bearer {(folder / 'token').read_text()}"}
        async with httpx.AsyncClient(base_url=api.url, verify=False, headers=headers) as client:
            allowed = PODS.format(NAMESPACE)
            assert (await client.get(allowed)).status_code == 200
            for path in (
                f"{allowed}/a",
                PODS.format("kube-system"),
                "/api/v1/pods",
                f"/api/v1/namespaces/{NAMESPACE}/secrets",
                f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases",
            ):
                assert (await client.get(path)).status_code == 403, path
            assert (await client.delete(allowed)).status_code == 403
            assert (await client.post(allowed, json={})).status_code == 403
    without = ApiServer(api.url, await api.service_account("other"), PATIENCE_S, ROLE)
    with pytest.raises(
        ApiServerError, match=r"rejects the service account \(403\).*discovery-role"
    ):
        await without.list_page(PODS.format(NAMESPACE), {})
    await without.aclose()


async def test_what_is_written_for_a_pool_is_read_with_the_role(api: Kubernetes) -> None:
    """InferenceObjectives and InferenceModelRewrites; nothing is written into their status."""
    group = {"apiVersion": "llm-d.ai/v1alpha2", "metadata": {"name": "gold"}}
    reference = {"poolRef": {"name": "llama"}}
    rules = [
        {
            "matches": [{"model": {"value": "m"}}],
            "targets": [{"modelRewrite": "x", "weight": 3}, {"modelRewrite": "y", "weight": 1}],
        }
    ]
    rewrite = {**group, "kind": "InferenceModelRewrite", "spec": {**reference, "rules": rules}}
    objective = {**group, "kind": "InferenceObjective", "spec": {**reference, "priority": 7}}
    async with following(api):
        client = ApiServer(api.url, await api.service_account(), PATIENCE_S, ROLE)
        found = PoolObjects(client, lambda: None)
        found.set([(NAMESPACE, "llama")])
        await api.apply(objective, rewrite)
        await until(lambda: found.below(Settings()).models == {"m": {"x": 3.0, "y": 1.0}})
        await until(lambda: "gold" in found.below(Settings()).objectives)
        assert found.below(Settings()).objectives["gold"].criticality == "critical"
        found.set([], {(NAMESPACE, "llama"): ["chat"]})
        pools = {"chat": {"default": True}, "batch": {"hosts": ["b"]}}
        chat, batch = found.below(Settings.model_validate({"pools": pools})).pools.values()
        assert (set(chat.written), set(chat.models)) == ({"gold"}, {"m"})
        assert not batch.written and not batch.models
        path = f"/apis/llm-d.ai/v1alpha2/namespaces/{NAMESPACE}"
        assert "status" not in await api.ask("GET", f"{path}/inferenceobjectives/gold")
        for kind in ("inferenceobjectives", "inferencemodelrewrites"):
            await api.ask("DELETE", f"{path}/{kind}/gold")
        await until(lambda: not found.below(Settings()).models)
        await until(lambda: not found.below(Settings()).objectives)
        await found.aclose()
