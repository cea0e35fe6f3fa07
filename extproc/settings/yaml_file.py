"""Reads a YAML file as plain values, with the line of every key.

Limits: one document, 1 MiB, no duplicate keys, no anchors that are recursive or multiply; keys are
texts.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from extproc.security.reading import at_once
from extproc.settings.problems import KeyPath, Problem, SettingsError, dotted

MAX_FILE_BYTES: Final = 1024 * 1024
MAX_VALUES: Final = 100_000
MAX_DEPTH: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The values of a file, and the line (from 1) of each path."""

    name: str
    values: dict[str, Any] = field(default_factory=dict)
    lines: dict[KeyPath, int] = field(default_factory=dict)

    def line_of(self, path: KeyPath) -> int:
        """The line of `path` or of its nearest parent with a line; else 0."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.lines:
                return self.lines[path[:length]]
        return 0

    def place_of(self, path: KeyPath) -> str:
        """The name of the file, and the line of `path` if there is one."""
        line = self.line_of(path)
        return f"{self.name}:{line}" if line else self.name


def read_yaml(file: Path) -> Document:
    """Read `file`. Blocks on the disk; raises SettingsError for an invalid file."""
    return parse_yaml(read_content(file), str(file))


def read_content(file: Path) -> bytes:
    """The content of `file`. Blocks on the disk; raises SettingsError if it cannot be read or is
    too large."""
    name = str(file)
    try:
        with open(file, "rb", opener=at_once) as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        reason = (error.strerror or "cannot be read").lower()
        raise _error(name, f"the settings file cannot be read: {reason}") from None
    if len(content) > MAX_FILE_BYTES:
        raise _error(name, "the settings file is larger than 1 MiB")
    if not content.strip() and file != Path(os.devnull):
        raise _error(name, "the settings file is empty; if that is meant, write a comment into it")
    return content


def parse_yaml(
    content: bytes, name: str, dialect: type[yaml.SafeLoader] = yaml.SafeLoader
) -> Document:
    """The document in `content`; problems are reported under `name`. `dialect` says what plain
    values mean."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _error(f"{name}:{line}", "this is not UTF-8 text") from None
    loader: yaml.SafeLoader | None = None
    try:
        loader = dialect(text)
        root = loader.get_single_node()
        if root is None or (isinstance(root, yaml.ScalarNode) and root.tag.endswith(":null")):
            return Document(name=name)
        if not isinstance(root, yaml.MappingNode):
            raise _error(f"{name}:{_line(root)}", "a settings file contains `key: value` lines")
        return _Walk(name, loader).document(root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark is not None else name
        raise _error(place, f"this is not YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError, OverflowError):  # as of "\\U00110000", which is none
        raise _error(name, "this is not YAML: it contains characters that YAML forbids") from None
    except RecursionError:
        raise _error(name, "this is nested too deeply") from None
    finally:
        if loader is not None:
            loader.dispose()


class _Walk:
    """A traversal of the nodes of a file, with its limits."""

    def __init__(self, name: str, loader: yaml.SafeLoader) -> None:
        self._name = name
        self._loader = loader
        self._lines: dict[KeyPath, int] = {}
        self._problems: list[Problem] = []
        self._values = 0

    def document(self, root: yaml.MappingNode) -> Document:
        values = self._mapping(root, ())
        if self._problems:
            raise SettingsError(self._problems)
        return Document(name=self._name, values=values, lines=self._lines)

    def _value(self, node: yaml.Node, path: KeyPath) -> Any:
        self._values += 1
        if self._values > MAX_VALUES or len(path) > MAX_DEPTH:
            raise _error(f"{self._name}:{_line(node)}", "this is nested too deeply or repeats")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            items = []
            for index, item in enumerate(node.value):
                self._lines[(*path, index)] = _line(item)
                items.append(self._value(item, (*path, index)))
            return items
        try:
            return self._loader.construct_object(node)
        except (ValueError, LookupError, AttributeError):
            # 2026-99-99 looks like a date to YAML and is none; `!!bool maybe` says it is what it
            # is not, and YAML's own reader does not expect that.
            return str(node.value)

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise _error(f"{self._name}:{_line(key_node)}", "a key must be a plain word")
            key = str(key_node.value)
            here = (*path, key)
            if key in values:
                first = self._lines[here]
                self._problems.append(
                    Problem(
                        where=f"{self._name}:{_line(key_node)}",
                        key=dotted(here),
                        message=f"this key is duplicated; the first one is on line {first}",
                    )
                )
                continue
            self._lines[here] = _line(key_node)
            values[key] = self._value(value_node, here)
        return values


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _error(where: str, message: str) -> SettingsError:
    return SettingsError([Problem(where=where, key="", message=message)])
