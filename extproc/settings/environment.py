"""The `COXSWAIN_*` environment variables: `COXSWAIN_QUEUE__TIMEOUT_S` is `queue.timeout_s`.

Every variable with that prefix must be known, so that a misspelt one is reported. An empty one
counts as not set. The variables that Kubernetes adds for a Service named `coxswain` are ignored.
"""

import re
from collections.abc import Mapping
from typing import Final

from pydantic import BaseModel

from extproc.settings.keys import every_key
from extproc.settings.problems import Problem, nearest

PREFIX: Final = "COXSWAIN_"
DELIMITER: Final = "__"

RESERVED: Final = frozenset(
    {
        "COXSWAIN_CONFIG",
        "COXSWAIN_LLAMA_SERVER",
        "COXSWAIN_PICKER",
        "COXSWAIN_TOKEN",
        "COXSWAIN_TOKEN_FILE",
        "COXSWAIN_CA",
        "COXSWAIN_CERT",
        "COXSWAIN_KEY",
        "COXSWAIN_ADMIN_TOKEN",
        "COXSWAIN_AGENTS_TOKEN",
        "COXSWAIN_CLUSTER_TOKEN",
        "COXSWAIN_VALKEY_PASSWORD",
    }
)
"""Variables with a meaning of their own, read elsewhere."""

SERVICE_LINK: Final = re.compile(
    r"COXSWAIN_(?!.*__)(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)"
)


def variable_of(path: tuple[str, ...]) -> str:
    """The variable that sets the setting at `path`."""
    return PREFIX + DELIMITER.join(path).upper()


def read_environment(
    model: type[BaseModel], environ: Mapping[str, str]
) -> tuple[dict[tuple[str, ...], str], list[Problem]]:
    """The settings in `environ` by their path, and a problem for each unknown variable."""
    known = {variable_of(path): path for path in every_key(model)}
    values: dict[tuple[str, ...], str] = {}
    problems: list[Problem] = []
    for name, value in sorted(environ.items()):
        if not name.startswith(PREFIX) or name in RESERVED:
            continue
        path = known.get(name)
        if path is not None:
            if value.strip():
                values[path] = value
        elif SERVICE_LINK.fullmatch(name) is None:
            rest = [known_name.removeprefix(PREFIX) for known_name in (*known, *sorted(RESERVED))]
            guess = nearest(name.removeprefix(PREFIX).upper(), rest)
            hint = f"; did you mean {PREFIX}{guess}?" if guess else ""
            problems.append(Problem(where=name, key="", message=f"no setting has this name{hint}"))
    return values, problems
