"""Claims about extproc/cli/commands/config.py: the settings of a real picker, over gRPC."""

from __future__ import annotations

import yaml

from tests.cli.typed_command import Run, parsed
from tests.fakes.picker import running_picker


async def test_reload(run: Run) -> None:
    """What changed, what needs a restart; a mistake ends with 1 and names its line."""
    async with running_picker() as picker:
        told = await run("config", "reload", picker=picker)
        assert "changed: queue.timeout_s" in told.stdout
        assert "after a restart: listen.grpc" in told.stdout
        picker.settings.problem = "coxswain.yaml:3: queue.timeot_s: unknown key"
        wrong = await run("config", "reload", picker=picker)
        assert wrong.exit_code == 1 and "coxswain.yaml:3" in wrong.stderr
        shown = (await run("config", "live", picker=picker)).stdout
        assert "timeout_s: 60" in shown
        as_json = parsed(await run("config", "live", "-o", "json", picker=picker))
        assert as_json == yaml.safe_load(shown)
