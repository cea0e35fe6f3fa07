"""The systemd units: valid, hardened, and their commands are those of the code."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from extproc.demo.envoy_binary import find_envoy
from extproc.settings import Settings
from tests.deploy.stack_files import DEPLOY, ROOT

UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
MAX_EXPOSURE = 20
"""Of 100, as `systemd-analyze security` counts; a service without hardening has 96."""
INSTALLED = "/opt/coxswain/bin"


def words(unit: Path, key: str) -> list[str]:
    """The values of a key, in the order of the file."""
    text = unit.read_text(encoding="utf-8").replace("\\\n", "")
    return re.findall(rf"^{key}=(.*)$", text, re.MULTILINE)


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("no systemd-analyze")
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)


def test_there_is_one_for_each_process() -> None:
    parts = ("agent", "batches", "envoy", "keeper")
    names = {"coxswain", *(f"coxswain-{part}" for part in parts)}
    assert {unit.stem for unit in UNITS} == names


def test_systemd_finds_nothing_wrong(tmp_path: Path) -> None:
    """With the commands where they are in this environment, and units beside each other."""
    own = Path(sys.executable).parent
    for unit in UNITS:
        text = unit.read_text(encoding="utf-8").replace(INSTALLED, str(own))
        (tmp_path / unit.name).write_text(text, encoding="utf-8")
    ended = analyze("verify", "--man=no", *sorted(tmp_path.glob("*.service")))
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_each_is_hardened(unit: Path) -> None:
    ended = analyze("security", "--offline=true", f"--threshold={MAX_EXPOSURE}", unit)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_who_notifies_is_watched_and_has_time_to_drain(unit: Path) -> None:
    """Envoy alone does not notify."""
    notifies = words(unit, "Type") == ["notify"]
    assert notifies == bool(words(unit, "WatchdogSec")) == (unit.stem != "coxswain-envoy")
    if notifies:
        (stop_s,) = words(unit, "TimeoutStopSec")
        assert float(stop_s) > Settings().drain_timeout_s


def test_envoys_unit_writes_a_configuration_that_envoy_takes(tmp_path: Path) -> None:
    """Its first command is run as it is, with this environment's folders in place of its own."""
    (unit,) = (unit for unit in UNITS if unit.stem == "coxswain-envoy")
    (tmp_path / "coxswain.yaml").write_text("endpoints: [10.0.0.5:8080]\n", encoding="utf-8")
    (before,) = words(unit, "ExecStartPre")
    (start,) = words(unit, "ExecStart")
    for folder, own in (
        (INSTALLED, Path(sys.executable).parent),
        ("/etc/coxswain", tmp_path),
        ("/run/coxswain-envoy", tmp_path),
    ):
        before, start = before.replace(folder, str(own)), start.replace(folder, str(own))
    subprocess.run(["sh", "-c", before], check=True)
    assert start.split()[1:3] == ["-c", str(tmp_path / "envoy.yaml")]
    command = [str(find_envoy()), "--mode", "validate", *start.split()[1:]]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_the_user_of_the_units_is_made() -> None:
    made = (DEPLOY / "systemd/sysusers.conf").read_text(encoding="utf-8")
    (name,) = re.findall(r"^u (\S+) ", made, re.MULTILINE)
    assert {user for unit in UNITS for user in words(unit, "User")} == {name}


def test_the_page_installs_every_unit() -> None:
    page = (ROOT / "docs/install.md").read_text(encoding="utf-8")
    section = page.partition("\n## systemd\n")[2].partition("\n## ")[0]
    for unit in UNITS:
        assert unit.name in section
