"""Claims about extproc/cli/commands/models.py: what is said of machines."""

from __future__ import annotations

from extproc.cli.commands.models import _machine_line
from extproc.pb.coxswain.v1 import admin_pb2 as pb


def test_a_machine_has_memory_and_a_router_room_for_models() -> None:
    kept = pb.Machine(name="gpu-1", memory_mb=100, used_mb=60, is_connected=True)
    assert _machine_line(kept) == "gpu-1: 60 of 100 MiB used"
    kept.is_connected = False
    assert _machine_line(kept).endswith("its keeper is not connected")
    kept.power = "off"
    assert _machine_line(kept).endswith("MiB used; it is off, until requests wake it")
    new = pb.Machine(name="gpu-2", power="waking")
    assert _machine_line(new) == "gpu-2: its keeper has not attached yet; it wakes"
    router = pb.Machine(name="r", is_router=True, max_models=2, used_models=1, is_connected=True)
    assert _machine_line(router) == "r (a router): 1 of 2 models loaded"
    router.max_models, router.is_connected = 0, False
    assert _machine_line(router) == "r (a router): 1 models loaded; it gets no requests now"


def test_a_machine_has_its_pool() -> None:
    kept = pb.Machine(name="gpu-1", memory_mb=100, used_mb=60, is_connected=True, pool="chat")
    assert _machine_line(kept) == "gpu-1 in the pool chat: 60 of 100 MiB used"
    new = pb.Machine(name="gpu-2", power="waking", pool="chat")
    assert _machine_line(new) == "gpu-2 in the pool chat: its keeper has not attached yet; it wakes"
    router = pb.Machine(name="r", is_router=True, used_models=1, is_connected=True, pool="chat")
    assert _machine_line(router) == "r (a router) in the pool chat: 1 models loaded"
