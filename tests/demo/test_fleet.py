from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from extproc.demo import fleet as fleet_module
from extproc.demo.fleet import FleetOptions, choose_fleet
from extproc.demo.llama_server import LLAMA_SERVER_VARIABLE


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with a llama-server and a package that writes models."""
    binary = tmp_path / "server"
    binary.touch(mode=0o755)
    monkeypatch.setenv(LLAMA_SERVER_VARIABLE, str(binary))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return binary


def test_a_found_server_is_used_with_a_fresh_model(machine: Path, tmp_path: Path) -> None:
    fleet = choose_fleet(FleetOptions(slots=(2, 4)), tmp_path)
    assert "real llama-server" in fleet.sentence and str(machine) in fleet.sentence
    assert [server.slots for server in fleet.servers] == [2, 4]
    assert len({server.port for server in fleet.servers}) == 2
    command = fleet.command(fleet.servers[1])
    assert command[0] == str(machine)
    assert command[command.index("--parallel") + 1] == "4"
    assert command[command.index("--ctx-size") + 1] == str(4 * 4096)
    assert Path(command[command.index("--model") + 1]).stat().st_size > 100_000


def test_without_a_number_of_slots_a_server_is_started_plainly(tmp_path: Path) -> None:
    fleet = choose_fleet(FleetOptions(), tmp_path)
    assert [server.slots for server in fleet.servers] == [4, 4]
    command = fleet.command(fleet.servers[0])
    assert "--parallel" not in command
    assert command[command.index("--ctx-size") + 1] == "4096"
    simulated = choose_fleet(FleetOptions(wants_simulator=True), tmp_path)
    assert "--shared-context" in simulated.command(simulated.servers[0])


@pytest.mark.parametrize(
    ("fleet_options", "reason"),
    [
        (FleetOptions(wants_simulator=True), "as requested"),
        (FleetOptions(service_time_s=2.0), "needed for --service-time"),
    ],
)
def test_the_simulator_is_taken_when_wanted_and_said_plainly(
    tmp_path: Path, fleet_options: FleetOptions, reason: str
) -> None:
    fleet = choose_fleet(fleet_options, tmp_path)
    assert "simulator" in fleet.sentence and reason in fleet.sentence
    command = fleet.command(fleet.servers[0])
    assert ("--service-time" in command) == (fleet_options.service_time_s is not None)


def test_the_simulator_is_taken_where_nothing_else_is_and_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_module, "find_spec", lambda _: None)
    assert (
        "gguf, which writes the model, is missing"
        in choose_fleet(FleetOptions(), tmp_path).sentence
    )
    monkeypatch.setattr(fleet_module, "find_spec", importlib.util.find_spec)
    monkeypatch.delenv(LLAMA_SERVER_VARIABLE)
    assert "llama-server was not found" in choose_fleet(FleetOptions(), tmp_path).sentence
