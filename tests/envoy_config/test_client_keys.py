"""Claims about extproc/envoy_config/client_keys.py and .lua; over a real Envoy: tests/e2e."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from extproc.envoy_config.client_keys import served_check
from extproc.envoy_config.documents import bootstrap
from extproc.envoy_config.options import EnvoyOptions, Mode
from extproc.envoy_config.snippet import snippet
from extproc.envoy_config.tls_files import ClientKey
from extproc.settings.client_keys import digest_of

KEYS = (
    ClientKey(client="web", digest=digest_of("sk-web")),
    ClientKey(client="batch", digest=digest_of("sk-batch")),
)


def first_filter(options: EnvoyOptions) -> tuple[dict[str, Any], dict[str, Any]]:
    """The first filter, and the connection manager that has it."""
    static = yaml.safe_load(bootstrap(options))["static_resources"]
    manager = static["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    return manager["http_filters"][0], manager


def test_the_picker_serves_the_keys() -> None:
    """So the printed configuration has none, not even digests: only how to reject everybody."""
    check, manager = first_filter(EnvoyOptions(checks_clients=True, client_keys=KEYS))
    assert check["name"] == "coxswain.client_keys" and "typed_config" not in check
    served = check["config_discovery"]
    assert served["type_urls"] == [served["default_config"]["@type"]]
    source = served["default_config"]["default_source_code"]["inline_string"]
    assert source.startswith("local CLIENTS = false\n")
    early = manager["early_header_mutation_extensions"][0]["typed_config"]["mutations"]
    assert {"remove": "x-coxswain-client"} in early
    printed = snippet(EnvoyOptions(checks_clients=True, client_keys=KEYS))
    assert "coxswain.client_keys" in printed and KEYS[0].digest not in printed


def test_the_check_knows_digests_alone() -> None:
    """Each key has a line, in both forms of the configuration; without keys there is none."""
    lines = "".join(f"{key.client} {key.digest}\n" for key in KEYS)
    assert f"local CLIENTS = [[\n{lines}]]\n".encode() in served_check(KEYS)
    assert b"local CLIENTS = [[\n\n]]\n" in served_check(())
    options = EnvoyOptions(mode=Mode.ORIGINAL_DST, checks_clients=True, client_keys=KEYS)
    check, _ = first_filter(options)
    assert lines in check["typed_config"]["default_source_code"]["inline_string"]


def test_nothing_of_it_unless_it_is_asked_for() -> None:
    """Without a keys file there is no check."""
    assert "client_keys" not in bootstrap(EnvoyOptions())
    assert "client_keys" not in snippet(EnvoyOptions())


@pytest.mark.e2e
@pytest.mark.parametrize("mode", [Mode.DISCOVERY, Mode.ORIGINAL_DST])
def test_envoy_takes_it(tmp_path: Path, mode: Mode) -> None:
    """`envoy --mode validate`, with the script and without it."""
    options = EnvoyOptions(mode=mode, checks_clients=True, client_keys=KEYS)
    file = tmp_path / "envoy.yaml"
    file.write_text(bootstrap(replace(options, serves_cluster=False)), encoding="utf-8")
    envoy = shutil.which("envoy") or pytest.skip("there is no Envoy here")
    done = subprocess.run(
        [envoy, "--mode", "validate", "-c", str(file), "--use-dynamic-base-id"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
