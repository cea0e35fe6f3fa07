"""A Docker engine with the compose plugin: the machine's own, or one from Debian's packages.

The second kind is not installed: its packages are unpacked into a folder, it keeps its data and its
socket there, and ends with the rig. What it changes of the machine's network is restored then.
"""

import os
import shutil
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PACKAGES: Final = ("docker.io", "iptables", "debootstrap")
PLUGINS: Final = ("docker-compose", "docker-buildx")
PLUGINS_SUITE: Final = "trixie"
"""The first Debian with the plugins."""
ARCHIVE: Final = "http://deb.debian.org/debian"
KEYRING: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
FORWARDING: Final = Path("/proc/sys/net/ipv4/ip_forward")
BRIDGE: Final = Path("/sys/class/net/docker0")
START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 60.0


class ImageTestError(Exception):
    """The test cannot go on; the text says why."""


class EngineMissingError(ImageTestError):
    """No engine is here, and none can be had; the text says what it takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Docker:
    """The client of one engine. `root` is where Debian's packages are unpacked, if it is ours."""

    environment: Mapping[str, str]
    root: Path | None = None

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


@contextmanager
def engine(folder: Path) -> Iterator[Docker]:
    """A running engine; `folder` keeps what ours needs. Raises `EngineMissingError`."""
    folder.mkdir(parents=True, exist_ok=True)
    if _responds(os.environ):
        yield Docker(environment=_with_compose(os.environ, folder))
        return
    if missing := _what_is_missing():
        raise EngineMissingError(
            f"no Docker engine responds, and none can be started here: {missing}"
        )
    root = folder / "engine"
    if not (root / "usr/sbin/dockerd").exists():
        _unpack(folder / "packages", root)
    with ExitStack() as held:
        home = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="coxswain-docker-")))
        environment = _environment(root, home)
        held.enter_context(_network_restored(environment))
        held.enter_context(_started(environment, folder / "data", home))
        yield Docker(environment=_with_compose(environment, folder), root=root)


def _responds(environment: Mapping[str, str]) -> bool:
    if shutil.which("docker", path=environment["PATH"]) is None:
        return False
    probe = ["docker", "version", "--format", "{{.Server.Version}}"]
    ended = subprocess.run(probe, env=environment, capture_output=True, check=False)
    return ended.returncode == 0


def _what_is_missing() -> str:
    if os.geteuid() != 0:
        return "starting one takes root"
    wanted = ("apt-get", "dpkg-deb", "ip")
    if absent := [one for one in wanted if shutil.which(one) is None]:
        return f"it takes Debian's {', '.join(absent)}"
    return "" if KEYRING.exists() else f"it takes {KEYRING}, of debian-archive-keyring"


def _unpack(packages: Path, root: Path) -> None:
    """Download what the engine needs beyond what is installed, and unpack it into `root`."""
    packages.mkdir(parents=True, exist_ok=True)
    _apt("update")
    _apt(
        # Also what is installed, as the engine is started from the folder.
        *("install", "--reinstall", "--yes", "--download-only", "--no-install-recommends"),
        *("-o", f"Dir::Cache::archives={packages}", *PACKAGES),
    )
    for package in packages.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", package, root], check=True)
    for name in ("iptables", "ip6tables"):
        for command in (name, f"{name}-save", f"{name}-restore"):
            link = root / "usr/sbin" / command
            if not link.is_symlink():
                link.symlink_to("xtables-nft-multi")


def _apt(*arguments: str) -> None:
    """Run apt-get; raises `ImageTestError`."""
    words = ["apt-get", "-o", "APT::Sandbox::User=root", *arguments]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise ImageTestError(f"{' '.join(words)}: {ended.stderr.strip()}")


def _environment(root: Path, home: Path) -> dict[str, str]:
    libraries = root / "usr/lib" / str(sysconfig.get_config_var("MULTIARCH"))
    folders = [os.environ["PATH"], str(root / "usr/sbin"), str(root / "usr/bin")]
    return {
        **os.environ,
        "PATH": ":".join(folders),
        "LD_LIBRARY_PATH": str(libraries),
        "XTABLES_LIBDIR": str(libraries / "xtables"),
        "DOCKER_HOST": f"unix://{home}/docker.sock",
        "DEBOOTSTRAP_DIR": str(root / "usr/share/debootstrap"),
    }


@contextmanager
def _started(environment: Mapping[str, str], data: Path, home: Path) -> Iterator[None]:
    """dockerd, until the end."""
    command = [
        *("dockerd", "--data-root", str(data), "--exec-root", str(home / "exec")),
        *("--pidfile", str(home / "dockerd.pid"), "--host", environment["DOCKER_HOST"]),
    ]
    with (data.parent / "dockerd.log").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(
            command, env=environment, stdout=log, stderr=log, start_new_session=True
        )
        try:
            until = time.monotonic() + START_TIMEOUT_S
            while not _responds(environment):
                if process.poll() is not None or time.monotonic() > until:
                    raise EngineMissingError(f"dockerd does not start: see {log.name}")
                time.sleep(0.2)
            yield
        finally:
            process.terminate()
            process.wait(STOP_TIMEOUT_S)


@contextmanager
def _network_restored(environment: Mapping[str, str]) -> Iterator[None]:
    """At the end the packet filter, forwarding and the bridge are what they were."""
    had_bridge, forwarding = BRIDGE.exists(), FORWARDING.read_text(encoding="ascii")
    rules = [
        (
            command,
            subprocess.run([f"{command}-save"], env=environment, capture_output=True, check=True),
        )
        for command in ("iptables", "ip6tables")
    ]
    try:
        yield
    finally:
        for command, saved in rules:
            subprocess.run([f"{command}-restore"], env=environment, input=saved.stdout, check=True)
        FORWARDING.write_text(forwarding, encoding="ascii")
        if BRIDGE.exists() and not had_bridge:
            subprocess.run(["ip", "link", "delete", BRIDGE.name], check=True)


def _with_compose(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The same with the compose plugin: the machine's, or Debian's. Raises `EngineMissingError`."""
    probe = ["docker", "compose", "version"]
    if subprocess.run(probe, env=environment, capture_output=True, check=False).returncode == 0:
        return dict(environment)
    if missing := _what_is_missing():
        raise EngineMissingError(f"docker has no compose plugin, and fetching it fails: {missing}")
    config = folder / "docker-config"
    plugins = config / "cli-plugins"
    if not plugins.exists():
        packages = folder / "plugins"
        (packages / "lists/partial").mkdir(parents=True, exist_ok=True)
        sources = packages / "sources.list"
        sources.write_text(f"deb [signed-by={KEYRING}] {ARCHIVE} {PLUGINS_SUITE} main\n")
        apart = [
            *("-o", f"Dir::Etc::SourceList={sources}", "-o", "Dir::Etc::SourceParts=/dev/null"),
            *("-o", f"Dir::State::Lists={packages}/lists", "-o", f"Dir::Cache={packages}/cache"),
            *("-o", f"Dir::Cache::archives={packages}"),
        ]
        _apt(*apart, "update")
        _apt(
            *apart, "install", "--yes", "--download-only", "--no-install-recommends", "--reinstall",
            "-o", "Dir::State::status=/dev/null", *PLUGINS,
        )  # fmt: skip
        for plugin in PLUGINS:
            (package,) = packages.glob(f"{plugin}_*.deb")
            subprocess.run(["dpkg-deb", "-x", package, packages / "root"], check=True)
        shutil.copytree(packages / "root/usr/libexec/docker/cli-plugins", plugins)
    return {**environment, "DOCKER_CONFIG": str(config)}
