"""Compiles the code that each request runs through to machine code, when a wheel is built.

    HATCH_BUILD_HOOK_ENABLE_CUSTOM=1 pip install .

It takes a C compiler and a minute. mypyc compiles the Python of this repo as it is; the sources
stay in the wheel beside it, and tracebacks name their lines. An editable install is never
compiled, so what a developer changes is what runs.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGES = (
    "extproc/core",
    "extproc/fronts",
    "extproc/security",
    "extproc/stream",
    "extproc/transport",
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
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
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
    from mypyc.build import mypycify
    from setuptools import Distribution

    os.chdir(root)
    extensions = mypycify(
        [*OPTIONS, f"--cache-dir={place / 'cache'}", *compiled_modules(root)],
        target_dir=str(place / "c"),
        group_name="coxswain",
        debug_level="0",
        multi_file=True,
    )
    command = Distribution({"name": "coxswain", "ext_modules": extensions}).get_command_obj(
        "build_ext"
    )
    command.build_lib = str(place / "lib")
    command.build_temp = str(place / "objects")
    command.parallel = os.cpu_count()
    command.ensure_finalized()
    command.run()
    libraries = (place / "lib").rglob("*.so")
    return {str(path): str(path.relative_to(place / "lib")) for path in libraries}
