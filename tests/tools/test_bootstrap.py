"""Claims about tools/bootstrap.py, without making an environment."""

from __future__ import annotations

import base64
import hashlib
import http.server
import io
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import bootstrap

WHEEL = b"not really a wheel"
WHEEL_NAME = bootstrap.PIP_WHEEL


class Index(http.server.ThreadingHTTPServer):
    """A package index on loopback that has one wheel, and remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), IndexHandler)
        self.paths: list[str] = []
        self.credentials: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/simple"


class IndexHandler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Index)
        self.server.paths.append(self.path)
        self.server.credentials.append(self.headers.get("Authorization", ""))
        pages = {
            "/simple/pip/": (
                '<a href="../../files/pip-1.0.tar.gz">old</a>'
                f'<a href="../../files/{WHEEL_NAME}#sha256=00" data-x>wheel</a>'
            ).encode(),
            f"/files/{WHEEL_NAME}": WHEEL,
        }
        content = pages.get(self.path)
        self.send_response(404 if content is None else 200)
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        self.wfile.write(content or b"")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def index() -> Iterator[Index]:
    with Index() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def test_setting_of_the_environment_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """pip.conf is read where pip reads it, and PIP_* wins over it."""
    file = tmp_path / "config" / "pip" / "pip.conf"
    file.parent.mkdir(parents=True)
    file.write_text("[global]\nindex-url = http://a/simple\n", encoding="utf-8")
    assert bootstrap.pip_setting("index-url") == "http://a/simple"
    monkeypatch.setenv("PIP_INDEX_URL", "http://b/simple")
    assert bootstrap.pip_setting("index-url") == "http://b/simple"
    assert bootstrap.pip_setting("proxy") == ""


def test_a_broken_pip_conf_is_passed_over(tmp_path: Path) -> None:
    """A pip.conf that nobody can read stops nothing."""
    file = tmp_path / "home" / ".pip" / "pip.conf"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"\xff\xfe not a file")
    assert bootstrap.pip_setting("no-such-setting") == ""


def test_wheel_from_the_configured_index(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wheel comes from the index that pip is set to, by its relative link."""
    monkeypatch.setenv("PIP_INDEX_URL", index.url + "/")
    assert bootstrap.wheel_from_index() == WHEEL
    assert index.paths == ["/simple/pip/", f"/files/{bootstrap.PIP_WHEEL}"]
    assert index.credentials == ["", ""]


def test_credentials_go_to_the_index_and_not_to_the_screen(
    index: Index, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """user:password of the index URL is sent as basic authentication and never printed."""
    url = index.url.replace("//", "//me:s%40cret@")
    monkeypatch.setenv("PIP_INDEX_URL", url)
    bootstrap.wheel_from_index()
    assert index.credentials[0] == "Basic " + base64.b64encode(b"me:s@cret").decode()
    assert "cret" not in "".join(capsys.readouterr())


def test_no_wheel_and_no_index(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index without the wheel, or none at all, ends with a sentence that says what to do."""
    monkeypatch.setenv("PIP_INDEX_URL", index.url.replace("simple", "other"))
    with pytest.raises(bootstrap.BootstrapError, match="python3-venv"):
        bootstrap.wheel_from_index()
    monkeypatch.setattr(bootstrap, "PIP_WHEEL", "pip-0-none.whl")
    monkeypatch.setenv("PIP_INDEX_URL", index.url)
    with pytest.raises(bootstrap.BootstrapError, match="has no pip-0"):
        bootstrap.wheel_from_index()


def test_wheel_from_disk_only_with_the_right_hash(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """PIP_FIND_LINKS is looked into first; another file of the same name is not taken."""
    monkeypatch.setenv("PIP_FIND_LINKS", f"{tmp_path / 'missing'} {tmp_path}")
    monkeypatch.setattr(bootstrap, "PIP_WHEEL", "pip-0-test.whl")
    (tmp_path / "pip-0-test.whl").write_bytes(WHEEL)
    assert bootstrap.wheel_from_disk() is None
    monkeypatch.setattr(bootstrap, "PIP_SHA256", hashlib.sha256(WHEEL).hexdigest())
    assert bootstrap.wheel_from_disk() == WHEEL


def test_a_wheel_with_another_hash_is_never_run(
    index: Index, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What the index sends is run only when it has the pinned hash."""
    monkeypatch.setenv("PIP_INDEX_URL", index.url)
    monkeypatch.setattr(bootstrap, "VENV", tmp_path)
    with pytest.raises(bootstrap.BootstrapError, match="has the hash"):
        bootstrap.add_pip(Path(sys.executable))
    assert not (tmp_path / bootstrap.PIP_WHEEL).exists()


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
        "bootstrap: unpacking them (about a minute)\n",
    ]


def test_a_log_gets_no_line_for_each_package() -> None:
    out = io.StringIO()
    last = bootstrap.tell_progress(SAID * 100, LOCKED, out, is_terminal=False)
    assert set(out.getvalue().splitlines()) == {"bootstrap: unpacking them (about a minute)"}
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
