from __future__ import annotations

import socket

from extproc.demo.port import LOOPBACK, free_port, free_ports, is_port_taken


def test_free_ports_are_different() -> None:
    assert len(set(free_ports(20))) == 20


def test_a_port_is_taken_exactly_while_somebody_listens() -> None:
    port = free_port()
    assert not is_port_taken(port)
    with socket.create_server((LOOPBACK, port)):
        assert is_port_taken(port)
    assert not is_port_taken(port)
