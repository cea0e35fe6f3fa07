"""`python -m extproc.demo.llama_build`: build `llama-server` once, into the user's cache.

The llama.cpp source comes from the source distribution of llama-cpp-python, so that one
package index (the one pip is set up for) is all it needs. Rules:
- One build at a time: a lock file beside the cache; who comes second waits and finds it done.
- The cache is filled by one rename of a server that has already answered `--version`.
- Sources and objects are removed, however the build ends. pip, cmake and ninja say themselves what
  went wrong.
"""

import argparse
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from extproc.demo.llama_server import (
    LLAMA_CPP_PYTHON,
    LLAMA_SERVER_VARIABLE,
    LlamaServerError,
    cache_folder,
    cached_llama_server,
    find_llama_server,
)
from extproc.demo.own_module import own_module

SDIST_SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
CMAKE_WHEEL = "cmake==3.31.10"
NINJA_WHEEL = "ninja==1.13.0"
LLAMA_CPP_FOLDER = f"llama_cpp_python-{LLAMA_CPP_PYTHON}/vendor/llama.cpp/"

CMAKE_FLAGS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DGGML_NATIVE=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    "-DLLAMA_CURL=OFF",
    "-DLLAMA_OPENSSL=OFF",
    "-DBUILD_SHARED_LIBS=OFF",
    f"-DCMAKE_PROJECT_INCLUDE={Path(__file__).with_suffix('.cmake')}",
)

CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")
MEMORY_PER_JOB_BYTES = 1_500 * 1024 * 1024
"""What the largest files of the server take to compile; fewer jobs beat a killed compiler."""


def missing_compiler() -> str | None:
    """Name the kind of compiler that this machine lacks ("C++" or "C"), None when it has both."""
    for language, variable, names in (
        ("C++", "CXX", ("c++", "g++", "clang++")),
        ("C", "CC", ("cc", "gcc", "clang")),
    ):
        wanted = os.environ.get(variable, "").split()
        if not any(shutil.which(name) for name in (wanted[:1] or names)):
            return language
    return None


def build_llama_server(out: IO[str]) -> Path:
    """Build the pinned `llama-server` into the cache and return its path; blocks for minutes.

    Returns at once when the cache has it. The names of the steps go to `out`, the output of their
    commands to this process's own. Raises `LlamaServerError` with a remedy.
    """
    target = cached_llama_server()
    root = cache_folder()
    root.mkdir(parents=True, exist_ok=True)
    with _locked(root / f"{LLAMA_CPP_PYTHON}.lock", out):
        if target.is_file():
            return target
        work = root / f"{LLAMA_CPP_PYTHON}.building"
        shutil.rmtree(work, ignore_errors=True)  # left by a build that was killed
        try:
            staged = work / "staged"
            (staged / "bin").mkdir(parents=True)
            shutil.move(_build(work, out), staged / "bin" / "llama-server")
            shutil.rmtree(target.parent.parent, ignore_errors=True)
            staged.rename(target.parent.parent)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return target


def _build(work: Path, out: IO[str]) -> Path:
    """Download, unpack, configure, compile and try; returns the fresh binary below `work`."""
    source = _unpack(_download(work, out), work)
    environment = dict(os.environ)
    cmake, ninja = _build_tools(work, out, environment)
    objects = work / "objects"
    configure = [cmake, "-S", str(source), "-B", str(objects), "--log-level=WARNING"]
    configure += ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}", *CMAKE_FLAGS]
    remedy = "a C++17 compiler is needed, e.g. g++ 9 or newer"
    _run("configuring llama.cpp", configure, remedy, out, environment)
    compile_ = [ninja, "-C", str(objects), "-j", str(parallel_jobs()), "llama-server"]
    remedy = (
        "free memory and disk space, then run it again; or set the path of your llama-server in "
        f"{LLAMA_SERVER_VARIABLE}"
    )
    _run("building llama-server (several minutes, once)", compile_, remedy, out, environment)
    binary = objects / "bin" / "llama-server"
    remedy = "the built llama-server does not run here; please report this"
    _run("trying llama-server", [str(binary), "--version"], remedy, out)
    return binary


