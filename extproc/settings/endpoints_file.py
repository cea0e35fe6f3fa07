"""The endpoints file: YAML or JSON with one key, `endpoints`, checked like the settings."""

import json
from typing import Annotated

from pydantic import ValidationError

from extproc.settings.endpoint_section import EndpointSettings
from extproc.settings.keys import problem_of
from extproc.settings.problems import Problem, SettingsError
from extproc.settings.section import Section
from extproc.settings.values import LIST
from extproc.settings.yaml_file import parse_yaml


class EndpointsFile(Section):
    """The content of the file. The key is required, so a truncated file is not an empty fleet."""

    endpoints: Annotated[tuple[EndpointSettings, ...], LIST]


def parse_endpoints(content: bytes, name: str) -> tuple[EndpointSettings, ...]:
    """The endpoints in `content`. Problems are reported under `name`.

    Raises SettingsError with every mistake and its line.
    """
    document = parse_yaml(_without_tabs(content), name)
    if "endpoints" not in document.values:
        raise SettingsError(
            [Problem(where=name, key="endpoints", message="this key is required; use [] for none")]
        )
    try:
        return EndpointsFile.model_validate(document.values).endpoints
    except ValidationError as error:
        raise SettingsError(
            problem_of(detail, EndpointsFile, document.place_of(detail["loc"]))
            for detail in error.errors(include_url=False)
        ) from None


def _without_tabs(content: bytes) -> bytes:
    """JSON is YAML except for tabs between its values; values contain none."""
    if not content.lstrip().startswith(b"{"):
        return content
    try:
        json.loads(content)
    except (ValueError, RecursionError):  # YAML's reader reports what is wrong with it
        return content
    return content.replace(b"\t", b" ")
