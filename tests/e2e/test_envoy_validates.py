"""Claims about the printed files, checked by `envoy --mode validate`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from extproc.demo.envoy_binary import find_envoy
from extproc.envoy_config.documents import bootstrap
from extproc.envoy_config.options import EnvoyOptions, HostPort, Mode
from extproc.envoy_config.snippet import snippet
from extproc.security.path_rule import MAX_RULE_CHARS
from tests.e2e.foreign_envoy import as_before, dropped_in
from tests.fakes import quick_yaml
from tests.fakes.envoy_text import options_with

pytestmark = pytest.mark.e2e

FILES = Path(__file__).resolve().parents[2] / "envoy"


async def _validate(text: str, folder: Path) -> None:
    config = folder / "envoy.yaml"
    config.write_text(text, encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        *(find_envoy(), "--mode", "validate", "-c", config, "-l", "warning"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    assert b"deprecated" not in output.lower(), output.decode()


@pytest.mark.parametrize("name", ["envoy.yaml", "gateway.yaml", "original_dst.yaml"])
async def test_the_files_are_valid(name: str, tmp_path: Path) -> None:
    await _validate((FILES / name).read_text(encoding="utf-8"), tmp_path)


ODD_RULES = ("/a.b+c(d)*", "PUT /x", "/*", "GET /", "/f/*.a.b", "/[^$|", "DELETE /*.js")
LONG_RULES = tuple(
    f"/{number:02}{'x' * (MAX_RULE_CHARS - 3 - len(end))}{end}"
    for number, end in enumerate(["", "*", "/*.js"] * 20)
)
"""Each as long as a rule may be, and none beginning as another."""

VARIANTS = {
    "named picker": options_with(picker=HostPort("picker.internal", 9002)),
    "ipv6": options_with(listen="[::]:10000", picker=HostPort("::1", 9002)),
    "tracing": options_with(tracing="127.0.0.1:4317", trace_percent=1.0),
    "a cluster of its own": options_with(serves_cluster=False),
    "host rewrite": options_with(host_rewrite=True),
    "as many long rules as one likes": options_with(
        path_prefix="/" + "p" * 23, open_paths=LONG_RULES, blocked_paths=LONG_RULES
    ),
    "odd rules": options_with(blocked_paths=ODD_RULES, open_paths=ODD_RULES),
    "bare": options_with(
        access_log=False,
        access_log_stream=False,
        max_heap_bytes=0,
        retries=0,
        per_try_idle_timeout_s=0,
        body_buffer_bytes=0,
    ),
    "original-dst, traced": options_with(mode=Mode.ORIGINAL_DST, tracing="collector:4317"),
}


@pytest.mark.parametrize("name", VARIANTS)
async def test_every_variant_is_valid(name: str, tmp_path: Path) -> None:
    await _validate(bootstrap(VARIANTS[name]), tmp_path)


@pytest.mark.parametrize("mode", Mode)
async def test_the_snippet_fits_into_an_envoy_that_was_there_before(
    mode: Mode, tmp_path: Path
) -> None:
    if mode is Mode.DISCOVERY:
        text = (FILES / "ext_proc_filter.yaml").read_text(encoding="utf-8")
    else:
        text = snippet(EnvoyOptions(mode=mode))
    await _validate(dropped_in(text, EnvoyOptions()), tmp_path)


async def test_an_envoy_that_was_there_before_may_get_a_listener_of_our_own(
    tmp_path: Path,
) -> None:
    """As docs/envoy.md advises: the listener of the whole configuration, the parts' clusters."""
    options, theirs = EnvoyOptions(), options_with(listen="127.0.0.1:8000")
    config = quick_yaml.load(as_before(theirs))
    resources = config["static_resources"]
    resources["listeners"] += quick_yaml.load(bootstrap(options))["static_resources"]["listeners"]
    resources["clusters"] += quick_yaml.load(snippet(options))["clusters"]
    await _validate(quick_yaml.dump(config), tmp_path)


async def test_so_does_the_one_that_leaves_the_servers_cluster_to_the_picker(
    tmp_path: Path,
) -> None:
    options = EnvoyOptions()
    await _validate(dropped_in(snippet(options, serves_cluster=True), options), tmp_path)
