"""The Helm chart: ten sets of values, each linted, rendered, and taken by a real API server; its
settings are those of a picker that starts, and the plain manifests are what it renders."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml

from extproc.app.preflight import envoy_problems, startup_problems
from extproc.settings import Settings, load_settings
from tests.deploy.stack_files import DEPLOY
from tests.docs.pages import ROOT, page
from tests.e2e.pool import shares
from tests.e2e.stack import Stack
from tests.fakes.authority import Authority
from tests.fakes.kubernetes import NAMESPACE, NEEDS_KUBERNETES, Kubernetes
from tests.fakes.llama_server import FakeLlamaServer
from tools.kubernetes_build import KUBERNETES, program

pytestmark = [*shares("kubernetes"), NEEDS_KUBERNETES, pytest.mark.timeout(180)]

CHART = DEPLOY / "helm/coxswain"
MONITORED = {"serviceMonitor": True, "prometheusRule": True, "dashboard": True}
LABEL = "app.kubernetes.io"
Objects = dict[tuple[str, str], dict[str, Any]]

SETS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "all": {
        "mode": "fronts",
        "llama": {"enabled": True, "extraArgs": ["--jinja", "-ngl", 99]},
        "keda": {"enabled": True},
        "monitoring": {**MONITORED, "labels": {"release": "prometheus"}},
        "networkPolicy": {"enabled": True, "from": [{"namespaceSelector": {}}]},
        "settings": {
            "queue": {"timeout_s": 120},
            "objectives": {"gold": {"criticality": "critical"}},
        },
    },
    "cluster": {
        "mode": "cluster",
        "replicas": 3,
        "networkPolicy": {"enabled": True},
        "envFromSecret": "coxswain-env",
        "servers": {"service": "llama", "ports": ["http"]},
    },
    "batches": {
        "mode": "cluster",
        "batches": {"enabled": True, "storageClass": "fast", "extraArgs": ["--keep", "7d"]},
        "envFromSecret": "coxswain-env",
        "networkPolicy": {"enabled": True},
    },
    "agents": {
        "llama": {"enabled": True, "agents": True},
        "envFromSecret": "coxswain-env",
        "networkPolicy": {"enabled": True},
    },
    "a-gateways-picker": {
        "envoy": {"enabled": False},
        "inferencePool": {"create": True, "failureMode": "FailClose"},
        "servers": {"labels": {"app": "llama"}, "ports": [8000, 8001]},
        "networkPolicy": {"enabled": True},
    },
    "a-gateways-picker-tls": {
        "envoy": {"enabled": False},
        "servers": {"pool": "theirs", "objectives": True},
        "gatewayTLS": {"secretName": "picker-tls", "clientCA": True},
        "mode": "cluster",
        "clusterTokenSecret": "ours",
    },
    "pools-of-a-gateway": {
        "envoy": {"enabled": False},
        "inferencePool": {"create": True},
        "pools": {
            "chat": {
                "labels": {"app": "chat"},
                "ports": [8000, 8001],
                "settings": {"default": True, "objectives": {"gold": {"criticality": "critical"}}},
            },
            "batch": {"labels": {"app": "batch"}, "port": 9010},
            "theirs": {"pool": "llama-theirs", "port": 9011},
        },
        "networkPolicy": {"enabled": True},
        "servers": {"objectives": True},
    },
    "pools-by-hosts": {
        "mode": "cluster",
        "pools": {
            "chat": {"labels": {"app": "chat"}, "settings": {"hosts": ["chat.example.com"]}},
            "batch": {"service": "batch", "ports": ["http"], "settings": {"default": True}},
        },
    },
    "placed": {
        "service": {"type": "LoadBalancer", "port": 8080, "annotations": {"a": "b"}},
        "image": {"repository": "registry.example/coxswain", "tag": "1.2.3"},
        "imagePullSecrets": [{"name": "pull"}],
        "nodeSelector": {"a": "b"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "podAnnotations": {"a": "b"},
        "llama": {
            "enabled": True,
            "resources": {"limits": {"nvidia.com/gpu": "1"}},
            "cache": {"persistentVolumeClaim": {"claimName": "models"}},
            "nodeSelector": {"gpu": "yes"},
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
        },
    },
}


def helm(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(program("helm")), *map(str, arguments)], capture_output=True, text=True, check=False
    )


def rendered(
    folder: Path,
    values: dict[str, Any],
    release: str = "coxswain",
    namespace: str = NAMESPACE,
) -> str:
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    lint = helm("lint", "--strict", CHART, "-f", file, "--kube-version", KUBERNETES)
    assert lint.returncode == 0, lint.stdout + lint.stderr
    template = ("template", release, CHART, "-n", namespace, "-f", file)
    run = helm(*template, "--kube-version", KUBERNETES)
    assert run.returncode == 0, run.stderr
    return run.stdout


def objects_of(text: str) -> Objects:
    """The objects by kind and name."""
    found = [one for one in yaml.safe_load_all(text) if one]
    by_name = {(one["kind"], one["metadata"]["name"]): one for one in found}
    assert len(by_name) == len(found)
    return by_name


def settings_of(objects: Objects, folder: Path, name: str = "coxswain") -> Settings:
    """As the picker in that pod reads them."""
    file = folder / "coxswain.yaml"
    text = objects["ConfigMap", name]["data"]["coxswain.yaml"]
    file.write_text(text.replace("/etc/coxswain/tls", str(folder)))
    environment = {
        "COXSWAIN_DISCOVERY__KUBERNETES_FOLDER": str(folder),
        "COXSWAIN_CLUSTER__KUBERNETES_FOLDER": str(folder),
    }
    if "cluster" in yaml.safe_load(text):
        environment["COXSWAIN_CLUSTER__ADVERTISE"] = "10.0.0.1:9004"
    return load_settings(file, environ=environment)


@pytest.fixture(params=list(SETS))
def values(request: pytest.FixtureRequest) -> dict[str, Any]:
    return SETS[str(request.param)]


async def test_an_api_server_takes_what_the_chart_renders(
    kubernetes: Kubernetes, tmp_path: Path, values: dict[str, Any]
) -> None:
    """By a server-side dry run that knows no unknown field, with the CRDs of what it names."""
    objects = objects_of(rendered(tmp_path, values))
    await kubernetes.apply(*objects.values(), is_dry_run=True)
    kind = "StatefulSet" if values.get("mode") == "cluster" else "Deployment"
    workloads = {(kind, "coxswain"), ("Deployment", "coxswain-batches")} & objects.keys()
    assert ("agents" in values.get("llama", {})) is (("Role", "coxswain") not in objects)
    assert len(workloads) == 1 + ("batches" in values)
    for workload in workloads:
        pod = objects[workload]["spec"]["template"]["spec"]
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"]
            assert not security["allowPrivilegeEscalation"]
            assert security["capabilities"] == {"drop": ["ALL"]}
        assert pod["securityContext"]["runAsNonRoot"]


async def test_a_picker_starts_with_the_settings_of_the_chart(
    tmp_path: Path, values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And so does its Envoy."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    for name in ("CLUSTER", "ADMIN"):
        monkeypatch.setenv(f"COXSWAIN_{name}_TOKEN", "a-token-of-enough-characters-0123456789")
    (tmp_path / "namespace").write_text(NAMESPACE)
    authority = Authority(tmp_path)
    pair = authority.issue("picker")
    pair.cert.rename(tmp_path / "tls.crt")
    pair.key.rename(tmp_path / "tls.key")
    authority.ca.rename(tmp_path / "ca.crt")
    settings = settings_of(objects_of(rendered(tmp_path, values)), tmp_path)
    assert startup_problems(settings) == ()
    if values.get("envoy", {}).get("enabled", True):
        assert envoy_problems(settings) == ()


async def test_an_agent_of_the_chart_reports_the_server_beside_it(tmp_path: Path) -> None:
    """With its arguments and its environment, at the address of its pod."""
    pod = objects_of(rendered(tmp_path, SETS["agents"]))["Deployment", "coxswain-llama"]
    _, agent = pod["spec"]["template"]["spec"]["containers"]
    assert agent["securityContext"]["readOnlyRootFilesystem"]
    assert [one["name"] for one in agent["env"]] == ["POD_IP", "COXSWAIN_PICKER", "COXSWAIN_TOKEN"]
    async with (
        FakeLlamaServer() as server,
        Stack.running(tmp_path, slots=(), settings={"endpoints": []}) as stack,
    ):
        arguments = [
            one.replace("$(POD_IP)", "127.0.0.1").replace(":8080", f":{server.address.port}")
            for one in agent["args"]
        ]
        command = [sys.executable, "-m", "extproc.cli", *arguments]
        picker = {"COXSWAIN_PICKER": f"127.0.0.1:{stack.admin_port}"}
        child = await stack.children.start("agent", command, environment=picker)
        address = str(server.address)
        await stack.until(
            lambda status: status["endpoints"].get(address, {}).get("health") == "ready"
        )
        await child.stop()
        await stack.until(lambda status: not status["endpoints"])


async def test_agents_need_tokens(tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump({"llama": {"enabled": True, "agents": True}}))
    run = helm("template", CHART, "-f", file, "--kube-version", KUBERNETES)
    assert run.returncode != 0 and "llama.agents needs envFromSecret" in run.stderr


async def test_the_settings_of_the_values_go_before_those_of_the_chart(tmp_path: Path) -> None:
    values = {"settings": {"drain_timeout_s": 5, "listen": {"http": "0.0.0.0:8000"}}}
    settings = settings_of(objects_of(rendered(tmp_path, values)), tmp_path)
    assert (settings.drain_timeout_s, settings.listen.http) == (5.0, "0.0.0.0:8000")
    assert settings.listen.grpc == "127.0.0.1:9002"


@pytest.mark.parametrize(
    ("values", "source"),
    [
        ({}, {"selector": f"{LABEL}/name=llama-server", "ports": [8080]}),
        (
            {"servers": {"labels": {"b": "c", "a": "b"}, "ports": [1, 2]}},
            {"selector": "a=b,b=c", "ports": [1, 2]},
        ),
        (
            {"servers": {"service": "llama", "ports": ["http"]}},
            {"service": "llama", "ports": ["http"]},
        ),
        ({"servers": {"pool": "theirs"}}, {"pool": "theirs"}),
        ({"inferencePool": {"create": True}}, {"pool": "coxswain"}),
        (
            {"llama": {"enabled": True}},
            {
                "selector": f"{LABEL}/instance=coxswain,{LABEL}/name=llama-server",
                "ports": [8080],
            },
        ),
    ],
)
async def test_the_pods_of_the_values_are_followed_and_no_label_is_added(
    tmp_path: Path, values: dict[str, Any], source: dict[str, Any]
) -> None:
    """Helm merges maps: labels among the defaults would stay beside those of the values."""
    text = objects_of(rendered(tmp_path, values))["ConfigMap", "coxswain"]["data"]["coxswain.yaml"]
    assert yaml.safe_load(text)["discovery"]["kubernetes"] == [source]


@pytest.mark.parametrize("mode", ["single", "fronts", "cluster"])
async def test_each_pool_of_the_values_has_its_servers_and_its_port(
    tmp_path: Path, mode: str
) -> None:
    """What the picker follows, which port each InferencePool names, and that a Service, the pod
    and the network let a gateway get there. The role names these InferencePools alone."""
    objects = objects_of(rendered(tmp_path, {**SETS["pools-of-a-gateway"], "mode": mode}))
    settings = settings_of(objects, tmp_path)
    assert [(one.pool, one.in_pool) for one in settings.discovery.kubernetes] == [
        ("coxswain-batch", "batch"),
        ("coxswain-chat", "chat"),
        ("llama-theirs", "theirs"),
    ]
    ports = {name: pool.port for name, pool in settings.pools.items()}
    assert ports == {"batch": 9010, "chat": None, "theirs": 9011}
    assert list(settings.pools["chat"].objectives) == ["gold"]
    made = {name: one["spec"] for (kind, name), one in objects.items() if kind == "InferencePool"}
    assert {
        name: (
            one["selector"]["matchLabels"]["app"],
            [port["number"] for port in one["targetPorts"]],
            one["endpointPickerRef"]["port"]["number"],
        )
        for name, one in made.items()
    } == {
        "coxswain-batch": ("batch", [8080], 9010),
        "coxswain-chat": ("chat", [8000, 8001], 9002),
    }
    service = {
        one["port"]: one["targetPort"] for one in objects["Service", "coxswain"]["spec"]["ports"]
    }
    kind = "StatefulSet" if mode == "cluster" else "Deployment"
    pod = objects[kind, "coxswain"]["spec"]["template"]["spec"]["containers"][0]
    at = {one["name"]: one["containerPort"] for one in pod["ports"]}
    open_ = objects["NetworkPolicy", "coxswain"]["spec"]["ingress"][0]["ports"]
    for port in (9002, 9010, 9011):
        assert at[service[port]] == port
        assert {"port": service[port]} in open_
    [rule] = (
        one
        for one in objects["Role", "coxswain"]["rules"]
        if one["resources"] == ["inferencepools"]
    )
    assert rule["resourceNames"] == ["coxswain-batch", "coxswain-chat", "llama-theirs"]
    assert settings.discovery.kubernetes_objectives
    resources = {name for one in objects["Role", "coxswain"]["rules"] for name in one["resources"]}
    assert "inferenceobjectives" in resources


async def test_the_pools_of_the_page_are_values(tmp_path: Path) -> None:
    [text] = (each.text for each in page("docs/kubernetes.md").blocks() if "pools:" in each.text)
    settings = settings_of(objects_of(rendered(tmp_path, yaml.safe_load(text))), tmp_path)
    assert {name: pool.port for name, pool in settings.pools.items()} == {
        "batch": 9010,
        "chat": None,
        "theirs": 9011,
    }


async def test_pools_are_followed_by_labels_or_services_beside_envoy(tmp_path: Path) -> None:
    objects = objects_of(rendered(tmp_path, SETS["pools-by-hosts"]))
    text = objects["ConfigMap", "coxswain"]["data"]["coxswain.yaml"]
    assert yaml.safe_load(text)["discovery"]["kubernetes"] == [
        {"service": "batch", "ports": ["http"], "in_pool": "batch"},
        {"selector": "app=chat", "ports": [8080], "in_pool": "chat"},
    ]
    resources = {name for one in objects["Role", "coxswain"]["rules"] for name in one["resources"]}
    assert {"pods", "endpointslices"} <= resources


GATEWAY: dict[str, Any] = {"envoy": {"enabled": False}}
SERVERS = {"labels": {"app": "a"}}


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"pools": {"a": {**SERVERS, "port": 9010}}}, "port of a pool needs envoy.enabled false"),
        (
            {**GATEWAY, "pools": {"a": {**SERVERS, "port": 9010}, "b": {**SERVERS, "port": 9010}}},
            "two pools have the same port",
        ),
        ({"llama": {"enabled": True}, "pools": {"a": SERVERS}}, "with llama.enabled"),
    ],
)
async def test_what_pools_cannot_be_used_with_is_an_error(
    tmp_path: Path, values: dict[str, Any], problem: str
) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    run = helm("template", CHART, "-f", file, "--kube-version", KUBERNETES)
    assert run.returncode != 0 and problem in run.stderr


@pytest.mark.parametrize(
    "values",
    [
        {"mode": "many"},
        {"pools": {"a": {"port": 9010}}},
        {"pools": {"a": {**SERVERS, "port": 9003}}},
        {"pools": {"A.b": SERVERS}},
        {"replica": 3},
        {"servers": {"ports": [70_000]}},
        {"llama": {"slots": 0}},
        {"inferencePool": {"failureMode": "Open"}},
    ],
)
async def test_a_mistake_in_the_values_is_an_error(tmp_path: Path, values: dict[str, Any]) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    run = helm("template", CHART, "-f", file, "--kube-version", KUBERNETES)
    assert run.returncode != 0
    assert "values don't meet the specifications of the schema" in run.stderr


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({}, "needs envFromSecret"),
        ({"envFromSecret": "x", "envoy": {"enabled": False}}, "needs envoy.enabled"),
    ],
)
async def test_batches_need_the_admin_port_and_envoy(
    tmp_path: Path, values: dict[str, Any], problem: str
) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump({"batches": {"enabled": True}, **values}))
    run = helm("template", CHART, "-f", file, "--kube-version", KUBERNETES)
    assert run.returncode != 0 and problem in run.stderr


async def test_a_release_of_another_name_has_objects_of_its_own(tmp_path: Path) -> None:
    values = {"mode": "cluster", "llama": {"enabled": True}}
    one, other = (set(objects_of(rendered(tmp_path, values, name))) for name in ("a", "b"))
    assert not one & other


async def test_the_plain_manifests_are_what_the_chart_renders(tmp_path: Path) -> None:
    """In the namespace `default`, with the command in its first lines."""
    text = (DEPLOY / "kubernetes/coxswain.yaml").read_text(encoding="utf-8")
    assert objects_of(text) == objects_of(rendered(tmp_path, {}, namespace="default"))
    kustomization = yaml.safe_load((DEPLOY / "kubernetes/kustomization.yaml").read_text("utf-8"))
    assert kustomization["resources"] == ["coxswain.yaml"]


async def test_helm_installs_upgrades_and_uninstalls(kubernetes: Kubernetes) -> None:
    """Into a namespace that it makes; pods of a cluster know each other after an upgrade too."""
    where = ("coxswain", "-n", "helmed", "--kubeconfig", kubernetes.kubeconfig())
    values = ("--set", "mode=cluster,llama.enabled=true,monitoring.prometheusRule=true")
    secret = "/api/v1/namespaces/helmed/secrets/coxswain-members"  # a path
    pods = "/apis/apps/v1/namespaces/helmed/statefulsets"
    tokens = []
    for command in (("install", "--create-namespace"), ("upgrade", "--set", "replicas=5")):
        run = await asyncio.to_thread(helm, *command, *where, CHART, *values)
        assert run.returncode == 0, run.stderr
        assert "statefulset/coxswain" in run.stdout, "the notes"
        tokens.append((await kubernetes.ask("GET", secret))["data"]["cluster-token"])
    assert tokens[0] == tokens[1]
    [one] = (await kubernetes.ask("GET", pods))["items"]
    assert one["spec"]["replicas"] == 5
    run = await asyncio.to_thread(helm, "uninstall", *where)
    assert run.returncode == 0, run.stderr
    assert (await kubernetes.ask("GET", pods))["items"] == []


async def test_the_commands_of_the_page_install_what_it_says(kubernetes: Kubernetes) -> None:
    """As they are printed; what follows them needs nodes. The last one is for a gateway."""
    blocks = [each.text for each in page("docs/kubernetes.md").blocks() if "$ helm in" in each.text]
    binary = program("helm")
    assert binary is not None
    environment = {
        **os.environ,
        "KUBECONFIG": str(kubernetes.kubeconfig()),
        "PATH": f"{binary.parent}:{os.environ['PATH']}",
    }
    found = []
    for block in blocks:
        rest = ("helm get manifest coxswain -n serving", "helm uninstall coxswain -n serving")
        outputs = []
        for script in (dedent(block).removeprefix("$ "), *rest):
            run = await asyncio.to_thread(
                subprocess.run,
                ("sh", "-ec", script),
                cwd=ROOT,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            assert run.returncode == 0, run.stderr
            outputs.append(run.stdout)
        kinds = {"Deployment", "InferencePool"}
        found.append(sorted(one for one in objects_of(outputs[1]) if one[0] in kinds))
    picker = ("Deployment", "coxswain")
    assert found == [
        [picker, ("Deployment", "coxswain-llama")],
        [picker],
        [picker, ("InferencePool", "coxswain")],
    ]
