"""Settings from everywhere: flags before the environment before the file before the defaults."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from extproc.settings.environment import read_environment, variable_of
from extproc.settings.keys import every_key, problem_of
from extproc.settings.model import Settings
from extproc.settings.problems import KeyPath, Problem, SettingsError, dotted, nearest
from extproc.settings.yaml_file import Document, read_yaml

CONFIG_VARIABLE: Final = "COXSWAIN_CONFIG"
"""Names the settings file where no flag does."""


def load_settings(
    config: Path | None = None,
    *,
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """Read and check all settings. Blocks on the disk when there is a file.

    `flags` maps dotted keys (`queue.timeout_s`) to values and overrides everything else; `config`
    is the YAML file, by default the one in COXSWAIN_CONFIG. Raises SettingsError with every
    problem.
    """
    environ = os.environ if environ is None else environ
    if config is None and environ.get(CONFIG_VARIABLE):
        config = Path(environ[CONFIG_VARIABLE])
    problems: list[Problem] = []
    from_flags, flag_problems = _read_flags(flags or {})
    problems += flag_problems
    from_environment, environment_problems = read_environment(Settings, environ)
    problems += environment_problems
    document = Document(name="")
    if config is not None:
        try:
            document = read_yaml(config)
        except SettingsError as error:
            problems += error.problems
    try:
        settings = Settings.model_validate(
            _merged(nested(from_flags), nested(from_environment), document.values)
        )
    except ValidationError as error:
        found = []
        for detail in error.errors(include_url=False):
            line, where = _origin(detail["loc"], from_flags, from_environment, document)
            found.append((line, problem_of(detail, Settings, where)))
        found.sort(key=lambda pair: pair[0])  # the order of the file
        raise SettingsError([*problems, *(problem for _, problem in found)]) from None
    if problems:
        raise SettingsError(problems)
    return settings


def _merged(*layers: dict[str, Any]) -> dict[str, Any]:
    """The keys of all `layers`; earlier layers override later ones, section by section."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            known = merged.setdefault(key, value)
            if known is not value and isinstance(known, dict) and isinstance(value, dict):
                merged[key] = _merged(known, value)
    return merged


def nested(flat: Mapping[tuple[str, ...], object]) -> dict[str, Any]:
    """`{("queue", "timeout_s"): 3}` as `{"queue": {"timeout_s": 3}}`."""
    tree: dict[str, Any] = {}
    for path, value in flat.items():
        branch = tree
        for part in path[:-1]:
            branch = branch.setdefault(part, {})
        branch[path[-1]] = value
    return tree


def _read_flags(
    flags: Mapping[str, object],
) -> tuple[dict[tuple[str, ...], object], list[Problem]]:
    known = {dotted(path): path for path in every_key(Settings)}
    values: dict[tuple[str, ...], object] = {}
    problems = []
    for key, value in flags.items():
        if key in known:
            values[known[key]] = value
            continue
        guess = nearest(key.lower(), known)
        hint = f"; did you mean {guess}?" if guess else ""
        problems.append(Problem(where="flag", key=key, message=f"unknown key{hint}"))
    return values, problems


def _origin(
    path: KeyPath,
    from_flags: Mapping[tuple[str, ...], object],
    from_environment: Mapping[tuple[str, ...], str],
    document: Document,
) -> tuple[int, str]:
    """Where the value at `path` comes from: the line in the file (0 outside of it), and the name of
    the place."""
    for length in range(1, len(path) + 1):
        key = tuple(str(part) for part in path[:length])
        if key in from_flags:
            return 0, "flag"
        if key in from_environment:
            return 0, variable_of(key)
    return document.line_of(path), document.place_of(path) or "settings"
