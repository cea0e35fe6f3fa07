"""Envoy messages as YAML text: snake case, `@type` inlined, zero where zero was said."""

from collections.abc import Mapping, Sequence
from typing import Any

import betterproto2
import yaml


class _Dumper(yaml.SafeDumper):
    """Block style, list items indented below their key, as Envoy's own examples are."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, indentless and flow)


def tree(message: betterproto2.Message) -> dict[str, Any]:
    """`message` as plain dicts, lists and scalars, by Protobuf's JSON rules."""
    content: dict[str, Any] = _respelled(message.to_dict(casing=betterproto2.Casing.SNAKE))
    _spell_out_zero(content)
    return content


def _respelled(content: Any) -> Any:
    """The way back from JSON's spelling splits `5xx`, which Envoy then does not know."""
    if isinstance(content, list):
        return [_respelled(item) for item in content]
    if isinstance(content, dict):
        return {key.replace("_5_xx", "_5xx"): _respelled(item) for key, item in content.items()}
    return content


def _spell_out_zero(content: Any) -> None:
    """A threshold of zero percent is printed as `{}`, which people read as "not set"."""
    if isinstance(content, list):
        for item in content:
            _spell_out_zero(item)
    elif isinstance(content, dict):
        for name, item in content.items():
            if name == "healthy_panic_threshold" and item == {}:
                content[name] = {"value": 0.0}
            else:
                _spell_out_zero(item)


def render(content: Mapping[str, Any] | Sequence[Any]) -> str:
    """`content` as a YAML document, in the order given."""
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False, width=100, allow_unicode=True)


def comment(text: str) -> str:
    """`text` with a hash before each line."""
    return "".join(f"# {line}".rstrip() + "\n" for line in text.strip().splitlines())
