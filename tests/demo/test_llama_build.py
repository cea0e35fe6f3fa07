from __future__ import annotations

import hashlib
import importlib.util
import io
import os
import shutil
import tarfile
import threading
from pathlib import Path

import pytest

from extproc.demo import llama_build
from extproc.demo.llama_build import build_llama_server, main, parallel_jobs
from extproc.demo.llama_server import (
    LLAMA_CPP_PYTHON,
    LlamaServerError,
    cache_folder,
    cached_llama_server,
)

SERVER = "#!/bin/sh\necho version: pretended\n"


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of its own: an empty cache and only the commands that a test puts on PATH."""
    for variable in ("COXSWAIN_LLAMA_SERVER", "CC", "CXX"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    commands = tmp_path / "commands"
    commands.mkdir()
    for name in ("nice", "mkdir", "cp"):
        (commands / name).symlink_to(str(shutil.which(name)))
    monkeypatch.setenv("PATH", str(commands))
    return commands


def command(machine: Path, name: str, script: str = "") -> None:
    (machine / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    (machine / name).chmod(0o755)


def install_tools(machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins for pip, cmake and ninja that do the same to the file system, only faster."""
    archive = tmp_path / f"llama_cpp_python-{LLAMA_CPP_PYTHON}.tar.gz"
    with tarfile.open(archive, "w:gz") as files:
        for name, text in (
            ("vendor/llama.cpp/server", SERVER),
            ("vendor/llama.cpp/models/large", "skipped"),
            ("llama_cpp/python.py", "skipped"),
        ):
            entry = tarfile.TarInfo(f"llama_cpp_python-{LLAMA_CPP_PYTHON}/{name}")
            entry.size, entry.mode = len(text), 0o755
            files.addfile(entry, io.BytesIO(text.encode()))
    command(machine, "pip", f'eval "to=\\${{$#}}"; mkdir -p "$to" && cp {archive} "$to"')
    command(machine, "cmake", 'mkdir -p "$4/bin" && cp "$2/server" "$4/bin/llama-server"')
    command(machine, "ninja", "echo '[1/1] link'")
    monkeypatch.setattr(llama_build, "_pip", lambda verb: [str(machine / "pip"), verb])


def test_no_compiler_is_said_plainly_and_only_an_error_when_required(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([]) == 0
    assert "no C++ compiler" in capsys.readouterr().out
    assert main(["--require"]) == 1
    command(machine, "c++")
    assert main([]) == 0
    assert "no C compiler" in capsys.readouterr().out
    assert not cache_folder().exists()


def test_a_server_that_is_there_is_not_built(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command(machine, "llama-server")
    assert main(["--require"]) == 0
    assert capsys.readouterr().out == f"llama-server: {machine / 'llama-server'}\n"


def test_a_build_fills_the_cache_and_leaves_nothing_else(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_tools(machine, tmp_path, monkeypatch)
    for name in ("cc", "c++"):
        command(machine, name)
    assert main([]) == 0
    built = cached_llama_server()
    assert built.read_text(encoding="utf-8") == SERVER
    assert {path.name for path in cache_folder().iterdir()} == {
        LLAMA_CPP_PYTHON,
        f"{LLAMA_CPP_PYTHON}.lock",
    }


def test_cmake_is_given_the_rules_of_this_build() -> None:
    """They come with the module: cmake says nothing of a file that is not there."""
    option = "-DCMAKE_PROJECT_INCLUDE="
    [rules] = [flag for flag in llama_build.CMAKE_FLAGS if flag.startswith(option)]
    assert "UNITY_BUILD" in Path(rules.removeprefix(option)).read_text(encoding="ascii")


def test_a_build_that_fails_shows_why_and_leaves_no_half_server(
    machine: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    install_tools(machine, tmp_path, monkeypatch)
    command(machine, "ninja", "echo 'fatal error: out of rope'; exit 1")
    with pytest.raises(LlamaServerError, match=r"failed \(exit status 1\); free memory"):
        build_llama_server(io.StringIO())
    assert "out of rope" in capfd.readouterr().out
    assert not cached_llama_server().exists()
    assert not list(cache_folder().glob("*.building"))


def test_a_server_that_does_not_run_never_gets_into_the_cache(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_tools(machine, tmp_path, monkeypatch)
    command(machine, "cmake", 'mkdir -p "$4/bin"; echo broken > "$4/bin/llama-server"')
    with pytest.raises(LlamaServerError, match="trying llama-server"):
        build_llama_server(io.StringIO())
    assert not cached_llama_server().exists()


def test_two_builds_at_once_build_once(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_tools(machine, tmp_path, monkeypatch)
    gate, builds = tmp_path / "gate", tmp_path / "builds"
    os.mkfifo(gate)
    command(machine, "ninja", f"echo built >> {builds}; read line < {gate}")
    outputs = [io.StringIO(), io.StringIO()]
    results: list[Path] = []
    threads = [
        threading.Thread(
            target=lambda out=out: results.append(build_llama_server(out)), daemon=True
        )
        for out in outputs
    ]
    for thread in threads:
        thread.start()
    gate.write_text("go\n", encoding="utf-8")  # blocks until a build reads it
    for thread in threads:
        thread.join(timeout=20)
    assert results == [cached_llama_server()] * 2
    assert builds.read_text(encoding="utf-8") == "built\n"


def test_the_hash_of_the_source_is_pinned_where_pip_checks_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The real pip rejects an archive of the right name with other contents."""
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    other = b"not llama.cpp"
    (shelf / f"llama_cpp_python-{LLAMA_CPP_PYTHON}.tar.gz").write_bytes(other)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    if importlib.util.find_spec("pip") is None:
        pytest.skip("this environment has no pip")
    with pytest.raises(LlamaServerError, match=r"downloading llama\.cpp"):
        build_llama_server(io.StringIO())
    assert hashlib.sha256(other).hexdigest() in capfd.readouterr().err


@pytest.mark.parametrize(("limit", "jobs"), [("3500000000", 2), ("max", 64), ("nonsense", 64)])
def test_a_containers_memory_limits_the_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, jobs: int
) -> None:
    (tmp_path / "memory.max").write_text(f"{limit}\n", encoding="ascii")
    monkeypatch.setattr(llama_build, "CONTAINER_LIMIT", tmp_path / "memory.max")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(64))
    monkeypatch.setattr(os, "sysconf", lambda name: 4096 if name == "SC_PAGE_SIZE" else 2**25)
    assert parallel_jobs() == jobs


def test_at_least_one_job_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parallel_jobs() >= 1
    monkeypatch.setattr(llama_build, "MEMORY_PER_JOB_BYTES", 10**18)
    assert parallel_jobs() == 1
