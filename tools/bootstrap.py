"""Creates `.venv` from requirements.lock. Does nothing when nothing has changed since the last run.

Needs only a Python with its standard library, `venv` and `ensurepip` included. pip reads its own
settings as usual (PIP_INDEX_URL, PIP_FIND_LINKS, pip.conf).

This file must start on any Python 3, if only to say that the version is too old.
"""

import collections
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
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

SHOWN_LINES = 20


class BootstrapError(Exception):
    """The environment cannot be created; the text says what to do."""


def say(text: str) -> None:
    """Print one line of progress."""
    print("bootstrap: " + text, flush=True)


# --- which Python ---


def use_new_enough_python() -> None:
    """Continue with this Python, or restart with a newer one of this machine.

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


# --- what exists already ---


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def wanted_state() -> "dict[str, str]":
    """What the environment is created from: equal states mean equal environments."""
    return {
        "python": sys.version.split()[0],
        "base": getattr(sys, "base_prefix", sys.prefix),
        "place": str(VENV),
        "bootstrap": digest(Path(__file__)),
        "lock": digest(LOCK),
        "project": digest(PROJECT),
    }


def present_state() -> "dict[str, str]":
    """The state of the last complete run, empty if there was none."""
    try:
        state = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


# --- creating it ---


def pip_environment() -> "dict[str, str]":
    """The user's variables, except those that would let pip install outside of `.venv`."""
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
    """Install the packages of the lock file, with one line of progress instead of pip's hundreds.

    Raises BootstrapError when pip fails, after printing pip's last lines.
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
    """Print progress from pip's output; returns its last lines, for errors.

    On a terminal one line changes with each package; elsewhere only the large step is printed.
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
            out.write("bootstrap: unpacking (about a minute)\n")
            out.flush()
    return list(last)


def make_venv() -> Path:
    """Create an empty environment with pip; returns its Python. Raises BootstrapError."""
    if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        raise BootstrapError(
            "this Python has no venv or no ensurepip module. Debian and Ubuntu: "
            "sudo apt-get install python3-venv"
        )
    if VENV.exists():
        shutil.rmtree(str(VENV))
    # Inside an environment, start from the Python that the environment was created with.
    base = Path(getattr(sys, "_base_executable", None) or sys.executable)
    say("creating .venv with Python %s" % sys.version.split()[0])
    run(base, "-m", "venv", str(VENV))
    return VENV / "bin" / "python"


def install(wanted: "dict[str, str]", present: "dict[str, str]") -> None:
    """Change `.venv` from the present to the wanted state."""
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
    """Create the environment if needed; returns the exit code."""
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
        print("bootstrap: stopped; run again to continue", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
