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
from tests.fakes.kubernetes import NEEDS_KUBERNETES, Kubernetes

__all__ = [
    "gateway",
    "test_epp_unavailable_fail_open",
    "test_gateway_destination_endpoint_served",
    "test_gateway_following_epp_routing",
    "test_gateway_following_epp_routing_with_data_parallelism",
]

pytestmark = [*shares("kubernetes"), NEEDS_KUBERNETES, pytest.mark.timeout(180)]

POOL = "conformance"


@pytest.fixture
def sources(kubernetes: Kubernetes) -> Sources:
    """A pool with these target ports, and a ready pod at each address."""

    async def of_the_api(ips: list[str], ports: list[int]) -> dict[str, Any]:
        role = DEPLOY / "kubernetes/discovery-role.yaml"
        await kubernetes.apply(*yaml.safe_load_all(role.read_text(encoding="utf-8")))
        labels = {"app": POOL}
        await kubernetes.apply(
            {
                "apiVersion": "inference.networking.k8s.io/v1",
                "kind": "InferencePool",
                "metadata": {"name": POOL},
                "spec": {
                    "selector": {"matchLabels": labels},
                    "targetPorts": [{"number": port} for port in ports],
                    "endpointPickerRef": {"name": "coxswain", "port": {"number": 9002}},
                },
            }
        )
        for number, ip in enumerate(ips):
            await kubernetes.put_pod(f"{POOL}-{number}", ip, labels=labels)
        account = await kubernetes.service_account()
        return {
            "endpoints": [],
            "discovery": {
                "kubernetes": [{"pool": POOL}],
                "kubernetes_api": kubernetes.url,
                "kubernetes_folder": str(account),
            },
        }

    return of_the_api
