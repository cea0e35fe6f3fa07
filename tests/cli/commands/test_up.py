"""Claims about extproc/cli/commands/up.py: what it rejects before anything is started."""

from __future__ import annotations

import pytest

from tests.cli.typed_command import Command

ANY_PORTS = [
    part
    for key in ("envoy.admin", "listen.grpc", "listen.http", "listen.admin")
    for part in ("--set", f"{key}=127.0.0.1:0")
]


@pytest.mark.parametrize("slots", ["0", "two", "2,", "-1", "1025", "9" * 5000, "²"])
def test_slots_that_no_server_can_have(coxswain: Command, slots: str) -> None:
    """The option is named, with what to write; 2 and no traceback."""
    ended = coxswain("up", "--port", "0", *ANY_PORTS, "--slots", slots)
    assert ended.code == 2 and ended.out == ""
    assert ended.err.splitlines()[-1] == (
        "Error: Invalid value for --slots: write whole numbers from 1 to 1024, for example 2 or 2,4"
    )


@pytest.mark.parametrize("option", [["--simulator"], ["--service-time", "1"]])
@pytest.mark.parametrize(
    "own",
    [
        ["-e", "10.0.0.5:8080"],
        ["--set", "discovery.file=fleet.yaml"],
        ["--set", "discovery.dns=dns://gpus.example:8080"],
    ],
)
def test_own_servers_are_not_simulated(
    coxswain: Command, own: list[str], option: list[str]
) -> None:
    """Whichever way the settings come to know them: no fleet is started beside them."""
    ended = coxswain("up", "--port", "0", *ANY_PORTS, *own, *option)
    assert ended.code == 2 and "cannot be simulated" in ended.err


def test_settings_that_are_wrong_start_nothing(coxswain: Command) -> None:
    ended = coxswain("up", "-e", "http://10.0.0.5:8080")
    assert ended.code == 2 and ended.out == ""
    assert "write host:port without http://" in ended.err


@pytest.mark.parametrize(
    ("others", "says"),
    [
        (["-e", "10.0.0.5:8080"], "remove the other servers"),
        (["--simulator"], "a keeper starts no simulator"),
        (["--service-time", "1"], "a keeper starts no simulator"),
        (["--slots", "2,4"], "one for each model"),
    ],
)
def test_models_come_without_other_servers(coxswain: Command, others: list[str], says: str) -> None:
    ended = coxswain("up", "--port", "0", *ANY_PORTS, "--models", "3", *others)
    assert ended.code == 2 and says in ended.err
