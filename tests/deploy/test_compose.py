"""The compose stack holds together, shown without Docker."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bench import held
from extproc.cli import main
from extproc.settings import load_settings
from rigs.image.cluster import up_command
from tests.deploy.stack_files import DEPLOY, ROOT, compose, yaml_of

SERVICES = compose()["services"]
CLUSTER = {"coxswain-a", "coxswain-b", "envoy-a", "envoy-b", "valkey"}
BATCHES = {"batches"}
OBSERVABILITY = {"otel-collector", "jaeger", "prometheus", "grafana"}


def mounts() -> list[tuple[str, str, bool]]:
    """Service, source and whether it is read-only, of everything from this repository."""
    found = []
    for name, service in SERVICES.items():
        for volume in service.get("volumes", []):
            source, _, rest = volume.partition(":")
            if source.startswith("."):
                found.append((name, source, rest.endswith(":ro")))
    return found


@pytest.mark.parametrize(("service", "source", "is_read_only"), mounts())
def test_what_is_mounted_exists(service: str, source: str, is_read_only: bool) -> None:
    """And no container can change it."""
    assert (ROOT / source).exists(), f"{service} mounts {source}"
    assert is_read_only


def test_every_image_is_pinned() -> None:
    """A tag that moves makes tomorrow's stack another one; llama.cpp's is named by its users."""
    for name, service in SERVICES.items():
        if "image" in service:
            name_and_tag, _, digest = service["image"].partition("@")
            assert not digest or re.fullmatch("sha256:[0-9a-f]{64}", digest)
            tag = name_and_tag.rpartition(":")[2]
            assert name == "llama" or re.search(r"\d+\.\d+\.\d+", tag), service["image"]


def test_envoy_is_the_version_that_was_measured() -> None:
    """The image is the release of the binary that our tests run."""
    binary = shutil.which("envoy")
    if binary is None:
        pytest.skip("no envoy binary")
    told = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True)
    version = re.search(r"/(\d+\.\d+\.\d+)/", told.stdout)
    assert version is not None
    assert SERVICES["envoy"]["image"] == f"envoyproxy/envoy:v{version[1]}"


def test_what_watches_is_behind_its_profile() -> None:
    """Without a profile only what serves is started, and once."""
    for profile, services in (
        ("observability", OBSERVABILITY),
        ("cluster", CLUSTER),
        ("batches", BATCHES),
    ):
        assert {
            name for name, one in SERVICES.items() if one.get("profiles") == [profile]
        } == services
    rest = SERVICES.keys() - OBSERVABILITY - CLUSTER - BATCHES
    assert not any("profiles" in SERVICES[name] for name in rest)


def test_what_a_profile_names_brings_the_rest_of_it() -> None:
    """The command of docs/cluster.md names the Envoys: what they wait for is the cluster and its
    servers, and neither the single picker nor its Envoy, which would compete for both."""
    brought = {word for word in up_command().split() if word in SERVICES}
    while (
        more := {needed for name in brought for needed in SERVICES[name].get("depends_on", {})}
        - brought
    ):
        brought |= more
    assert brought == {*CLUSTER, "llama"}


def test_the_two_stacks_cannot_run_together() -> None:
    """Each would count the other's requests as foreign. So the second finds its ports in use."""
    for single, member in (("envoy", "envoy-a"), ("coxswain", "coxswain-a")):
        assert SERVICES[member]["ports"] == SERVICES[single]["ports"]
    assert not set(SERVICES["envoy-b"]["ports"]) & set(SERVICES["envoy-a"]["ports"])
    assert not set(SERVICES["coxswain-b"]["ports"]) & set(SERVICES["coxswain-a"]["ports"])


def test_llama_can_be_scaled() -> None:
    """Nothing ties it to one container: no name, no published port."""
    assert not {"container_name", "ports", "hostname"} & SERVICES["llama"].keys()


