"""Claims about tests/fakes/import_first.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_what_fails_or_crashes_is_named(tmp_path: Path) -> None:
    """Also where it fails only as the first."""
    package = tmp_path / "scraper"
    package.mkdir()
    modules = {
        "__init__": "",
        "sound": "import json",
        "absent": "import scraper.nothing",
        "broken": "1 / 0",
        "crashing": "import os, sys; 'scraper.sound' in sys.modules or os.abort()",
    }
    for name, text in modules.items():
        (package / f"{name}.py").write_text(text)
    names = [f"scraper.{name}" for name in modules if name != "__init__"]
    here = Path(__file__).with_name("import_first.py")
    run = subprocess.run(
        [sys.executable, "-P", here, *names],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.split("\n") == [
        *("scraper.absent 1", "scraper.broken 1", "scraper.crashing -6"),
        "",
    ]
