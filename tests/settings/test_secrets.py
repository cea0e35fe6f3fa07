"""Claims about extproc/settings/secrets.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from extproc.settings import EndpointSettings, Settings, SettingsError, read_api_key, read_api_keys


def test_no_key_wanted() -> None:
    """An endpoint without a key source has no key."""
    assert read_api_key(EndpointSettings(address="a:1"), {}) is None


def test_key_from_environment_and_file(tmp_path: Path) -> None:
    """A key is read from where the settings say, without the line end of its file."""
    file = tmp_path / "key"
    file.write_text("  from-file\n", encoding="utf-8")
    settings = Settings(
        endpoints=(
            EndpointSettings(address="a:1", api_key_env="KEY"),
            EndpointSettings(address="b:1", api_key_file=str(file)),
            EndpointSettings(address="c:1"),
        )
    )
    keys = read_api_keys(settings.endpoints, {"KEY": "from-environment"})
    assert keys == {"a:1": "from-environment", "b:1": "from-file"}


@pytest.mark.parametrize("value", ["", " ", "two\nlines", "schlüssel"])
def test_unusable_keys(value: str) -> None:
    """A key that is missing, or that no header can carry, is told without being shown."""
    endpoint = EndpointSettings(address="a:1", api_key_env="KEY")
    with pytest.raises(SettingsError) as caught:
        read_api_key(endpoint, {"KEY": value})
    assert "KEY" in str(caught.value)
    assert not value.strip() or value.strip() not in str(caught.value)


def test_all_missing_keys_are_reported_at_once(tmp_path: Path) -> None:
    """Each endpoint whose key is missing is named."""
    settings = Settings(
        endpoints=(
            EndpointSettings(address="a:1", api_key_env="KEY"),
            EndpointSettings(address="b:1", api_key_file=str(tmp_path / "missing")),
        )
    )
    with pytest.raises(SettingsError) as caught:
        read_api_keys(settings.endpoints, {})
    assert [problem.where for problem in caught.value.problems] == ["a:1", "b:1"]
