"""Makes `.venv` exactly as requirements.lock says; a second run with nothing changed does nothing.

Needs only a Python and its standard library. Where that Python comes without
pip (Debian and Ubuntu split it off), a pinned pip is fetched and held against its hash.
The pip settings of the machine (PIP_INDEX_URL, PIP_FIND_LINKS, PIP_CERT, pip.conf) are honoured.

This file must start on any Python 3, if only to say that it is too old.
"""

import collections
import configparser
import hashlib
import html.parser
import importlib.util
import json
import os
import shutil
import ssl
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import IO

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
LOCK = ROOT / "requirements.lock"
PROJECT = ROOT / "pyproject.toml"
STAMP = VENV / "coxswain.json"

OLDEST = (3, 11)
NEWEST_MINOR = 14

PIP_WHEEL = "pip-26.3-py3-none-any.whl"
PIP_SHA256 = "f3b60b20ffaadd4415ed7957212a38ac63fa4c5fa375bd0f4a797777940fad13"
DEFAULT_INDEX = "https://pypi.org/simple"
FETCH_TIMEOUT_S = 60
MAX_FETCH_BYTES = 20 * 1024 * 1024
SHOWN_LINES = 20


class BootstrapError(Exception):
    """The environment cannot be made; the text says what to do."""


def say(text: str) -> None:
    """Tell the user what happens now."""
    print("bootstrap: " + text, flush=True)


# --- which Python ---


def use_new_enough_python() -> None:
    """Go on with this Python, or start again under a newer one of this machine.

    Raises BootstrapError where there is none.
    """
    if sys.version_info[:2] >= OLDEST:
        return
    for minor in range(NEWEST_MINOR, OLDEST[1] - 1, -1):
        found = shutil.which("python3.%d" % minor)
        if found:
            say(
                "%s is Python %d.%d; going on with %s"
                % (sys.executable, *sys.version_info[:2], found)
            )
            os.execv(found, [found, *sys.argv])
    raise BootstrapError(
        "Python %d.%d or newer is needed, and %s is %d.%d. Install one (Debian and Ubuntu: "
        "sudo apt-get install python3.12 python3.12-venv) and run again, or name it: "
        "make PYTHON=/path/to/python3.12" % (*OLDEST, sys.executable, *sys.version_info[:2])
    )


# --- what is there already ---


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def wanted_state() -> "dict[str, str]":
    """What the environment is made from; two equal states are the same environment."""
    return {
        "python": sys.version.split()[0],
        "base": getattr(sys, "base_prefix", sys.prefix),
        "place": str(VENV),
        "bootstrap": digest(Path(__file__)),
        "lock": digest(LOCK),
        "project": digest(PROJECT),
    }


def present_state() -> "dict[str, str]":
    """What the last finished run made; empty when it was cut short or never ran."""
    try:
        state = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


# --- pip's own settings ---


