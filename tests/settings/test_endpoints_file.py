"""The endpoints file: YAML or JSON, and every mistake with its line."""

from __future__ import annotations

import pytest

from extproc.settings import SettingsError, parse_endpoints


def problems(content: bytes) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        parse_endpoints(content, "fleet.yaml")
    return [str(problem) for problem in caught.value.problems]


def test_short_and_long_forms() -> None:
    found = parse_endpoints(
        b"endpoints:\n- 10.0.0.1:8080\n- address: gpu-2:8080\n  slots: 4\n  api_key_env: KEY\n", "f"
    )
    assert [endpoint.address for endpoint in found] == ["10.0.0.1:8080", "gpu-2:8080"]
    assert found[1].slots == 4 and found[1].api_key_env == "KEY"


def test_json_with_tabs() -> None:
    found = parse_endpoints(b'{\n\t"endpoints":\t["10.0.0.1:8080",\n\t\t"[::1]:1"]\n}\n', "f")
    assert [endpoint.address for endpoint in found] == ["10.0.0.1:8080", "[::1]:1"]


def test_an_empty_fleet_must_be_said() -> None:
    assert parse_endpoints(b"endpoints: []", "f") == ()
    for content in (b"", b"# endpoints:\n", b"{}"):
        assert problems(content) == ["fleet.yaml: endpoints: this key is required; use [] for none"]


def test_every_mistake_is_reported_with_its_line() -> None:
    assert problems(b"endpoints:\n- 10.0.0.1\n- address: gpu:1\n  slot: 4\n") == [
        "fleet.yaml:2: endpoints[0].address: there is no port; write host:port",
        "fleet.yaml:4: endpoints[1].slot: unknown key; did you mean endpoints[1].slots?",
    ]
    assert problems(b"endpoints: [10.0.0.1:1\n")[0].startswith("fleet.yaml:2:1: this is not YAML")


def test_json_that_is_nested_too_deeply() -> None:
    assert problems(b'{"a":' * 100_000) == ["fleet.yaml: this is nested too deeply"]


@pytest.mark.parametrize("key", ["api_key_file", "ca_file"])
def test_names_that_no_file_can_have(key: str) -> None:
    """Told with their line, before anybody tries to open such a file."""
    server = f"endpoints: [{{address: https://gpu:1, {key}: "
    where = f"fleet.yaml:1: endpoints[0].{key}: "
    assert problems(f"{server}~nobody-of-this-name/key}}]".encode()) == [
        f"{where}the home folder (~) is unknown; write the absolute path"
    ]
    assert problems(f'{server}"key\\0"}}]'.encode()) == [
        f"{where}a file name must not contain a zero byte"
    ]
