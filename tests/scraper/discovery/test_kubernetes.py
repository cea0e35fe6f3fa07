"""Claims about scraper/discovery/kubernetes.py, over an API server of the test's own; what a real
one does is in tests/e2e/test_kubernetes.py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from extproc.kubernetes.api_server import ApiServer
from extproc.runners.kind import RunnerKind
from scraper.discovery.discovered_endpoint import EndpointEntry
from scraper.discovery.kubernetes import ROLE, KubernetesEndpoints, PodGroup
from tests.fakes.api_server import FakeApiServer
from tests.fakes.patience import PATIENCE_S
from tests.fakes.picker import until
from tests.fakes.publications import Publications

ENTRY = EndpointEntry(host="x", port=0)
POOL = PodGroup(entry=ENTRY, namespace="serving", pool="llama")
SELECTED = PodGroup(entry=ENTRY, namespace="serving", selector="app=llama", ports=("8080",))
SERVICE = PodGroup(entry=ENTRY, namespace="serving", service="llama")


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer(tmp_path) as found:
        yield found


def put_pod(api: FakeApiServer, number: int, *, is_ready: bool = True, **metadata: Any) -> None:
    """Pod p`number` at 10.0.0.`number`."""
    conditions = [{"type": "Ready", "status": str(is_ready)}]
    named = {"name": f"p{number}", "labels": {"app": "llama"}, **metadata}
    status = {"podIP": f"10.0.{number // 250}.{number % 250}", "conditions": conditions}
    api.put("pods", {"metadata": named, "status": status})


def put_pool(api: FakeApiServer, *ports: int, app: str = "llama") -> None:
    spec = {
        "selector": {"matchLabels": {"app": app}},
        "targetPorts": [{"number": p} for p in ports],
    }
    api.put("inferencepools", {"metadata": {"name": "llama"}, "spec": spec})


def put_slice(api: FakeApiServer, name: str, *ips: str, **conditions: Any) -> None:
    api.put(
        "endpointslices",
        {
            "metadata": {"name": name, "labels": {"kubernetes.io/service-name": "llama"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [ip], "conditions": conditions} for ip in ips],
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        },
    )


class Following:
    """A source, what it has published, and its problems."""

    def __init__(self, api: FakeApiServer) -> None:
        self.seen = Publications()
        client = ApiServer(api.url, api.folder, PATIENCE_S, ROLE)
        self.source = KubernetesEndpoints(self.seen, client, self._soon)
        self.pauses = 0

    async def _soon(self, seconds: float) -> None:
        self.pauses += 1
        await asyncio.sleep(0.001)

    async def are(self, *addresses: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await self.seen.are(*addresses)

    async def has_problem(self, text: str) -> None:
        await until(lambda: any(text in each for each in self.source.problems))


@asynccontextmanager
async def following(api: FakeApiServer, *groups: PodGroup) -> AsyncIterator[Following]:
    found = Following(api)
    found.source.set(groups)
    try:
        yield found
    finally:
        await found.source.aclose()


async def test_the_ready_pods_of_a_selector_are_endpoints(api: FakeApiServer) -> None:
    """With all that is said of them; a pod that is not ready yet becomes one in its time."""
    put_pod(api, 1)
    put_pod(api, 2, is_ready=False)
    put_pod(api, 3, labels={"app": "other"})
    said = replace(ENTRY, api_key="sesame", slots=4, kind=RunnerKind.VLLM, labels=(("a", "b"),))
    async with following(api, replace(SELECTED, entry=said)) as found:
        await found.are("10.0.0.1:8080")
        assert found.seen.is_complete
        one = found.seen.one("10.0.0.1:8080")
        assert (one.spec.name, one.spec.slots, one.spec.labels) == ("p1", 4, (("a", "b"),))
        assert one.target is not None
        assert (one.target.kind, one.target.api_key) == (RunnerKind.VLLM, "sesame")
        put_pod(api, 2)
        await found.are("10.0.0.1:8080", "10.0.0.2:8080")
        put_pod(api, 1, labels={"app": "other"})
        await found.are("10.0.0.2:8080")


async def test_a_pod_that_begins_to_terminate_is_no_endpoint_from_then_on(
    api: FakeApiServer,
) -> None:
    """Though it is ready, and will be there until its last answer is sent."""
    for number in (1, 2):
        put_pod(api, number)
    async with following(api, SELECTED) as found:
        await found.are("10.0.0.1:8080", "10.0.0.2:8080")
        put_pod(api, 1, deletionTimestamp="2026-11-29T12:00:00Z")
        await found.are("10.0.0.2:8080")
        api.remove("pods", "p1")
        put_pod(api, 3)
        await found.are("10.0.0.2:8080", "10.0.0.3:8080")


async def test_each_target_port_of_a_pool_is_an_endpoint_of_its_own(api: FakeApiServer) -> None:
    put_pod(api, 1)
    put_pod(api, 2, annotations={"llm-d.ai/active-ports": "8001"})
    put_pool(api, 8000, 8001)
    async with following(api, POOL) as found:
        await found.are("10.0.0.1:8000", "10.0.0.1:8001", "10.0.0.2:8001")
        assert found.seen.one("10.0.0.1:8001").spec.name == "p1:8001"
        assert found.seen.one("10.0.0.2:8001").spec.name == "p2"
        put_pod(api, 2, annotations={"llm-d.ai/active-ports": "8000,8001"})
        put_pod(api, 1, annotations={"llm-d.ai/active-ports": ""})
        await found.are("10.0.0.2:8000", "10.0.0.2:8001")


async def test_a_pool_that_changes_its_ports_or_its_selector_is_followed(
    api: FakeApiServer,
) -> None:
    put_pod(api, 1)
    put_pod(api, 2, labels={"app": "other"})
    put_pool(api, 8000)
    async with following(api, POOL) as found:
        await found.are("10.0.0.1:8000")
        put_pool(api, 8000, 8001)
        await found.are("10.0.0.1:8000", "10.0.0.1:8001")
        count = found.seen.count
        put_pool(api, 8000, app="other")
        await found.are("10.0.0.2:8000")
        assert found.seen.count > count
        put_pod(api, 1)
        put_pod(api, 3, labels={"app": "other"})
        await found.are("10.0.0.2:8000", "10.0.0.3:8000")


async def test_a_pool_that_is_gone_leaves_its_pods_and_is_said(
    api: FakeApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    put_pod(api, 1)
    put_pool(api, 8000)
    async with following(api, POOL) as found:
        await found.are("10.0.0.1:8000")
        api.remove("inferencepools", "llama")
        await found.has_problem(
            "pool llama in serving: there is no such InferencePool; keeping its 1"
        )
        put_pod(api, 2)
        await found.are("10.0.0.1:8000", "10.0.0.2:8000")
        put_pool(api, 9000)
        await found.are("10.0.0.1:9000", "10.0.0.2:9000")
        assert not found.source.problems
    assert "there is no InferencePool llama in serving" in caplog.text


async def test_a_pool_that_is_not_there_yet_is_waited_for(api: FakeApiServer) -> None:
    """The fleet is not complete before."""
    put_pod(api, 1)
    async with following(api, POOL) as found:
        await found.has_problem("no such InferencePool")
        assert not found.seen.is_complete
        put_pool(api, 8000)
        await found.are("10.0.0.1:8000")
        assert found.seen.is_complete


async def test_an_api_server_without_inference_pools_is_said(api: FakeApiServer) -> None:
    api.missing_kinds.add("inferencepools")
    async with following(api, POOL) as found:
        await found.has_problem("the API server has no inferencepools")
        api.missing_kinds.clear()
        put_pod(api, 1)
        put_pool(api, 8000)
        await found.are("10.0.0.1:8000")
        assert not found.source.problems


async def test_the_endpoints_of_a_service(api: FakeApiServer) -> None:
    put_slice(api, "a", "10.0.0.1", "10.0.0.2")
    put_slice(api, "b", "10.0.0.3", ready=False)
    async with following(api, SERVICE) as found:
        await found.are("10.0.0.1:8080", "10.0.0.2:8080")
        put_slice(api, "b", "10.0.0.3", ready=True)
        put_slice(api, "a", "10.0.0.2", ready=True, terminating=True)
        await found.are("10.0.0.3:8080")
        api.remove("endpointslices", "b")
        await found.are()


async def test_a_service_with_several_ports_is_a_problem_until_one_is_named(
    api: FakeApiServer,
) -> None:
    put_slice(api, "a", "10.0.0.1")
    thing = api.objects["endpointslices", "serving", "a"]
    thing["ports"].append({"name": "metrics", "port": 9090})
    api.put("endpointslices", thing)
    async with following(api, SERVICE) as found:
        await found.has_problem("several ports (http, metrics)")
        found.source.set([replace(SERVICE, ports=("http",))])
        await found.are("10.0.0.1:8080")
        assert not found.source.problems


async def test_a_lost_api_server_changes_nothing_and_is_said(api: FakeApiServer) -> None:
    """What happened meanwhile is learned when it is back."""
    for number in (1, 2):
        put_pod(api, number)
    async with following(api, SELECTED) as found:
        await found.are("10.0.0.1:8080", "10.0.0.2:8080")
        await api.stop()
        await found.has_problem("selector app=llama in serving")
        assert "keeping its 2 endpoints" in found.source.problems[0]
        assert found.seen.addresses == {"10.0.0.1:8080", "10.0.0.2:8080"}
        put_pod(api, 1, is_ready=False)
        await api.start()
        await found.are("10.0.0.2:8080")


async def test_groups_come_and_go_and_the_others_keep_their_endpoints(api: FakeApiServer) -> None:
    put_pod(api, 1)
    put_slice(api, "a", "10.0.0.9")
    async with following(api, SELECTED) as found:
        await found.are("10.0.0.1:8080")
        keyed = replace(SELECTED, entry=replace(ENTRY, api_key="sesame"))
        await api.stop()
        found.source.set([keyed])
        target = found.seen.one("10.0.0.1:8080").target
        assert target is not None and target.api_key == "sesame"
        await api.start()
        found.source.set([keyed, SERVICE])
        assert found.seen.addresses == {"10.0.0.1:8080"}
        assert not found.seen.is_complete
        await found.are("10.0.0.1:8080", "10.0.0.9:8080")
        found.source.set([SERVICE])
        await found.are("10.0.0.9:8080")


async def test_hundreds_of_pods_at_once_are_few_publications(api: FakeApiServer) -> None:
    async with following(api, SELECTED) as found:
        async with asyncio.timeout(PATIENCE_S):
            await found.seen.were_complete()
        count = found.seen.count
        for number in range(1, 501):
            put_pod(api, number)
        await found.are(*(f"10.0.{n // 250}.{n % 250}:8080" for n in range(1, 501)))
        assert found.seen.count - count < 100
