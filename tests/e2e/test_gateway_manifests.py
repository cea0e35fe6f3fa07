"""What docs/gateways.md prints to be applied is taken by a real API server with the CRDs of what it
names: no unknown field, and every rule of the CRDs."""

from __future__ import annotations

import re

import pytest
import yaml

from tests.docs.pages import page
from tests.e2e.pool import shares
from tests.fakes.kubernetes import NEEDS_KUBERNETES, Kubernetes

pytestmark = [*shares("kubernetes"), NEEDS_KUBERNETES, pytest.mark.timeout(180)]

WITHOUT_CRD = "networking.istio.io"
"""Istio has one file for all of its CRDs."""


async def test_an_api_server_takes_what_is_printed(kubernetes: Kubernetes) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", page("docs/gateways.md").text, re.DOTALL)
    objects = [one for block in blocks for one in yaml.safe_load_all(block)]
    assert {one["kind"] for one in objects} >= {"Gateway", "HTTPRoute", "EnvoyExtensionPolicy"}
    known = [one for one in objects if not one["apiVersion"].startswith(WITHOUT_CRD)]
    await kubernetes.apply(*known, is_dry_run=True)
