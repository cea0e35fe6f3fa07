"""The machine's Docker engine, with its compose plugin. Without one the test is left out."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


class ImageTestError(Exception):
    """The test cannot go on; the text says why."""


class EngineMissingError(ImageTestError):
    """No engine is here, or it lacks something; the text says what it takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Docker:
    """The client of the engine, with this environment."""

    environment: Mapping[str, str]

    def run(self, *arguments: str | Path, cwd: Path | None = None, stdin: str = "") -> str:
        """The output of `docker` with these arguments; raises `ImageTestError` with its errors."""
        return self.command(["docker", *map(str, arguments)], cwd=cwd, stdin=stdin)

    def command(self, words: Sequence[str], *, cwd: Path | None = None, stdin: str = "") -> str:
        """The output of any command that talks to this engine; raises `ImageTestError`."""
        ended = subprocess.run(
            words, cwd=cwd, env=self.environment, input=stdin, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        if ended.returncode != 0:
            said = "\n".join((ended.stdout + ended.stderr).splitlines()[-40:])
            raise ImageTestError(f"{' '.join(words)} ended with {ended.returncode}:\n{said}")
        return ended.stdout.strip()

    def has_image(self, tag: str) -> bool:
        """Whether the engine has an image of this name."""
        return bool(self.run("image", "ls", "--quiet", tag))


def engine() -> Docker:
    """The engine that responds here. Raises `EngineMissingError`."""
    docker = Docker(environment=os.environ)
    for words, what in (
        (("version", "--format", "{{.Server.Version}}"), "no Docker engine responds"),
        (("compose", "version"), "docker has no compose plugin"),
    ):
        try:
            if shutil.which("docker") is None:
                raise ImageTestError("there is no docker")
            docker.run(*words)
        except ImageTestError:
            raise EngineMissingError(f"{what}; install Docker with its compose plugin") from None
    return docker