def test_one_llama_downloads_at_a_time(tmp_path: Path) -> None:
    """Started together on an empty cache, the servers fetch the model once: each writes to the
    same file, and waits until the one before is ready."""
    server = tmp_path / "llama-server"
    server.write_text(
        f"""#!/bin/sh
if [ -e {tmp_path}/model ]; then echo found >> {tmp_path}/told; exec sleep 60; fi
echo begun >> {tmp_path}/told
sleep 0.3
echo fetched >> {tmp_path}/told
touch {tmp_path}/model
exec sleep 60
"""
    )
    curl = tmp_path / "curl"
    curl.write_text(f"#!/bin/sh\n[ -e {tmp_path}/model ]\n")
    for program in (server, curl):
        program.chmod(0o755)
    service = SERVICES["llama"]
    (script,) = service["command"]
    script = script.replace("/app/", f"{tmp_path}/").replace("/models/", f"{tmp_path}/")
    script = script.replace("sleep 1", "sleep 0.05")
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = [*service["entrypoint"], script]
    started = [subprocess.Popen(command, env=environment, start_new_session=True) for _ in range(4)]
    try:
        told: list[str] = []
        until = time.monotonic() + 30
        while len(told) < 5 and time.monotonic() < until:
            with suppress(FileNotFoundError):
                told = (tmp_path / "told").read_text().split()
            time.sleep(0.02)
        assert told == ["begun", "fetched", "found", "found", "found"]
    finally:
        for process in started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_only_envoy_is_published_beyond_loopback() -> None:
    """Everything else that is published is for this machine."""
    for name, service in SERVICES.items():
        for port in service.get("ports", []):
            assert name in ("envoy", "envoy-a", "envoy-b") or port.startswith("127.0.0.1:"), (
                name,
                port,
            )


def test_the_page_reports_where_everything_is() -> None:
    """Every published port has a row in docs/operations.md, and no other has one."""
    page = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    section = page.partition("\n## The compose stack\n")[2].partition("\n## ")[0]
    told = re.findall(r"^\| `http://(?:localhost|127\.0\.0\.1):(\d+)` \|", section, re.MULTILINE)
    ports = {port for service in SERVICES.values() for port in service.get("ports", [])}
    assert sorted(told) == sorted(port.rsplit(":", 2)[-2] for port in ports)
    variables = re.findall(r"\$\{(\w+):-", str(SERVICES["llama"]["environment"]))
    assert variables and all(f"`{variable}`" in section for variable in variables)


def test_names_are_services() -> None:
    """Whoever is called by name in a file of the stack is a service of it."""
    texts = [
        path.read_text(encoding="utf-8")
        for path in DEPLOY.rglob("*.y*ml")
        if "grafana" not in path.parts or "datasources" in path.parts
    ]
    called = set(re.findall(r"(?:http://|\")([a-z-]+):\d+", "\n".join(texts)))
    called |= {"llama", "coxswain", "otel-collector", "jaeger"}
    assert called <= SERVICES.keys()


def test_coxswains_settings_are_valid() -> None:
    """They load, and name the stack's own services."""
    settings = load_settings(DEPLOY / "coxswain.yaml", environ={})
    (name,) = settings.discovery.dns
    assert (name.name, name.port) == ("llama", 8080)
    assert settings.envoy.picker == "coxswain:9002"
    assert settings.envoy.tracing == "otel-collector:4317"
    assert settings.listen.grpc.endswith(":9002") and settings.listen.http.endswith(":9090")
    assert settings.listen.admin.startswith("127.0.0.1:")


def test_the_members_are_one_cluster() -> None:
    """Both load the same file; the second has its own name and address from its environment."""
    file = DEPLOY / "cluster.yaml"
    single = load_settings(DEPLOY / "coxswain.yaml", environ={})
    for name, other in (("coxswain-a", "coxswain-b"), ("coxswain-b", "coxswain-a")):
        given = SERVICES[name]["environment"]
        environ = {key: text for key, text in given.items() if "__" in key}
        settings = load_settings(file, environ=environ)
        assert settings.cluster.member == name
        assert settings.cluster.advertise == f"{name}:9004"
        assert settings.cluster.valkey == ("redis://valkey:6379",)
        assert settings.fronts and name in settings.listen.http_hosts
        pickers = {settings.envoy.picker, *settings.envoy.other_pickers}
        assert pickers == {f"{name}:9002", f"{other}:9002"}
        assert settings.discovery == single.discovery


ENVOYS_FILES = {"coxswain.yaml": "envoy/envoy.yaml", "cluster.yaml": "envoy/cluster.yaml"}


