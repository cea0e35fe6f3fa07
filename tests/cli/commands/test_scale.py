"""Claims about extproc/cli/commands/scale.py."""

from __future__ import annotations

from extproc.core.observation import ModelReading
from tests.cli.typed_command import Run, parsed
from tests.fakes.picker import running_picker


async def test_a_table_and_json_have_the_number_and_its_reason(run: Run) -> None:
    """And nothing that moves a cursor."""
    async with running_picker() as picker:
        empty = await run("scale", picker=picker)
        assert "scale.models" in empty.stdout
        picker.add_ready("10.0.0.1:8080")
        picker.observe("10.0.0.1:8080", slots=4, models=(ModelReading(name="q\x1b[2Jwen"),))
        shown = (await run("scale", picker=picker)).stdout
        assert "WANTED" in shown and "not known yet" in " ".join(shown.split())
        assert "\x1b" not in shown
        found = parsed(await run("scale", "-o", "json", picker=picker))["models"]
        assert found[0]["wanted"] == 1 and found[0]["cause"] == "unknown"
        assert found[0]["slots"] == 4 and found[0].get("service_s") is None
        await run("scale", "--objective", "chat", picker=picker)
