"""A reading as Prometheus text, version 0.0.4.

https://prometheus.io/docs/instrumenting/exposition_formats/. Written here, because a thousand
endpoints take prometheus-client 29 ms under the interpreter lock that the requests need too,
and this 7 ms; that library's parser holds it to the format in the tests.
"""

from collections.abc import Iterator
from itertools import accumulate

from extproc.telemetry.counters import Distribution
from extproc.telemetry.definitions import Family
from extproc.telemetry.reading import Reading, Values


def prometheus_text(reading: Reading) -> bytes:
    """The text of `/metrics`; may run in any thread."""
    lines = [line for one in reading.families.items() for line in _lines(*one)]
    return ("\n".join(lines) + "\n").encode()


def _lines(family: Family, values: Values) -> Iterator[str]:
    yield f"# HELP {family.name} {_escaped(family.help)}"
    yield f"# TYPE {family.name} {family.kind.value}"
    for labels, value in values.items():
        pairs = [
            f'{name}="{_escaped(text, quotes=True)}"'
            for name, text in zip(family.labels, labels, strict=True)
        ]
        if isinstance(value, Distribution):
            yield from _histogram(family.name, pairs, value)
        else:
            yield f"{family.name}{_braced(pairs)} {value}"


def _histogram(name: str, pairs: list[str], value: Distribution) -> Iterator[str]:
    """Buckets count all values up to their bound."""
    bounds = (*map(str, value.bounds), "+Inf")
    for bound, count in zip(bounds, accumulate(value.counts), strict=True):
        bucket = [*pairs, f'le="{bound}"']
        yield f"{name}_bucket{_braced(bucket)} {count}"
    yield f"{name}_sum{_braced(pairs)} {value.total}"
    yield f"{name}_count{_braced(pairs)} {value.count}"


def _braced(pairs: list[str]) -> str:
    return f"{{{','.join(pairs)}}}" if pairs else ""


def _escaped(text: str, *, quotes: bool = False) -> str:
    if "\\" in text or "\n" in text:
        text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes and '"' in text else text