def _run(
    title: str,
    command: Sequence[str],
    remedy: str,
    out: IO[str],
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run one step at a low priority. It dies when the call unwinds."""
    print(f"{title} ...", file=out, flush=True)
    try:
        with subprocess.Popen(
            ["nice", "-n", "5", *command], stdin=subprocess.DEVNULL, env=environment
        ) as process:
            try:
                status = process.wait()
            finally:
                process.terminate()
    except OSError as error:
        raise LlamaServerError(f"{title}: {error}; {remedy}") from error
    if status != 0:
        raise LlamaServerError(f"{title} failed (exit status {status}); {remedy}")


def _download(work: Path, out: IO[str]) -> Path:
    """Fetch the source distribution by pip, which also checks its hash and knows the index."""
    requirements = work / "requirements.txt"
    requirements.write_text(
        f"llama-cpp-python=={LLAMA_CPP_PYTHON} --hash=sha256:{SDIST_SHA256}\n", encoding="utf-8"
    )
    options = ["--no-deps", "--no-binary", "llama-cpp-python", "--no-cache-dir", "--require-hashes"]
    _run(
        "downloading llama.cpp (75 MB)",
        [*_pip("download"), *options, "--requirement", str(requirements), "--dest", str(work)],
        "check the network and pip's index (`pip config list`), then run it again",
        out,
    )
    return work / f"llama_cpp_python-{LLAMA_CPP_PYTHON}.tar.gz"


def _unpack(archive: Path, work: Path) -> Path:
    """Unpack only llama.cpp itself, then drop the archive; returns the source folder."""
    skipped = tuple(LLAMA_CPP_FOLDER + folder for folder in ("models/", "docs/"))
    with tarfile.open(archive) as files:
        wanted = [
            member
            for member in files
            if member.name.startswith(LLAMA_CPP_FOLDER) and not member.name.startswith(skipped)
        ]
        # Python 3.11.2, which Debian 12 has, knows no filters yet; the archive's hash is pinned.
        files.extraction_filter = getattr(tarfile, "data_filter", lambda member, _path: member)
        files.extractall(work, members=wanted)  # noqa: S202  # the filter is set above
    archive.unlink()
    return work / LLAMA_CPP_FOLDER


def _build_tools(work: Path, out: IO[str], environment: dict[str, str]) -> tuple[str, str]:
    """cmake and ninja; where PATH lacks one, both come from their wheels, for this build only."""
    cmake, ninja = shutil.which("cmake"), shutil.which("ninja")
    if cmake is not None and ninja is not None:
        return cmake, ninja
    tools = work / "tools"
    _run(
        "installing cmake and ninja for this build",
        [*_pip("install"), "--only-binary", ":all:", "--no-deps", "--target", str(tools)]
        + [CMAKE_WHEEL, NINJA_WHEEL],
        "install cmake and ninja yourself (e.g. apt-get install cmake ninja-build)",
        out,
    )
    # The wheels' commands are Python scripts that import what lies beside them.
    environment["PYTHONPATH"] = str(tools)
    return str(tools / "bin" / "cmake"), str(tools / "bin" / "ninja")


def _pip(command: str) -> list[str]:
    return [*own_module("pip"), "--disable-pip-version-check", "--quiet", command]


def parallel_jobs() -> int:
    """The number of parallel compilers: one per core, fewer if memory is short, at least one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(cores or 1, _memory_bytes() // MEMORY_PER_JOB_BYTES))


def _memory_bytes() -> int:
    """The machine's memory, or the container's limit where that is lower."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = CONTAINER_LIMIT.read_text(encoding="ascii").strip()
    except OSError:
        return machine
    return min(machine, int(limit)) if limit.isdecimal() else machine


@contextmanager
def _locked(path: Path, out: IO[str]) -> Iterator[None]:
    """Hold the lock file at `path`; the kernel frees it when its holder dies, however it dies."""
    with path.open("a", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("another build of llama-server is running; waiting for it", file=out, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main(arguments: list[str] | None = None) -> int:
    """The command: 0 when a llama-server is there or rightly left out, 1 when a build failed."""
    parser = argparse.ArgumentParser(
        prog="python -m extproc.demo.llama_build",
        description="Build llama-server once into the user's cache, unless one is found already.",
    )
    parser.add_argument(
        "--require", action="store_true", help="fail where no C++ compiler is installed"
    )
    options = parser.parse_args(arguments)
    try:
        found = find_llama_server()
        if found is not None:
            print(f"llama-server: {found}")
            return 0
        lacking = missing_compiler()
        if lacking is not None:
            print(
                f"llama-server was not built: this machine has no {lacking} compiler. Without "
                "it, tests with real llama-servers are skipped and `coxswain up` uses its "
                f"simulator. To build it, install g++; to use yours, set {LLAMA_SERVER_VARIABLE}."
            )
            return 1 if options.require else 0
        began = time.monotonic()
        built = build_llama_server(sys.stdout)
    except LlamaServerError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; the cache is unchanged", file=sys.stderr)
        return 130
    print(f"llama-server: {built} (after {time.monotonic() - began:.0f} s)")
    return 0


if __name__ == "__main__":
    # Unwind on SIGTERM, so that compilers and sources go too.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    sys.exit(main())
