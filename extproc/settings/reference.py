"""The reference of the settings, as JSON schema and as Markdown.

Pydantic can keep the docstrings below settings with the fields, and parses the source of each
section for it whenever a process starts. Only the reference needs them, so it reads them itself.
"""

import ast
import inspect
import json
import textwrap
from collections.abc import Iterator
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
    "Flags override environment variables, which override the file (`--config "
    "coxswain.yaml` or `COXSWAIN_CONFIG`), which overrides the defaults. `coxswain config check` "
    "reports every mistake with its line or its setting, including those that otherwise show only "
    "at a start, and `coxswain config show` prints the settings in effect. `coxswain config "
    "reload` applies those with a *yes* in the column *reload* while requests run; all others need "
    "a restart."
)


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
    """`docs/settings.md`: every setting with its default, variable and description."""
    lines = [
        "# Settings",
        INTRODUCTION,
        "",
        *_table(Settings, ()),
    ]
    for name, field in Settings.model_fields.items():
        section, is_list = model_of(field)
        if section is not None:
            title = f"Each entry of `{name}`" if is_list else f"`{name}`"
            lines += ["", f"## {title}", *_text(section), ""]
            lines += _table(section, None if is_list else (name,))
            for below, inner in section.model_fields.items():
                item, is_list = model_of(inner)
                if item is not None and is_list:
                    lines += ["", f"### Each entry of `{name}.{below}`", *_text(item), ""]
                    lines += _table(item, None)
    return "\n".join(lines) + "\n"


def _text(section: type[BaseModel]) -> Iterator[str]:
    """The description of a section."""
    yield " ".join((section.__doc__ or "").split())


def _table(model: type[BaseModel], path: tuple[str, ...] | None) -> Iterator[str]:
    """One row for each setting of `model`; `path` is None where no variable can set it."""
    only_set = () if path is None else ("variable", "reload")
    columns = ("key", "default", *only_set, "meaning")
    yield _row(*columns)
    yield f"|{'---|' * len(columns)}"
    texts = descriptions_of(model)
    for name, field in _fields(model, is_entry=path is None):
        section, is_list = model_of(field)
        if section is None or is_list:
            cells = [f"`{name}`", _default(field)]
            if path is not None:
                cells += [f"`{variable_of((*path, name))}`", _reload(field)]
            yield _row(*cells, texts.get(name, ""))
        elif path is None:  # sections that a variable can set have headings of their own
            yield from _rows_below(section, name)


def _rows_below(section: type[BaseModel], name: str) -> Iterator[str]:
    """One row for each setting of a section in an entry."""
    for below, inner in section.model_fields.items():
        deeper, _ = model_of(inner)
        if deeper is not None:
            yield from _rows_below(deeper, f"{name}.{below}")
        else:
            text = descriptions_of(section).get(below, "")
            yield _row(f"`{name}.{below}`", _default(inner), text)


def _fields(model: type[BaseModel], *, is_entry: bool) -> list[tuple[str, FieldInfo]]:
    """In their order; what an entry of a list says itself precedes what it shares with others."""
    own = model.__annotations__ if is_entry else model.model_fields
    return sorted(model.model_fields.items(), key=lambda named: named[0] not in own)


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
