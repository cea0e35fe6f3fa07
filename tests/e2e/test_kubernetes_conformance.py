"""The routing tests of the inference extension, with the pods of an InferencePool that a real API
server has: the same claims as in test_conformance.py."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.deploy.stack_files import DEPLOY
from tests.e2e.pool import shares
from tests.e2e.test_conformance import (
    Sources,
    gateway,
    test_epp_unavailable_fail_open,
    test_gateway_destination_endpoint_served,
    test_gateway_following_epp_routing,
    test_gateway_following_epp_routing_with_data_parallelism,
)
from tests.e2e.test_kubernetes import api, pool
from tests.fakes.kubernetes import NEEDS_KUBERNETES, Kubernetes

__all__ = [
    "api",
    "gateway",
    "test_epp_unavailable_fail_open",
    "test_gateway_destination_endpoint_served",
    "test_gateway_following_epp_routing",
    "test_gateway_following_epp_routing_with_data_parallelism",
]

pytestmark = [*shares("kubernetes"), NEEDS_KUBERNETES, pytest.mark.timeout(180)]


@pytest.fixture
def sources(api: Kubernetes) -> Sources:
    """A pool with these target ports, and a ready pod at each address."""

    async def of_the_api(ips: list[str], ports: list[int]) -> dict[str, Any]:
        role = DEPLOY / "kubernetes/discovery-role.yaml"
        await api.apply(*yaml.safe_load_all(role.read_text(encoding="utf-8")))
        labels = {"app": "conformance"}
        await api.apply(pool(*ports, **labels))
        for number, ip in enumerate(ips):
            await api.put_pod(f"conformance-{number}", ip, labels=labels)
        account = await api.service_account()
        return {
            "endpoints": [],
            "discovery": {
                "kubernetes": [{"pool": "llama"}],
                "kubernetes_api": api.url,
                "kubernetes_folder": str(account),
            },
        }

    return of_the_api
