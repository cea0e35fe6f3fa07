"""The command `make image-test`: what it does, what it prints, and how it ends."""

import argparse
import asyncio
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rigs.image.base_images import provide_envoy, provide_python, provide_stand_ins
from rigs.image.cluster import Cluster
from rigs.image.engine import Docker, EngineMissingError, ImageTestError, engine
from rigs.image.stack import ROOT, Stack
from tests.deploy.stack_files import compose, queries

FOLDER: Final = ROOT / "build/image"
IMAGE: Final = "coxswain-coxswain"
"""As compose names what it builds."""
Report = Callable[[str], None]
MAX_OWN_BYTES: Final = 250_000_000
"""What the image may add to its base."""


def main(arguments: list[str] | None = None) -> int:
    """0 when everything held, 1 when something did not, 2 when there is no engine."""
    parser = argparse.ArgumentParser(
        prog="python -m rigs.image",
        description="`make image-test`: builds the image, and runs the compose stack and its "
        "cluster under load in a real Docker engine; takes some minutes.",
    )
    parser.parse_args(arguments)
    began = time.monotonic()

    def report(line: str) -> None:
        print(f"image-test: {time.monotonic() - began:6.1f} s  {line}", flush=True)

    try:
        docker = engine()
        FOLDER.mkdir(parents=True, exist_ok=True)
        report(f"Docker engine {docker.run('version', '--format', '{{.Server.Version}}')}")
        asyncio.run(_test(_with_stand_ins(docker), report))
    except EngineMissingError as error:
        print(f"image-test: left out: {error}", file=sys.stderr)
        return 2
    except ImageTestError as error:
        print(f"image-test: BROKEN: {error}", file=sys.stderr)
        return 1
    report("everything held")
    return 0


async def _test(docker: Docker, report: Report) -> None:
    if docker.run("ps", "--quiet", "--filter", "label=com.docker.compose.project=coxswain"):
        raise EngineMissingError("a compose stack `coxswain` runs here already; stop it first")
    _build(docker, report)
    stack = Stack(docker=docker, report=report)
    try:
        await stack.up(4)
        await stack.scale_up(6)
        await stack.drain(4)
        await stack.restart_picker(4)
        await stack.watch(queries())
        await stack.end()
        await stack.remove()
        cluster = Cluster(stack)
        await cluster.up()
        await cluster.lose_leader()
        await cluster.end()
    except ImageTestError as error:
        log = FOLDER / "compose.log"
        log.write_text(await stack.logs(), encoding="utf-8")
        raise ImageTestError(f"{error}\nThe containers' logs: {log}") from None
    finally:
        await stack.remove()


def _build(docker: Docker, report: Report) -> None:
    base = base_tag()
    provide_python(docker, base)
    provide_envoy(docker, compose()["services"]["envoy"]["image"], base, FOLDER)
    report("the base images are there")
    docker.run("compose", "build", "coxswain", cwd=ROOT)
    whole, beneath = (
        int(docker.run("image", "inspect", "--format", "{{.Size}}", tag)) for tag in (IMAGE, base)
    )
    own = whole - beneath
    report(f"built {IMAGE}: {own / 1e6:.0f} MB beside its base of {beneath / 1e6:.0f} MB")
    if own > MAX_OWN_BYTES:
        raise ImageTestError(f"the image adds more than {MAX_OWN_BYTES / 1e6:.0f} MB to its base")
    provide_stand_ins(docker, IMAGE, base, FOLDER)
    report("stand-ins: the simulator for llama.cpp, Debian's packages for Prometheus and Valkey")


def base_tag() -> str:
    """The image that the Dockerfile begins with."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    found = re.search(r"^ARG PYTHON=(\S+)$", text, re.MULTILINE)
    assert found is not None
    return f"python:{found[1]}"


def _with_stand_ins(docker: Docker) -> Docker:
    files = ("docker-compose.yaml", str(Path(__file__).with_name("compose.yaml").relative_to(ROOT)))
    environment = {**docker.environment, "COMPOSE_FILE": ":".join(files)}
    return Docker(environment=environment)


if __name__ == "__main__":
    sys.exit(main())
