"""llama-swap's configuration file, read as llama-swap itself reads it: its environment variables,
its YAML, its comments in commands, and its macros.

`${PORT}` stays as it is: the keeper chooses the ports, too.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import yaml

from extproc.keeper.command_line import without_comments
from extproc.settings.problems import Problem, SettingsError
from extproc.settings.yaml_file import parse_yaml

MACRO: Final = re.compile(r"\$\{([a-zA-Z0-9_-]+)\}")
VARIABLE: Final = re.compile(r"\$\{env\.([a-zA-Z_][a-zA-Z0-9_]*)\}")
_RUNTIME_MACROS: Final = frozenset({"PORT", "PID"})
_TAG: Final = "tag:yaml.org,2002:"


class _Loader(yaml.SafeLoader):
    """YAML 1.2's plain values, in which `on`, `no`, `22:30` and `2026-01-01` are texts; and merge
    keys (`<<`)."""

    def get_single_node(self) -> yaml.Node | None:
        root = super().get_single_node()
        if root is not None:
            self._merge(root, set())
        return root

    def _merge(self, node: yaml.Node, done: set[int]) -> None:
        """Replace the merge keys of all mappings by what they stand for."""
        if id(node) in done:
            return
        done.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            for item in node.value:
                self._merge(item, done)
        elif isinstance(node, yaml.MappingNode):
            if any(key.tag == f"{_TAG}merge" for key, _ in node.value):
                self.flatten_mapping(node)
                node.value = list({key.value: (key, value) for key, value in node.value}.values())
            for _, value in node.value:
                self._merge(value, done)


_REPLACED: Final = {
    f"{_TAG}bool": re.compile(r"true|True|TRUE|false|False|FALSE"),
    f"{_TAG}int": re.compile(r"[-+]?[0-9]+|0x[0-9a-fA-F]+"),
}
_Loader.yaml_implicit_resolvers = {
    first: [
        (tag, re.compile(rf"(?:{_REPLACED[tag].pattern})$") if tag in _REPLACED else pattern)
        for tag, pattern in resolvers
        if tag != f"{_TAG}timestamp"
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_llama_swap(
    content: bytes, name: str, environment: Mapping[str, str]
) -> tuple[dict[str, Any], frozenset[str]]:
    """The values of the file without its macros, and the variables of `environment` that were
    written into them. What has no value stays, as `${NAME}`. Raises `SettingsError`."""
    used: set[str] = set()

    def of_environment(found: re.Match[str]) -> str:
        value = environment.get(found[1])
        if value is None:
            return found[0]
        if any(char in value for char in "\n\r\0"):
            message = f"the environment variable {found[1]} has several lines"
            raise SettingsError([Problem(where=name, key="", message=message)])
        used.add(found[1])
        return value.replace("\\", "\\\\").replace('"', '\\"')

    # In the text of the file, as `[${env.NAME}]` is no YAML.
    text = VARIABLE.sub(of_environment, content.decode("utf-8-sig", "surrogateescape"))
    encoded = text.encode("utf-8", "surrogateescape")
    values = parse_yaml(encoded, name, _Loader).values
    macros = _macros(values.pop("macros", None))
    models = values.pop("models", None)
    values = {key: _expanded(value, macros) for key, value in values.items()}
    if isinstance(models, Mapping):
        models = {
            str(model): _model(str(model), entry, macros) if isinstance(entry, Mapping) else entry
            for model, entry in models.items()
        }
    return {**values, "models": models}, frozenset(used)


def unresolved(value: object) -> str:
    """What is wrong with a value in which a macro or a variable has none; empty if none is."""
    text = str(value)
    if (variable := VARIABLE.search(text)) is not None:
        return f"the environment variable {variable[1]} is not set"
    names = (name for name in MACRO.findall(text) if name not in _RUNTIME_MACROS)
    return next((f"${{{name}}} is no macro" for name in names), "")


def _model(name: str, entry: Mapping[str, Any], macros: dict[str, Any]) -> dict[str, Any]:
    """A model's values. Comments go before the macros in them become commands."""
    own = {"MODEL_ID": name, **macros, **_macros(entry.get("macros"))}
    values = {
        key: without_comments(value) if key == "cmd" and isinstance(value, str) else value
        for key, value in entry.items()
        if key != "macros"
    }
    found: dict[str, Any] = _expanded(values, own)
    return found


def _macros(found: object) -> dict[str, Any]:
    return dict(found) if isinstance(found, Mapping) else {}


def _expanded(value: Any, macros: dict[str, Any]) -> Any:
    """The value with its macros. One may contain those that were defined before it; a text that is
    one macro alone becomes its value, of whatever type."""
    if isinstance(value, Mapping):
        return {key: _expanded(each, macros) for key, each in value.items()}
    if isinstance(value, list):
        return [_expanded(each, macros) for each in value]
    for name in reversed(macros):
        if not isinstance(value, str):
            break
        slug = f"${{{name}}}"
        value = macros[name] if value == slug else value.replace(slug, _text_of(macros[name]))
    return value


def _text_of(value: Any) -> str:
    """A macro's value inside of a text."""
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)
