"""Claims about replacing a model's command: extproc/keeper/replacer.py, and the file of
replacements.py; a real keeper before a real picker where both take part."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import yaml
from typer.testing import CliRunner, Result

from extproc.cli.root import root
from extproc.keeper.models_file import ModelEntry, ModelsFile, read_models
from extproc.keeper.replacements import Replacements
from extproc.keeper.replacer import Replaced, Replacer
from extproc.keeper.server_client import prove
from extproc.settings import SettingsError
from tests.fakes.picker import FakePicker, running_picker
from tests.keeper.test_link import linked, states
from tests.keeper.test_machine import Kit
from tests.keeper.test_model_server import TINY
from tests.keeper.waits import until

NEW = [sys.executable, str(TINY), "--new"]
BROKEN = [sys.executable, str(TINY), "--exit-after", "0"]
MUTE = [sys.executable, str(TINY), "--mute"]


@pytest.fixture
async def kit() -> AsyncIterator[Kit]:
    made = Kit()
    made.add("qwen", 60, aliases=["chat"])
    yield made
    await made.machine.stop(0.0)


def replacer(kit: Kit, folder: Path, *, is_allowed: bool = True) -> Replacer:
    entries = {name: server.entry for name, server in kit.machine.servers.items()}
    store = Replacements(folder / "models.yaml") if is_allowed else None
    subject = Replacer(kit.machine, store)
    subject.file = entries
    return subject


def state(kit: Kit) -> str:
    return kit.machine.servers["qwen"].status.state.value


async def loaded(kit: Kit) -> None:
    kit.machine.want(["qwen"])
    await until(lambda: state(kit) == "loaded")


async def test_a_running_server_is_replaced_by_one_that_proves_itself(
    kit: Kit, tmp_path: Path
) -> None:
    subject = replacer(kit, tmp_path)
    await loaded(kit)
    old = kit.machine.servers["qwen"].pid
    assert await subject.replace("qwen", NEW, 50) == Replaced(is_proved=True)
    await until(lambda: state(kit) == "loaded")
    entry = kit.machine.servers["qwen"].entry
    assert (list(entry.cmd), entry.memory_mb) == (NEW, 50)
    assert kit.machine.servers["qwen"].pid != old and kit.machine.used_mb == 50
    kept = yaml.safe_load((tmp_path / "models.replaced.yaml").read_text())
    assert kept["models"]["qwen"]["cmd"] == NEW
    assert await subject.revert("qwen") == Replaced(is_proved=True)
    assert kit.machine.servers["qwen"].entry.memory_mb == 60
    assert not yaml.safe_load((tmp_path / "models.replaced.yaml").read_text())["models"]


@pytest.mark.parametrize(("cmd", "words"), [(BROKEN, "exit status 3"), (MUTE, "answers 500")])
async def test_one_that_fails_goes_back(
    cmd: list[str], words: str, kit: Kit, tmp_path: Path
) -> None:
    """Once, without the pauses of a crash loop; and the old one serves again."""
    subject = replacer(kit, tmp_path)
    await loaded(kit)
    before = kit.machine.servers["qwen"].entry
    found = await subject.replace("qwen", cmd, None)
    assert words in found.problem and not found.is_proved
    assert kit.machine.servers["qwen"].entry == before
    await until(lambda: state(kit) == "loaded")
    assert kit.machine.servers["qwen"].status.exits == 0
    assert not (tmp_path / "models.replaced.yaml").exists()


async def test_one_that_is_not_loaded_waits_for_its_load_only_if_it_must(
    kit: Kit, tmp_path: Path
) -> None:
    subject = replacer(kit, tmp_path)
    assert await subject.replace("qwen", NEW, None) == Replaced()
    asked = asyncio.create_task(subject.replace("qwen", BROKEN, None, must_load=True))
    await asyncio.sleep(0)
    assert "another model" in (await subject.replace("qwen", NEW, None)).problem
    kit.machine.want(["qwen"])
    assert "exit status 3" in (await asked).problem
    await until(lambda: state(kit) == "loaded")
    assert list(kit.machine.servers["qwen"].entry.cmd) == NEW


async def test_what_cannot_be_replaced_is_said(kit: Kit, tmp_path: Path) -> None:
    forbidden = replacer(kit, tmp_path, is_allowed=False)
    assert "--allow-replace" in (await forbidden.replace("qwen", NEW, None)).problem
    subject = replacer(kit, tmp_path)
    assert "no model other" in (await subject.replace("other", NEW, None)).problem
    assert "more than the machine's" in (await subject.replace("qwen", NEW, 1000)).problem
    assert (await subject.replace("qwen", NEW, -1)).problem
    assert await subject.revert("qwen") == Replaced(), "nothing was replaced"
    closed = replacer(kit, tmp_path / "nowhere")
    assert "cannot be written" in (await closed.replace("qwen", NEW, None)).problem
    assert kit.machine.servers["qwen"].entry.memory_mb == 60


def file(folder: Path, memory_mb: int = 10) -> ModelsFile:
    path = folder / "models.yaml"
    entry = {"cmd": "llama-server -m a", "memory_mb": memory_mb}
    path.write_text(yaml.safe_dump({"memory_mb": 100, "models": {"a": entry}}))
    return read_models(path)


def test_a_replacement_holds_until_its_entry_changes(tmp_path: Path) -> None:
    base = file(tmp_path)
    store = Replacements(tmp_path / "models.yaml")
    assert store.apply(base) == (base, [])
    entry = ModelEntry.model_validate({"cmd": ["b"], "memory_mb": 20})
    store.put("a", base.models["a"], entry)
    assert store.path.stat().st_mode & 0o077 == 0, "a command may hold a key"
    found, notes = Replacements(tmp_path / "models.yaml").apply(base)
    assert (found.models["a"].cmd, found.models["a"].memory_mb, notes) == (("b",), 20, [])
    found, notes = store.apply(file(tmp_path, memory_mb=11))
    assert found.models["a"].memory_mb == 11 and "has changed" in notes[0]


def test_a_damaged_file_of_replacements_is_reported(tmp_path: Path) -> None:
    (tmp_path / "models.replaced.yaml").write_text("models: {a: {cmd: [b]}}")
    with pytest.raises(SettingsError, match=r"models\.replaced\.yaml"):
        Replacements(tmp_path / "models.yaml").apply(file(tmp_path))


async def test_an_embedding_server_proves_itself_too() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200 if request.url.path == "/v1/embeddings" else 501)

    transport = httpx.MockTransport(answer)
    async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
        assert await prove(client) is None


# The whole rollout, over two machines


@asynccontextmanager
async def two_machines(
    folder: Path,
) -> AsyncIterator[tuple[FakePicker, Kit, Kit]]:
    kits = Kit(), Kit("gpu-2")
    for kit in kits:
        kit.add("qwen", 60, aliases=["chat"])
    (folder / "1").mkdir()
    (folder / "2").mkdir()
    async with (
        running_picker(places_models=True) as picker,
        linked(kits[0], picker, replacer(kits[0], folder / "1")),
        linked(kits[1], picker, replacer(kits[1], folder / "2")),
    ):
        try:
            yield picker, *kits
        finally:
            for kit in kits:
                await kit.machine.stop(0.0)


async def run(picker: FakePicker, *arguments: str) -> Result:
    words = ("models", *arguments, "--picker", f"127.0.0.1:{picker.port}")
    return await asyncio.to_thread(lambda: CliRunner().invoke(root, words))


def text(cmd: list[str]) -> str:
    return " ".join(cmd)


async def test_a_rollout_proves_the_first_and_goes_back_if_a_later_one_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COXSWAIN_TOKEN", raising=False)
    async with two_machines(tmp_path) as (picker, one, two):
        await until(lambda: {"gpu-1", "gpu-2"} <= set(picker.keepers.machines))
        dry = await run(picker, "replace", "qwen", "--cmd", text(NEW), "--dry-run")
        assert dry.exit_code == 0 and "nothing was changed" in dry.output
        done = await run(picker, "replace", "qwen", "--cmd", text(NEW), "--memory-mb", "50")
        assert done.exit_code == 0, done.output
        assert "gpu-1: replaced, and it has completed a prompt" in done.output
        assert "gpu-2: replaced, it is not loaded now" in done.output
        assert {kit.machine.servers["qwen"].entry.memory_mb for kit in (one, two)} == {50}
        await until(lambda: picker.keepers.machines["gpu-2"].models["qwen"].memory_mb == 50)
        await run(picker, "replace", "gpu-2/qwen", "--memory-mb", "55")
        failed = await run(picker, "replace", "qwen", "--cmd", text(BROKEN))
        assert failed.exit_code != 0 and "exit status 3" in failed.output
        assert [kit.machine.servers["qwen"].entry.memory_mb for kit in (one, two)] == [50, 55]
        await until(lambda: state(one) == state(two) == "loaded")
        await until(lambda: states(picker)["qwen"] == "loaded")
        two.machine.memory_mb = 52
        late = await run(picker, "replace", "qwen", "--memory-mb", "54")
        assert late.exit_code != 0 and "gpu-1: went back" in late.output, late.output
        assert [kit.machine.servers["qwen"].entry.memory_mb for kit in (one, two)] == [50, 55]
        wrong = await run(picker, "replace", "qwen")
        assert wrong.exit_code == 2 and "--cmd or --memory-mb" in wrong.output
        await until(lambda: states(picker)["qwen"] == "loaded")
