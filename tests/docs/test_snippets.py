"""What people copy from the pages works as far as it can be tried: it parses."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from extproc.admin.external_scaler import read_trigger
from extproc.envoy_config.options import envoy_options
from extproc.keeper.models_file import parse_models
from extproc.pb import externalscaler_pb2 as pb
from extproc.settings import Settings, load_settings
from tests.docs.pages import ROOT, Block, pages

if TYPE_CHECKING:
    from pathlib import Path

VALUES = ROOT / "deploy/helm/coxswain/values.yaml"


def _blocks(*languages: str) -> list[Any]:
    return [
        pytest.param(block, id=f"{page.path.relative_to(ROOT)}-{number}")
        for page in pages()
        for number, block in enumerate(page.blocks())
        if block.language in languages
    ]


@pytest.mark.parametrize("block", _blocks("yaml"))
def test_settings_load(block: Block, tmp_path: Path) -> None:
    """YAML is YAML, and where it is a settings file it loads as one, and Envoy can be given what
    goes with it. Several documents are objects of Kubernetes."""
    content, *others = yaml.safe_load_all(block.text)
    if others:
        assert all({"apiVersion", "kind"} <= one.keys() for one in (content, *others))
    elif "memory_mb" in content:  # a keeper's file
        parse_models(block.text.encode(), "models.yaml")
    elif "inferencePool" in content:  # values of the chart, which its tests render
        assert set(content) <= set(yaml.safe_load(VALUES.read_text(encoding="utf-8")))
    elif set(content) & set(Settings.model_fields):
        file = tmp_path / "coxswain.yaml"
        file.write_text(with_keys(content, block.text, tmp_path / "keys"))
        envoy_options(load_settings(file))


def with_keys(content: dict[str, Any], text: str, file: Path) -> str:
    """The settings with a file of clients' keys that exists, if they name one."""
    named = content.get("clients", {}).get("keys_file")
    if named is None:
        return text
    file.write_text("web key-of-web\n")
    return text.replace(named, str(file))


@pytest.mark.parametrize("block", _blocks("sh", "console"))
def test_commands_are_shell(block: Block) -> None:
    """A shell can read what is to be typed; of a console, the lines after the prompt."""
    script = block.text
    if block.language == "console":
        script = "\n".join(line[2:] for line in script.splitlines() if line.startswith("$ "))
    script = script.replace("<this repository>", "repository")
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
    assert not done.stderr, done.stderr


@pytest.mark.parametrize("block", _blocks("json"))
def test_json_is_json(block: Block) -> None:
    json.loads(block.text)


def test_blocks_say_what_they_are() -> None:
    """Only pictures have no language; what could be tried is tried."""
    known = {"", "sh", "console", "yaml", "json", "html", "mermaid", "promql"}
    known |= {"python", "nginx", "caddyfile"}
    for page in pages():
        assert {block.language for block in page.blocks()} <= known, page.path.name


def test_the_scaled_object_is_one_that_we_serve() -> None:
    """Its trigger's metadata are read, and it names the port that the settings beside it open."""
    contents = [
        yaml.safe_load(block.text)
        for found in pages()
        if found.path.name == "scaling.md"
        for block in found.blocks()
        if block.language == "yaml"
    ]
    (scaled,) = (one for one in contents if one.get("kind") == "ScaledObject")
    (opened,) = (one for one in contents if "keda" in one)
    (trigger,) = scaled["spec"]["triggers"]
    assert trigger["type"] == "external-push"
    metadata = trigger["metadata"]
    found_trigger = read_trigger(pb.ScaledObjectRef(scalerMetadata=metadata))
    assert found_trigger.model == metadata["model"] and found_trigger.target == 1.0
    assert metadata["scalerAddress"].endswith(opened["keda"]["listen"].removeprefix("0.0.0.0"))
