"""YAML by the parser and the printer in C: Envoy's configurations are long, and many tests change
one."""

from typing import Any

import yaml

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def load(text: str) -> Any:
    """What `yaml.safe_load` reads."""
    return yaml.load(text, Loader=LOADER)


def dump(content: Any) -> str:
    """What `yaml.safe_load` reads as `content` again."""
    return str(yaml.dump(content, Dumper=DUMPER))
