"""Claims about extproc/envoy_config/options.py."""

from __future__ import annotations

from typing import Any

import pytest

from extproc.envoy_config.options import EnvoyOptions, HostPort, Mode, OptionsError, TlsProfile


def test_a_place_is_read_with_its_brackets_taken_off() -> None:
    assert HostPort.parse("[::1]:9002") == HostPort("::1", 9002)
    assert HostPort.parse("picker.internal:9002") == HostPort("picker.internal", 9002)


@pytest.mark.parametrize("text", ["", "host", "host:", ":80", "host:x", "host:65536"])
def test_what_is_no_place_says_so(text: str) -> None:
    with pytest.raises(OptionsError, match="port"):
        HostPort.parse(text)


@pytest.mark.parametrize(
    "choices", [{"injects_keys": True}, {"tls_profiles": (TlsProfile(name="a"),)}]
)
def test_choices_that_contradict_each_other_are_rejected(choices: dict[str, Any]) -> None:
    with pytest.raises(OptionsError):
        EnvoyOptions(mode=Mode.ORIGINAL_DST, **choices)