def pip_setting(name: str) -> str:
    """A pip setting (`index-url`, `cert`, ...) from PIP_* or pip.conf, or an empty text."""
    from_environment = os.environ.get("PIP_" + name.upper().replace("-", "_"), "")
    if from_environment:
        return from_environment
    home = Path("~").expanduser()
    places = [
        os.environ.get("PIP_CONFIG_FILE", ""),
        str(Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config") / "pip" / "pip.conf"),
        str(home / ".pip" / "pip.conf"),
        "/etc/xdg/pip/pip.conf",
        "/etc/pip.conf",
    ]
    for place in filter(None, places):
        parser = configparser.RawConfigParser()
        try:
            parser.read(place, encoding="utf-8")
        except (OSError, ValueError, configparser.Error):
            continue
        for section in ("install", "global"):
            if parser.has_option(section, name):
                return parser.get(section, name)
    return ""


# --- a pip for a Python that has none ---


class LinkReader(html.parser.HTMLParser):
    """Collects the targets of a simple index page."""

    def __init__(self) -> None:
        super().__init__()
        self.links = []  # type: list[str]

    def handle_starttag(self, tag: str, attrs: "list[tuple[str, str | None]]") -> None:
        """Keep the target of every link."""
        if tag == "a":
            self.links.extend(value for name, value in attrs if name == "href" and value)


def fetch(url: str) -> bytes:
    """The bytes behind `url`, with pip's certificates, proxy and the user:password of the URL."""
    parts = urllib.parse.urlsplit(url)
    request = urllib.request.Request(
        urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])),
        headers={"Accept": "text/html, */*;q=0.1", "User-Agent": "coxswain-bootstrap"},
    )
    handlers = [
        urllib.request.HTTPSHandler(
            context=ssl.create_default_context(cafile=pip_setting("cert") or None)
        )
    ]  # type: list[urllib.request.BaseHandler]
    if parts.username:
        passwords = urllib.request.HTTPPasswordMgrWithPriorAuth()
        passwords.add_password(
            None,
            request.full_url,
            urllib.parse.unquote(parts.username),
            urllib.parse.unquote(parts.password or ""),
            is_authenticated=True,
        )
        handlers.append(urllib.request.HTTPBasicAuthHandler(passwords))
    proxy = pip_setting("proxy")
    if proxy:
        handlers.append(urllib.request.ProxyHandler({"http": proxy, "https": proxy}))
    opener = urllib.request.build_opener(*handlers)
    with opener.open(request, timeout=FETCH_TIMEOUT_S) as answer:
        body = answer.read(MAX_FETCH_BYTES + 1)  # type: bytes
    if len(body) > MAX_FETCH_BYTES:
        raise BootstrapError("an answer of the package index is far too large")
    return body


def wheel_from_disk() -> "bytes | None":
    """The pinned pip wheel from a folder that pip is told to look into, or None."""
    folders = [Path(text) for text in pip_setting("find-links").split()]
    for folder in [*folders, Path("/usr/share/python-wheels")]:
        candidate = folder / PIP_WHEEL
        if candidate.is_file() and digest(candidate) == PIP_SHA256:
            return candidate.read_bytes()
    return None


def wheel_from_index() -> bytes:
    """The pinned pip wheel from the package index. Raises BootstrapError where it is not."""
    index = (pip_setting("index-url") or DEFAULT_INDEX).rstrip("/")
    page = index + "/pip/"
    shown = urllib.parse.urlsplit(page).netloc.rpartition("@")[2]
    say("this Python has no pip; fetching %s from %s" % (PIP_WHEEL, shown))
    try:
        reader = LinkReader()
        reader.feed(fetch(page).decode("utf-8", "replace"))
        for link in reader.links:
            target = urllib.parse.urljoin(page, link)
            if urllib.parse.urlsplit(target).path.endswith("/" + PIP_WHEEL):
                return fetch(target.partition("#")[0])
    except (OSError, ValueError) as error:
        raise BootstrapError(
            "%s could not be read (%s). Check the network, or set PIP_INDEX_URL, or install pip: "
            "sudo apt-get install python3-venv" % (shown, error)
        ) from None
    raise BootstrapError("%s has no %s" % (shown, PIP_WHEEL))


def add_pip(python: Path) -> None:
    """Put the pinned pip into the environment of `python`, from disk or from the index."""
    wheel = wheel_from_disk() or wheel_from_index()
    found = hashlib.sha256(wheel).hexdigest()
    if found != PIP_SHA256:
        raise BootstrapError("%s has the hash %s, expected %s" % (PIP_WHEEL, found, PIP_SHA256))
    place = VENV / PIP_WHEEL
    place.write_bytes(wheel)
    run(python, str(place / "pip"), "install", "--no-index", "--no-deps", "--quiet", str(place))
    place.unlink()


# --- making it ---


