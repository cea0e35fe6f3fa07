"""Compiles the code that each request runs through to machine code, when a wheel is built.

    HATCH_BUILD_HOOK_ENABLE_CUSTOM=1 pip install .

It takes a C compiler and a minute. mypyc compiles the Python of this repo as it is; the sources
stay in the wheel beside it, and tracebacks name their lines. An editable install is never
compiled, so what a developer changes is what runs.
"""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

COMPILED = (
    "extproc/core/**/*.py",
    "extproc/processes/fronts/**/*.py",
    "extproc/header_names.py",
    "extproc/records/ring.py",
    "extproc/records/wait_samples.py",
    "extproc/security/**/*.py",
    "extproc/status/history.py",
    "extproc/status/occupancy.py",
    "extproc/status/requests_json.py",
    "extproc/stream/**/*.py",
    "extproc/telemetry/counters.py",
    "extproc/telemetry/endpoint_counts.py",
    "extproc/telemetry/metrics.py",
    "extproc/transport/**/*.py",
)
OPTIONS = (
    "--config-file=",  # `make check` is where types are held to all rules
    "--ignore-missing-imports",
    "--follow-imports=silent",
)


def compiled_modules(root: Path) -> Iterator[str]:
    """The modules to compile, as paths under `root`.

    What is written as coroutines is left out: gRPC and asyncio want Python's own.
    """
    for pattern in COMPILED:
        for path in sorted(root.glob(pattern)):
            if "async def" not in path.read_text(encoding="utf-8"):
                yield str(path.relative_to(root))


class CompileHook(BuildHookInterface[Any]):
    """Hatch asks it before and after it packs the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and put the libraries beside their sources."""
        if version == "editable":
            return
        self._place = TemporaryDirectory(prefix="coxswain-compile-")
        libraries = compile_to(Path(self._place.name), Path(self.root))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"].update(libraries)

    def finalize(self, version: str, *_: Any) -> None:
        """The wheel is written."""
        if version != "editable":
            self._place.cleanup()


def compile_to(place: Path, root: Path) -> dict[str, str]:
    """Compile below `place`; returns where each library is to lie in the wheel."""
    from mypyc.build import mypycify  # noqa: PLC0415  # only a compiled wheel needs it
    from setuptools import Distribution  # noqa: PLC0415  # only a compiled wheel needs it

    os.chdir(root)
    extensions = mypycify(
        [*OPTIONS, f"--cache-dir={place / 'cache'}", *compiled_modules(root)],
        target_dir=str(place / "c"),
        group_name="coxswain",
        debug_level="0",
        opt_level="1",  # with 3 gcc takes half as long again, for code that is no faster
        multi_file=True,
    )
    command = _side_by_side()(Distribution({"name": "coxswain", "ext_modules": extensions}))
    command.build_lib = str(place / "lib")
    command.build_temp = str(place / "objects")
    command.parallel = os.cpu_count()
    command.ensure_finalized()
    command.run()
    libraries = (place / "lib").rglob("*.so")
    return {str(path): str(path.relative_to(place / "lib")) for path in libraries}


def _side_by_side() -> type[Any]:
    """A `build_ext` that compiles the files of an extension side by side: setuptools does so for
    extensions only, and nearly all files are in one."""
    from setuptools.command.build_ext import build_ext  # noqa: PLC0415  # only a compiled wheel needs it

    class BuildExtensions(build_ext):  # type: ignore[misc]
        def build_extensions(self) -> None:
            compiler, ours = self.compiler, threading.local()
            compile_all = compiler.compile
            compile_one = compiler._compile  # noqa: SLF001 - what compilers are to replace

            def start(*arguments: Any) -> None:
                ours.started.append(pool.submit(compile_one, *arguments))

            def compile_and_wait(*arguments: Any, **options: Any) -> Any:
                ours.started = []
                objects = compile_all(*arguments, **options)
                for each in ours.started:
                    each.result()
                return objects

            with ThreadPoolExecutor(os.cpu_count()) as pool:
                compiler.compile, compiler._compile = compile_and_wait, start  # noqa: SLF001
                super().build_extensions()

    return BuildExtensions
