from __future__ import annotations

import socket

import pytest

from extproc.demo import port as port_module
from extproc.demo.port import LOOPBACK, free_port, free_ports, listening_problem


def test_a_port_is_never_given_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever got it first may not listen on it yet."""
    first, second = free_ports(2)
    offered = [first, second, first, second, free_port()]

    class Kernel(socket.socket):
        def getsockname(self) -> tuple[str, int]:
            return LOOPBACK, offered.pop(0)

    monkeypatch.setattr(socket, "socket", Kernel)
    monkeypatch.setattr(port_module, "_given", set())
    assert free_ports(1) == [first]
    assert free_ports(1) == [second]
    assert len({first, second, *free_ports(1)}) == 3


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
