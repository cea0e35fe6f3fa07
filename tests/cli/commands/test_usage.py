"""Claims about extproc/cli/commands/usage.py and screens/usage_table.py."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection

from extproc.usage.counts import UsageCounts, UsageKey
from extproc.usage.store import UsageRow
from tests.cli.typed_command import Run, parsed
from tests.fakes.picker import running_picker

COUNTS = UsageCounts(requests=1234, prompt_tokens=5_000_000, generated_tokens=7, slot_s=2.5)


async def rows(_: float, by: Collection[str], limit: int) -> list[UsageRow]:
    """The keys, as far as they are grouped by."""
    keys = [UsageKey("web", "chat", "tiny"), UsageKey("=1+1", "", "\x1b[2J")]
    return [
        UsageRow(
            UsageKey(*(value if name in by else "" for name, value in key._asdict().items())),
            COUNTS,
        )
        for key in keys[:limit]
    ]


async def test_a_table_has_the_columns_that_it_is_grouped_by(run: Run) -> None:
    """And nothing that moves a cursor."""
    async with running_picker(read_usage=rows) as picker:
        shown = (await run("usage", picker=picker)).stdout
        assert "CLIENT" in shown and "MODEL" in shown and "5,000,000" in shown
        assert "\x1b" not in shown
        by = (await run("usage", "--by", "client", "--since", "24h", picker=picker)).stdout
        assert "CLIENT" in by and "MODEL" not in by
        total = (await run("usage", "-b", "total", "-n", "1", picker=picker)).stdout
        assert "CLIENT" not in total and "1,234" in total


async def test_json_and_csv_have_all_columns(run: Run) -> None:
    """A spreadsheet computes no cell."""
    async with running_picker(read_usage=rows) as picker:
        found = parsed(await run("usage", "-o", "json", picker=picker))["usage"]
        assert found[0]["client"] == "web" and found[0]["generated_tokens"] == 7
        text = (await run("usage", "-o", "csv", picker=picker)).stdout
    first, second = csv.DictReader(io.StringIO(text))
    assert (first["client"], first["prompt_tokens"], first["slot_s"]) == ("web", "5000000", "2.5")
    assert second["client"] == "'=1+1"


async def test_wrong_usage_and_a_picker_that_does_not_count(run: Run) -> None:
    async with running_picker() as picker:
        assert (await run("usage", "--since", "0", picker=picker)).exit_code == 2
        assert (await run("usage", "--by", "day", picker=picker)).exit_code == 2
        assert (await run("usage", picker=picker)).exit_code == 1
