"""Claims about extproc/cli/loading.py, and what short commands need not load."""

from __future__ import annotations

import gc
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from extproc.cli.loading import collector_at_rest
from tests.fakes.authority import Authority


def test_the_collector_works_again_afterwards() -> None:
    """Also when a module cannot be loaded. It does not look through what was loaded."""
    with collector_at_rest():
        assert not gc.isenabled()
        loaded = gc.get_freeze_count()
        kept: list[list[int]] = [[] for _ in range(1000)]
    assert gc.isenabled() and gc.get_freeze_count() > loaded + len(kept)
    with pytest.raises(ImportError), collector_at_rest():
        raise ImportError
    assert gc.isenabled()


@pytest.mark.parametrize("is_bio", [True, False])
def test_tls_contexts_of_imports_read_the_systems_cas_when_they_connect(
    is_bio: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(Authority(tmp_path).ca))
    with collector_at_rest():
        late = ssl.create_default_context()
    assert not late.get_ca_certs() and isinstance(late, ssl.SSLContext)
    if is_bio:
        late.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="localhost")
    else:
        late.wrap_socket(socket.socket(), server_hostname="localhost").close()
    at_once = ssl.create_default_context()
    assert late.get_ca_certs() == at_once.get_ca_certs() != []
    assert (type(late), late.verify_mode, late.check_hostname) == (
        (type(at_once), at_once.verify_mode, at_once.check_hostname)
    )


def test_a_picker_loads_what_it_uses() -> None:
    """Neither the command of httpx, which is there where click happens to be installed, nor the
    supervisor of several processes, and no CAs for aiohttp's client, which talks plain HTTP."""
    program = """
import sys
from extproc.cli.loading import collector_at_rest
with collector_at_rest():
    import extproc.cli.commands.serve, extproc.app.serve, extproc.app.preflight
unused = {"click", "pygments", "rich", "httpx._main", "extproc.processes.supervisor"}
assert not [name for name in unused if sys.modules.get(name)], unused & {*sys.modules}
import aiohttp.connector
assert type(aiohttp.connector._SSL_CONTEXT_VERIFIED).__name__ == "_LateContext"
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("module", ["version", "options", "agent", "keeper"])
def test_a_part_of_the_application_loads_no_picker(module: str) -> None:
    program = f"import sys, extproc.app.{module}; assert 'extproc.app.service' not in sys.modules"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
