"""The reference of the settings, as JSON schema and as Markdown.

Pydantic can keep the docstrings below settings with the fields, and parses the source of each
section for it whenever a process starts. Only the reference needs them, so it reads them itself.
"""

import ast
import inspect
import json
import textwrap
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise
from typing import Any, Final

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from extproc.settings.environment import variable_of
from extproc.settings.keys import model_of
from extproc.settings.model import Settings
from extproc.settings.values import RELOADABLE

INTRODUCTION: Final = (
    "Flags override environment variables, which override the file (`--config coxswain.yaml` or "
    "`COXSWAIN_CONFIG`), which overrides the defaults. Each setting in a table with the column "
    f"*reload* has a variable, as `queue.timeout_s` has `{variable_of(('queue', 'timeout_s'))}`: a "
    "list is `a,b` there, or JSON, a mapping is JSON. `coxswain config check` reports every "
    "mistake, `coxswain config show` prints the settings in effect. `coxswain config reload` "
    "applies those with *yes* while requests run; all others need a restart."
)

_Shown = dict[type[BaseModel], str]
"""The sections whose settings the page has already, and where."""


def settings_schema() -> dict[str, Any]:
    """The JSON schema of a settings file; an endpoint may also be a plain `host:port`."""
    schema = _unwrapped(Settings.model_json_schema())
    _describe(Settings, schema, schema["$defs"])
    endpoint = {"$ref": "#/$defs/EndpointSettings"}
    schema["properties"]["endpoints"]["items"] = {"anyOf": [{"type": "string"}, endpoint]}
    name = {"$ref": "#/$defs/DnsSettings"}
    discovery = schema["$defs"]["DiscoverySettings"]["properties"]
    discovery["dns"]["items"] = {"anyOf": [{"type": "string"}, name]}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _describe(section: type[BaseModel], schema: dict[str, Any], known: dict[str, Any]) -> None:
    """Put the settings' descriptions into the schema of a section, and of those below it."""
    for name, text in descriptions_of(section).items():
        schema["properties"][name]["description"] = text
    for field in section.model_fields.values():
        below, _ = model_of(field)
        if below is not None:
            _describe(below, known[below.__name__], known)


def _unwrapped(schema: Any) -> Any:
    """Descriptions of sections in one line, which in the source are wrapped docstrings."""
    if isinstance(schema, dict):
        return {
            key: " ".join(value.split())
            if key == "description" and isinstance(value, str)
            else _unwrapped(value)
            for key, value in schema.items()
        }
    return [_unwrapped(value) for value in schema] if isinstance(schema, list) else schema


def settings_reference() -> str:
    """`docs/settings.md`: every setting with its default and description.

    What several entries have in common is described at the first of them.
    """
    lines = ["# Settings", INTRODUCTION, "", *_table(Settings)]
    shown: _Shown = {}
    for name, field in Settings.model_fields.items():
        section, is_list = model_of(field)
        if section is None:
            continue
        if is_list:
            lines += ["", f"## Each entry of `{name}`", *_entry(section, name, shown)]
        else:
            lines += ["", f"## `{name}`", _text(section), "", *_table(section)]
        for below, inner in section.model_fields.items():
            item, is_list = model_of(inner)
            if item is not None and is_list:
                path = f"{name}.{below}"
                lines += ["", f"### Each entry of `{path}`", *_entry(item, path, shown)]
    return "\n".join(lines) + "\n"


def _text(section: type[BaseModel]) -> str:
    """The description of a section, in one line."""
    return " ".join((section.__doc__ or "").split())


def _table(section: type[BaseModel]) -> Iterator[str]:
    """One row for each setting of a section that variables can set."""
    yield from _head("key", "default", "reload", "meaning")
    texts = descriptions_of(section)
    for name, field in section.model_fields.items():
        below, is_list = model_of(field)
        if below is None or is_list:
            yield _row(f"`{name}`", _default(field), _reload(field), texts.get(name, ""))


def _entry(section: type[BaseModel], path: str, shown: _Shown) -> Iterator[str]:
    """The section of the entries at `path`: its text, and one row for each setting."""
    if section in shown:
        yield f"As each entry of `{shown[section]}`."
        return
    shown[section] = path
    yield from (_text(section), "", *_head("key", "default", "meaning"))
    (base,) = section.__bases__
    shared = [name for name in section.model_fields if name not in section.__annotations__]
    own = [name for name in section.model_fields if name not in shared]
    if base in shown:
        yield from _rows(section, own)
        names = ", ".join(f"`{name}`" for name in shared)
        yield from ("", f"Further keys, as in each entry of `{shown[base]}`: {names}.")
    else:
        yield from _rows(section, own + shared)
        if shared:
            shown[base] = path


def _rows(section: type[BaseModel], names: Iterable[str], before: str = "") -> Iterator[str]:
    """One row for each of some settings of an entry, which have the path `before` their names."""
    texts = descriptions_of(section)
    for name in names:
        field = section.model_fields[name]
        below, is_list = model_of(field)
        if below is None or is_list:
            yield _row(f"`{before}{name}`", _default(field), texts.get(name, ""))
        else:
            yield from _rows(below, below.model_fields, f"{before}{name}.")


def _head(*columns: str) -> tuple[str, str]:
    return _row(*columns), f"|{'---|' * len(columns)}"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _reload(field: FieldInfo) -> str:
    return "yes" if RELOADABLE in field.metadata else ""


def _default(field: FieldInfo) -> str:
    if field.default is PydanticUndefined:
        return "must be given"
    if field.default is None:
        return "none"
    value = list(field.default) if isinstance(field.default, tuple) else field.default
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


@cache
def descriptions_of(section: type[BaseModel]) -> dict[str, str]:
    """The docstring of each setting that has one, in one line, by the setting's name.

    Raises `OSError` where the source of the section is not there.
    """
    found: dict[str, str] = {}
    for base in reversed(section.__mro__):
        if issubclass(base, BaseModel) and base.__module__.startswith("extproc."):
            found |= _of_class(base)
    return found


def _of_class(section: type[BaseModel]) -> dict[str, str]:
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(section))).body
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for setting, below in pairwise(tree.body):
        if (
            isinstance(setting, ast.AnnAssign)
            and isinstance(setting.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
            and isinstance(below.value.value, str)
        ):
            found[setting.target.id] = " ".join(below.value.value.split())
    return found
