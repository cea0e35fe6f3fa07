"""A rollout of four pods under load, and no request fails: over real Envoy, real llama-servers and
a real API server, with the settings, the role and the preStop hook of the chart."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml

from extproc.demo.port import free_port
from tests.e2e.constant_load import constant_load
from tests.e2e.pool import shares
from tests.e2e.stack import Server, Stack
from tests.e2e.test_chart import Objects, objects_of, rendered
from tests.fakes.kubernetes import NEEDS_KUBERNETES, Kubernetes

pytestmark = [*shares("kubernetes"), NEEDS_KUBERNETES, pytest.mark.timeout(240)]

PODS = 4
ACCOUNT = "rollout-coxswain"
ALLOWED = ("Role", "RoleBinding", "ServiceAccount", "InferencePool")


def settings_of(objects: Objects, api: Kubernetes, account: Path) -> dict[str, Any]:
    """Those of the chart about its servers, for a picker on this machine."""
    written = yaml.safe_load(objects["ConfigMap", ACCOUNT]["data"]["coxswain.yaml"])
    return {
        "endpoints": [],
        "scraper": {"slow_interval_s": 0.5},
        "discovery": {
            **written["discovery"],
            "kubernetes_api": api.url,
            "kubernetes_folder": str(account),
        },
    }


class Rollout:
    """Pods whose servers run here: what a Deployment's controller and a kubelet do to them."""

    def __init__(self, api: Kubernetes, stack: Stack, port: int, pre_stop: str) -> None:
        self._api, self._stack, self._port, self._pre_stop = api, stack, port, pre_stop
        self._begun = 0

    async def begin(self) -> tuple[str, Server]:
        """A pod is created; its server starts; when it answers, the pod is Ready."""
        self._begun += 1
        name, host = f"rollout-{self._begun}", f"127.0.0.{self._begun}"
        await self._api.put_pod(name, host, is_ready=False, labels={"app": "rollout"})
        server = await self._stack.add_server(2, port=self._port, host=host)
        await self._api.set_status(name, host, is_ready=True)
        return name, server

    async def end(self, name: str, server: Server) -> None:
        """It terminates: the preStop hook, then SIGTERM, then it is gone."""
        await self._api.terminate(name)
        hook = self._pre_stop.replace("127.0.0.1:8080", server.address)
        process = await asyncio.create_subprocess_exec("sh", "-c", hook)
        assert await process.wait() == 0
        assert server.child is not None
        await server.child.stop()
        await self._api.terminate(name, grace_s=0)


async def test_a_rollout_of_four_pods_fails_no_request(
    llama: None, kubernetes: Kubernetes, tmp_path: Path
) -> None:
    port = free_port()
    values = {
        "inferencePool": {"create": True},
        "servers": {"labels": {"app": "rollout"}, "ports": [port]},
    }
    objects = objects_of(rendered(tmp_path, values, "rollout"))
    await kubernetes.apply(*(one for (kind, _), one in objects.items() if kind in ALLOWED))
    account = await kubernetes.service_account(ACCOUNT)
    settings = settings_of(objects, kubernetes, account)
    async with Stack.running(tmp_path, slots=(), settings=settings) as stack:
        rollout = Rollout(kubernetes, stack, port, pre_stop_of(tmp_path))
        pods = [await rollout.begin() for _ in range(PODS)]

        async def has(servers: list[Server]) -> None:
            wanted = {server.address for server in servers}
            await stack.until(
                lambda status: (
                    set(status["endpoints"]) == wanted
                    and all(each["health"] == "ready" for each in status["endpoints"].values())
                )
            )

        await has([server for _, server in pods])
        async with constant_load(stack, clients=10) as load:
            held = await stack.hold()
            pods.sort(key=lambda pod: pod[0] != held.endpoint)
            holder = pods[0][1].address
            for number, (name, server) in enumerate(list(pods)):
                pods.append(await rollout.begin())
                await load.grew(2, pods[-1][0])
                ending = asyncio.create_task(rollout.end(name, server))
                if number == 0:
                    await stack.until(lambda status: status["endpoints"][holder]["is_removed"])
                    before = load.served[held.endpoint]
                    await load.grew(20)
                    assert load.served[held.endpoint] - before <= 2, "only what was on its way"
                    assert await held.next_chunk(), "what runs there goes on"
                    assert not ending.done()
                    await held.leave()
                await ending
                pods.remove((name, server))
            await load.grew(10)
        await has([server for _, server in pods])


def pre_stop_of(folder: Path) -> str:
    """The command of the chart's hook."""
    objects = objects_of(rendered(folder, {"llama": {"enabled": True}}))
    pod = objects["Deployment", "coxswain-llama"]["spec"]["template"]["spec"]
    shell, _, command = pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    assert shell == "sh"
    return str(command)
