"""`coxswain batch`, against the API that it speaks to."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from extproc.batches.lines import answered
from extproc.cli.screens.batch_table import bar
from tests.batches.test_api import Api, serving
from tests.batches.test_store import content
from tests.cli.typed_command import Command, Run, parsed


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COXSWAIN_API_KEY", "key-a")


def url(api: Api) -> tuple[str, str]:
    return "--url", str(api.client.base_url)


def answer(api: Api, count: int, status: int = 200) -> None:
    for line in api.store.claim("tiny", count):
        result = answered(line.id, line.custom_id, status, "q", b"{}")
        api.store.record(line, result, 1e9, is_error=status != 200)


async def test_a_batch_from_its_file_to_its_results(tmp_path: Path, run: Run) -> None:
    file = tmp_path / "in.jsonl"
    file.write_bytes(content(4))
    async with serving(tmp_path) as api:
        made = await run("batch", "submit", str(file), "--window", "7d", *url(api))
        assert made.exit_code == 0, made.output
        id_ = made.stdout.strip()
        early = await run("batch", "results", id_, *url(api))
        assert early.exit_code == 6 and "has not ended" in early.stderr
        answer(api, 3)
        shown = await run("batch", "status", *url(api))
        assert shown.stdout.splitlines()[1].split()[:4] == [id_, bar(3, 4), "3/4", "0"]
        answer(api, 1, status=400)
        one = parsed(await run("batch", "status", id_, "-o", "json", *url(api)))
        assert one["status"] == "completed"
        assert one["request_counts"] == {"total": 4, "completed": 3, "failed": 1}
        table = await run("batch", "status", id_, "--watch", *url(api))
        assert table.exit_code == 0 and "completed" in table.stdout and "4/4" in table.stdout
        for more, found in (((), ["0", "1", "2"]), (("--errors",), ["3"])):
            results = await run("batch", "results", id_, *more, *url(api))
            ids = [json.loads(line)["custom_id"] for line in results.stdout.splitlines()]
            assert ids == found


async def test_cancel_and_lists(tmp_path: Path, run: Run) -> None:
    file = tmp_path / "in.jsonl"
    file.write_bytes(content(2))
    async with serving(tmp_path) as api:
        made = parsed(await run("batch", "submit", str(file), "-o", "json", *url(api)))
        ended = await run("batch", "cancel", made["id"], *url(api))
        assert ended.stdout == f"{made['id']} is cancelled: 0 of 2 requests have ended\n"
        again = parsed(await run("batch", "cancel", made["id"], "-o", "json", *url(api)))
        assert again["status"] == "cancelled"
        listed = parsed(await run("batch", "status", "-o", "json", *url(api)))
        assert listed["total"] == 1 and listed["data"][0]["id"] == made["id"]
        lines = await run("batch", "status", "--watch", "-o", "json", *url(api))
        assert json.loads(lines.stdout)["id"] == made["id"]
        none = await run("batch", "results", made["id"], *url(api))
        assert (none.exit_code, none.stdout) == (0, "")


async def test_mistakes_are_one_line(tmp_path: Path, run: Run) -> None:
    file = tmp_path / "in.jsonl"
    async with serving(tmp_path) as api:
        for text, code, said in (
            (content(1) + b"{\n", 1, "line 2: This line is not valid JSON."),
            (b"nonsense", 2, "its first line is no request with a url"),
            (b"", 2, "its first line is no request with a url"),
            (content(1).replace(b"/chat/completions", b"/images"), 2, "The endpoint must be one"),
        ):
            file.write_bytes(text)
            ended = await run("batch", "submit", str(file), *url(api))
            assert ended.exit_code == code and said in ended.stderr, ended.output
            assert ended.stderr.count("\n") == 1
        missing = await run("batch", "submit", str(tmp_path / "none"), *url(api))
        assert missing.exit_code == 2
        for id_, code in (("batch_0", 4), ("../files", 2)):
            assert (await run("batch", "status", id_, *url(api))).exit_code == code
        key = tmp_path / "key"
        key.write_text("wrong\n")
        other = await run("batch", "status", "--api-key-file", str(key), *url(api))
        assert other.exit_code == 5 and "API key" in other.stderr


async def test_where_nothing_is_served(run: Run) -> None:
    ended = await run("batch", "status", "--url", "http://127.0.0.1:1")
    assert ended.exit_code == 3 and "coxswain batch run" in ended.stderr
    assert (await run("batch", "status", "--url", "nonsense")).exit_code == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--url", "nonsense"), "--url: write http://HOST:PORT"),
        (("--listen", "9006"), "--listen: write HOST:PORT"),
        (("--listen", "0.0.0.0:9006"), "without --keys-file"),
        (("--api-key-file", "/none"), "--api-key-file: /none"),
        (("--keys-file", "/none"), "clients.keys_file"),
        (("--store", "/none/batches.db"), "/none/batches.db: unable to open database file"),
        (("--log-format", "xml"), "--log-format: human or json"),
    ],
)
def test_how_it_cannot_run(
    coxswain: Command, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    ended = coxswain("batch", "run", "--store", str(tmp_path / "batches.db"), *words)
    assert ended.code == 2 and said in ended.err, ended.err
    assert not os.listdir(tmp_path) or words[0] == "--url"


def test_a_bar_shows_the_share() -> None:
    assert bar(0, 10) == "░" * 12 and bar(10, 10) == bar(0, 0) == "█" * 12
    assert bar(5, 10).count("█") == 6