@pytest.mark.parametrize(("settings", "envoys"), ENVOYS_FILES.items())
def test_envoys_file_follows_from_the_settings(
    settings: str,
    envoys: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is what `coxswain config envoy` prints for them; `make docs` writes it again."""
    path = str(DEPLOY / settings)
    monkeypatch.setattr("sys.argv", ["coxswain", "config", "envoy", "--config", path])
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().out == (DEPLOY / envoys).read_text(encoding="utf-8")


@pytest.mark.parametrize("envoys", ENVOYS_FILES.values())
def test_envoy_takes_its_file(envoys: str) -> None:
    """A real Envoy finds nothing wrong with it."""
    binary = shutil.which("envoy")
    if binary is None:
        pytest.skip("no envoy binary")
    command = [binary, "--mode", "validate", "-c", str(DEPLOY / envoys)]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr


def test_the_collectors_pipelines_name_what_is_there() -> None:
    """Each receiver, processor and exporter of a pipeline is configured, and each is used."""
    collector: dict[str, Any] = yaml_of(DEPLOY / "otel/collector.yaml")
    for kind in ("receivers", "processors", "exporters"):
        used = {
            name
            for pipeline in collector["service"]["pipelines"].values()
            for name in pipeline[kind]
        }
        assert used == collector[kind].keys()
    assert set(collector["service"]["pipelines"]) == {"traces", "metrics"}


def test_prometheus_reads_the_rules_that_are_mounted() -> None:
    """The rule file is where its configuration looks for it."""
    files = yaml_of(DEPLOY / "prometheus/prometheus.yml")["rule_files"]
    targets = [volume.split(":")[1] for volume in SERVICES["prometheus"]["volumes"]]
    assert set(files) <= set(targets)


def test_grafana_finds_dashboard_and_sources() -> None:
    """The provider looks where the dashboards are mounted; the sources have the panels' uids."""
    provisioning = DEPLOY / "grafana/provisioning"
    (provider,) = yaml_of(provisioning / "dashboards/dashboards.yaml")["providers"]
    targets = [volume.split(":")[1] for volume in SERVICES["grafana"]["volumes"]]
    assert provider["options"]["path"] in targets
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home.startswith(provider["options"]["path"])
    sources = yaml_of(provisioning / "datasources/datasources.yaml")["datasources"]
    assert {source["uid"] for source in sources} == {"prometheus", "jaeger"}


def test_dockerfile_is_slim_checked_and_unprivileged() -> None:
    """Hashes are required, nobody is root, health is checked, and what is copied exists."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert text.count("--require-hashes") == 2 and "-slim" in text and "HEALTHCHECK" in text
    assert "# syntax=" not in text, "it would fetch a frontend from a registry for each build"
    final = text.rpartition("FROM ")[2]
    assert re.search(r"^USER \d+$", final, re.MULTILINE)
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE)
    for source in " ".join(copied).split():
        assert (ROOT / source).exists()
        assert f"!{source.rstrip('/')}" in ignored, f"{source} is kept out by .dockerignore"


def test_the_image_gives_memory_back_as_the_page_says() -> None:
    """Its environment is the one that docs/operations.md has for systemd."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").rpartition("FROM ")[2]
    assert "libjemalloc2" in text
    page = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    lines = re.findall(r"^Environment=(.+)$", page, re.MULTILINE)
    variables = " ".join(lines).split()
    assert [each.partition("=")[0] for each in variables] == [
        "LD_PRELOAD",
        "PYTHONMALLOC",
        "MALLOC_CONF",
    ]
    assert all(each in text for each in variables)
    assert variables == [f"{name}={value}" for name, value in held.JEMALLOC.items()]


def test_what_the_dockerfile_copies_is_all_of_coxswain(tmp_path: Path) -> None:
    """Its own build step, given only the files that it copies, makes a wheel of the command and
    of every file that the code reads."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    source = tmp_path / "src"
    for names in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
        for name in names.split():
            if (ROOT / name).is_dir():
                leftovers = shutil.ignore_patterns("__pycache__")
                shutil.copytree(ROOT / name, source / name, ignore=leftovers)
            else:
                source.mkdir(exist_ok=True)
                shutil.copy(ROOT / name, source)
    (step,) = re.findall(r"/bin/pip (wheel --no-index [^\\]+) \.", text)
    command = [sys.executable, "-m", "pip", *step.replace("/wheels", str(tmp_path)).split(), "."]
    told = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    (wheel,) = tmp_path.glob("coxswain_llm-*.whl")
    with zipfile.ZipFile(wheel) as opened:
        packed = set(opened.namelist())
        (entry,) = (name for name in packed if name.endswith("entry_points.txt"))
        assert "coxswain = extproc.cli:main" in opened.read(entry).decode()
    needed = [*(ROOT / "extproc").rglob("*"), *(ROOT / "scraper").rglob("*")]
    files = {str(path.relative_to(ROOT)) for path in needed if path.is_file()}
    assert {name for name in files if "__pycache__" not in name} <= packed


def test_docker_compose_takes_the_file() -> None:
    """Where the plugin is installed, it finds nothing wrong."""
    docker = shutil.which("docker")
    if docker is None:
        pytest.skip("no docker")
    probe = subprocess.run([docker, "compose", "version"], capture_output=True, check=False)
    if probe.returncode != 0:
        pytest.skip("docker has no compose plugin")
    profiles = ("--profile", "observability", "--profile", "cluster")
    command = [docker, "compose", *profiles, "config", "--quiet"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
