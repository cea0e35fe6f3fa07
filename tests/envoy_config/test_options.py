"""Claims about extproc/envoy_config/options.py."""

from __future__ import annotations

from typing import Any

import pytest

from extproc.envoy_config.options import EnvoyOptions, HostPort, Mode, OptionsError


def test_a_place_is_read_with_its_brackets_taken_off() -> None:
    assert HostPort.parse("[::1]:9002") == HostPort("::1", 9002)
    assert HostPort.parse("picker.internal:9002") == HostPort("picker.internal", 9002)


@pytest.mark.parametrize("text", ["", "host", "host:", ":80", "host:x", "host:65536"])
def test_what_is_no_place_says_so(text: str) -> None:
    with pytest.raises(OptionsError, match="port"):
        HostPort.parse(text)


@pytest.mark.parametrize(
    "choices",
    [
        {"llama_cluster": "same", "picker_cluster": "same"},
        {"message_timeout_s": 0.0},
        {"message_timeout_s": 2.0, "max_message_timeout_s": 1.0},
        {"mode": Mode.ORIGINAL_DST, "host_rewrite": True},
        {"connect_timeout_s": 0.0},
        {"retries": -1},
        {"trace_percent": 101.0},
    ],
)
def test_choices_that_contradict_each_other_are_rejected(choices: dict[str, Any]) -> None:
    with pytest.raises(OptionsError):
        EnvoyOptions(**choices)
