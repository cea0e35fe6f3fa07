from __future__ import annotations

import socket
from pathlib import Path

import pytest

from extproc.demo import port as port_module
from extproc.demo.port import LOOPBACK, free_port, free_ports, listening_problem

LOWEST, KERNELS = 16_384, Path("/proc/sys/net/ipv4/ip_local_port_range")


@pytest.fixture(autouse=True)
def _all_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    """As outside tests, where no worker has a range of its own (tests/conftest.py)."""
    monkeypatch.setattr(port_module, "LOWEST", LOWEST)
    monkeypatch.setattr(port_module, "KERNELS", KERNELS)


def test_a_port_is_never_given_twice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whoever got it first may not listen on it yet."""
    first, second = free_ports(2)
    offered = [first, second, first, second, free_port()]

    class Kernel(socket.socket):
        def getsockname(self) -> tuple[str, int]:
            return LOOPBACK, offered.pop(0)

    monkeypatch.setattr(port_module, "KERNELS", tmp_path / "none")
    monkeypatch.setattr(socket, "socket", Kernel)
    monkeypatch.setattr(port_module, "_given", set())
    assert free_ports(1) == [first]
    assert free_ports(1) == [second]
    assert len({first, second, *free_ports(1)}) == 3


def test_a_port_is_none_that_the_kernel_gives_to_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A client, or a server that asks for any port, would take it before it is listened on."""
    kernels = tmp_path / "range"
    monkeypatch.setattr(port_module, "KERNELS", kernels)
    monkeypatch.setattr(port_module, "_given", set())
    kernels.write_text("18000\t60999\n")
    assert max(free_ports(500)) < 18_000
    kernels.write_text("1024\t60999\n")
    assert free_port() > 0


def test_where_hardly_a_port_is_free_the_kernel_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every one that is tried is taken."""
    with socket.create_server((LOOPBACK, 0)) as server:
        monkeypatch.setattr(port_module, "_any_port", lambda: server.getsockname()[1])
        assert free_port() not in {0, server.getsockname()[1]}


def test_a_port_is_taken_exactly_while_somebody_listens() -> None:
    port = free_port()
    assert listening_problem(port) is None
    with socket.create_server((LOOPBACK, port)):
        assert listening_problem(port) == "Address already in use"
    assert listening_problem(port) is None


@pytest.mark.parametrize("host", ["0.0.0.0", "localhost"])
def test_every_kind_of_host_can_be_asked_about(host: str) -> None:
    assert listening_problem(free_port(), host) is None


def test_an_address_of_another_machine_is_a_problem() -> None:
    assert listening_problem(free_port(), "203.0.113.7") == "Cannot assign requested address"