def pip_environment() -> "dict[str, str]":
    """The variables for pip: those of the user, but what would lead it out of `.venv`."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PIP_TARGET", "PIP_PREFIX", "PIP_USER", "PYTHONHOME", "VIRTUAL_ENV")
    }
    environment["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    return environment


def run(python: Path, *arguments: str) -> None:
    """Run `python` with `arguments`. Raises BootstrapError when it fails."""
    finished = subprocess.run(
        [str(python), *arguments], env=pip_environment(), cwd=str(ROOT), check=False
    )
    if finished.returncode != 0:
        raise BootstrapError("`%s` failed" % " ".join(["python", *arguments]))


def install_packages(python: Path) -> None:
    """Install what the lock names, telling one line about it instead of pip's hundreds.

    Raises BootstrapError when pip fails, after the last of what it said.
    """
    arguments = ["-m", "pip", "install", "--require-hashes", "--no-input", "-r"]
    with subprocess.Popen(
        [str(python), *arguments, str(LOCK)],
        env=pip_environment(),
        cwd=str(ROOT),
        stdout=subprocess.PIPE,
        universal_newlines=True,
    ) as pip:
        assert pip.stdout is not None
        last = tell_progress(pip.stdout, LOCK.read_text(encoding="utf-8"), sys.stdout)
    if pip.returncode != 0:
        sys.stderr.writelines(last)
        raise BootstrapError("`python %s requirements.lock` failed" % " ".join(arguments))


def tell_progress(
    lines: "Iterable[str]", lock: str, out: "IO[str]", is_terminal: "bool | None" = None
) -> "list[str]":
    """Follow what pip says; the last lines of it, for when it fails.

    On a terminal one line changes with each package. Elsewhere only the large step is told.
    """
    total = sum(1 for line in lock.splitlines() if "==" in line and line[:1].isalnum())
    is_terminal = out.isatty() if is_terminal is None else is_terminal
    last = collections.deque(maxlen=SHOWN_LINES)  # type: collections.deque[str]
    fetched = 0
    for line in lines:
        last.append(line)
        if line.startswith(("Collecting ", "Ignoring ")):
            fetched += 1
            if is_terminal:
                package = line.split()[1].rstrip(":")
                out.write("\r\x1b[Kbootstrap: fetching %d of %d: %s" % (fetched, total, package))
                out.flush()
        elif line.startswith("Installing collected packages"):
            out.write("\r\x1b[K" if is_terminal else "")
            out.write("bootstrap: unpacking them (about a minute)\n")
            out.flush()
    return list(last)


def make_venv() -> Path:
    """An empty environment with a pip; returns its Python."""
    if importlib.util.find_spec("venv") is None:
        raise BootstrapError(
            "this Python has no venv module: sudo apt-get install python3-venv (Debian, Ubuntu)"
        )
    if VENV.exists():
        shutil.rmtree(str(VENV))
    # Under an environment's own Python, start from the one that it was made with.
    base = Path(getattr(sys, "_base_executable", None) or sys.executable)
    say("making .venv with Python %s" % sys.version.split()[0])
    python = VENV / "bin" / "python"
    if importlib.util.find_spec("ensurepip") is not None:
        try:
            run(base, "-m", "venv", str(VENV))
        except BootstrapError:
            shutil.rmtree(str(VENV), ignore_errors=True)
        else:
            return python
    run(base, "-m", "venv", "--without-pip", str(VENV))
    add_pip(python)
    return python


def install(wanted: "dict[str, str]", present: "dict[str, str]") -> None:
    """Bring `.venv` from the present to the wanted state."""
    python = VENV / "bin" / "python"
    only_project_changed = python.exists() and all(
        present.get(name) == wanted[name] for name in wanted if name != "project"
    )
    if not only_project_changed:
        python = make_venv()
        say("installing the packages of requirements.lock (about 420 MB on disk)")
        install_packages(python)
    say("installing coxswain itself, editable")
    project = ["--no-deps", "--no-build-isolation", "--quiet", "-e", str(ROOT)]
    run(python, "-m", "pip", "install", *project)
    STAMP.write_text(json.dumps(wanted), encoding="utf-8")
    say("ready: .venv")


def main() -> int:
    """Make the environment where it is not there yet; the exit code."""
    try:
        use_new_enough_python()
        wanted = wanted_state()
        present = present_state()
        if wanted != present:
            install(wanted, present)
    except BootstrapError as error:
        print("bootstrap: " + str(error), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bootstrap: stopped; run again to go on", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
