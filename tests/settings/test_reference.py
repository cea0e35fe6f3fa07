"""Claims about extproc/settings/reference.py: what a docstring below a setting says."""

from __future__ import annotations

from extproc.settings import settings_schema
from extproc.settings.reference import descriptions_of
from extproc.settings.routing_section import QueueSettings
from extproc.settings.section import Section


def test_a_docstring_belongs_to_the_setting_above_it() -> None:
    """One that is wrapped is one line, and what has none is not there."""
    described = descriptions_of(QueueSettings)
    assert described.keys() <= QueueSettings.model_fields.keys()
    assert all("\n" not in text and "  " not in text for text in described.values())


def test_settings_of_a_base_are_described_too() -> None:
    class Below(QueueSettings):
        """A section of another place, whose own source is not read."""

    assert descriptions_of(Below) == descriptions_of(QueueSettings) != {}
    assert descriptions_of(Section) == {}


def test_the_schema_has_them_at_every_depth() -> None:
    schema = settings_schema()
    for name, text in descriptions_of(QueueSettings).items():
        assert schema["$defs"]["QueueSettings"]["properties"][name]["description"] == text
    assert schema["properties"]["fronts"]["description"].startswith("The number of front")
