"""Claims about tools/bootstrap.py, without creating an environment."""

from __future__ import annotations

import importlib.util
import io
from pathlib import Path

import pytest

from tools import bootstrap


@pytest.mark.parametrize("missing", ["venv", "ensurepip"])
def test_a_python_without_venv_says_what_to_install(
    missing: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Debian and Ubuntu ship these modules in a package of their own."""
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(bootstrap, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == missing else find_spec(name)
    )
    with pytest.raises(bootstrap.BootstrapError, match="apt-get install python3-venv"):
        bootstrap.make_venv()
    assert not bootstrap.VENV.exists()


def test_a_finished_environment_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With nothing changed a second run installs nothing; a cut-short run starts again."""
    runs: list[object] = []
    monkeypatch.setattr(bootstrap, "STAMP", tmp_path / "stamp.json")
    monkeypatch.setattr(bootstrap, "install", lambda *states: runs.append(states))
    assert bootstrap.main() == 0
    assert len(runs) == 1
    (tmp_path / "stamp.json").write_text("{cut", encoding="utf-8")
    assert bootstrap.main() == 0
    assert len(runs) == 2
    bootstrap.STAMP.write_text(str(bootstrap.wanted_state()).replace("'", '"'), encoding="utf-8")
    assert bootstrap.main() == 0
    assert len(runs) == 2


def test_too_old_a_python_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a machine with only an old Python the way out is named, without a traceback."""
    monkeypatch.setattr(bootstrap, "OLDEST", (3, 99))
    monkeypatch.setattr(bootstrap, "NEWEST_MINOR", 98)
    assert bootstrap.main() == 1
    told = capsys.readouterr().err
    assert "Python 3.99 or newer is needed" in told
    assert "apt-get install" in told


SAID = [
    "Looking in links: /somewhere\n",
    "Ignoring colorama: markers 'sys_platform == \"win32\"' don't match your environment\n",
    "Collecting grpcio==1.85.1 (from -r requirements.lock (line 860))\n",
    "  Downloading grpcio-1.85.1-cp311.whl (7.4 MB)\n",
    "Installing collected packages: grpcio\n",
    "Successfully installed grpcio-1.85.1\n",
]
LOCKED = """# made by a tool
colorama==0.4.6 ; sys_platform == 'win32' \\
    --hash=sha256:00
grpcio==1.85.1 \\
    --hash=sha256:01
"""


def test_what_pip_says_is_one_line_that_changes() -> None:
    """Every package is counted, also one that is not for this machine."""
    out = io.StringIO()
    assert bootstrap.tell_progress(SAID, LOCKED, out, is_terminal=True) == SAID
    assert out.getvalue().split("\r\x1b[K") == [
        "",
        "bootstrap: fetching 1 of 2: colorama",
        "bootstrap: fetching 2 of 2: grpcio==1.85.1",
        "bootstrap: unpacking (about a minute)\n",
    ]


def test_a_log_gets_no_line_for_each_package() -> None:
    out = io.StringIO()
    last = bootstrap.tell_progress(SAID * 100, LOCKED, out, is_terminal=False)
    assert set(out.getvalue().splitlines()) == {"bootstrap: unpacking (about a minute)"}
    assert last == (SAID * 100)[-bootstrap.SHOWN_LINES :]


def test_the_last_words_of_a_pip_that_failed_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it prints is kept back while all goes well, and nothing of the end is lost."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho Collecting a==1\necho no space left\nexit 1\n")
    python.chmod(0o755)
    with pytest.raises(bootstrap.BootstrapError, match=r"requirements\.lock` failed"):
        bootstrap.install_packages(python)
    assert capsys.readouterr().err == "Collecting a==1\nno space left\n"
