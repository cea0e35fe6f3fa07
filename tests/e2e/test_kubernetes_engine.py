"""The claims of tests/processes/cluster/test_engine_contract.py, by a real Kubernetes API server
with the role in deploy/ and nothing more."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import yaml

from extproc.processes.cluster.engine import Engine
from extproc.processes.cluster.kubernetes import CONFIG_MAPS, LEASES, KubernetesEngine
from tests.deploy.stack_files import DEPLOY
from tests.e2e.pool import shares
from tests.fakes.kubernetes import NAMESPACE, NEEDS_KUBERNETES, Kubernetes
from tests.processes.cluster import test_engine_contract as contract

pytestmark = [*shares("kubernetes"), NEEDS_KUBERNETES, pytest.mark.timeout(180)]


globals().update(
    {name: one for name, one in vars(contract).items() if name.startswith("test_")},
    lease_s=contract.lease_s,
)


class ApiServerRig:
    """`kill` takes the API server away, and what it knew of these clusters."""

    def __init__(self, api: Kubernetes, folder: Any, lease_s: float) -> None:
        self._api, self._folder, self._lease_s = api, folder, lease_s
        self.start = api.start

    def make(self, name: str) -> Engine:
        return KubernetesEngine(name, self._api.url, NAMESPACE, self._folder, self._lease_s)

    async def kill(self) -> None:
        await self.forget()
        await self._api.stop()

    async def forget(self) -> None:
        for collection in (LEASES, CONFIG_MAPS):
            await self._api.ask("DELETE", collection.format(NAMESPACE))


@pytest_asyncio.fixture(loop_scope="session")
async def rig(kubernetes: Kubernetes, lease_s: float) -> AsyncIterator[ApiServerRig]:
    folder = await kubernetes.service_account()
    await kubernetes.apply(*roles("test"), *roles("other"))
    found = ApiServerRig(kubernetes, folder, lease_s)
    await found.forget()
    yield found


def roles(cluster: str) -> list[dict[str, Any]]:
    """The role in deploy/, which is written for a cluster `prod`."""
    text = (DEPLOY / "kubernetes/cluster-role.yaml").read_text(encoding="utf-8")
    text = text.replace("prod", cluster).replace("coxswain-cluster", f"coxswain-{cluster}")
    return list(yaml.safe_load_all(text))[1:]


@pytest_asyncio.fixture(loop_scope="session")
async def engine(rig: ApiServerRig) -> AsyncIterator[contract.PerMember]:
    found = contract.PerMember(rig)
    yield found
    await found.aclose()
