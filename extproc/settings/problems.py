"""Problems in the settings. No message quotes a value that may be secret."""

import datetime
import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic_core import ErrorDetails

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One error: its location, its key (may be empty), and what to do."""

    where: str
    key: str
    message: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.where, self.key, self.message) if part)


class SettingsError(Exception):
    """The settings are invalid; `problems` has every error."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


def dotted(path: KeyPath) -> str:
    """`("endpoints", 0, "name")` as people write it: `endpoints[0].name`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def nearest(wrong: str, right: Iterable[str]) -> str | None:
    """The most similar one of `right`; None if none is similar."""
    found = difflib.get_close_matches(wrong, list(right), n=1, cutoff=0.6)
    return found[0] if found else None


def kind_of(value: object) -> str:
    """The type of a value. Numbers and booleans are shown, texts never."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"the number {value}" if abs(value) < 10**15 else "a very large number"
    if isinstance(value, float):
        return f"the number {value:g}"
    kinds: tuple[tuple[type | tuple[type, ...], str], ...] = (
        (type(None), "nothing"),
        (str, "a text" if value else "an empty text"),
        (Mapping, "a section"),
        ((list, tuple), "a list"),
        ((datetime.date, datetime.datetime), "a date"),
    )
    for types, kind in kinds:
        if isinstance(value, types):
            return kind
    return "something else"


def describe(error: ErrorDetails) -> str:
    """The message for an error of pydantic."""
    context: dict[str, Any] = error.get("ctx", {})
    given = error["input"]
    match error["type"]:
        case "missing":
            return "this key must be given"
        case "int_type" | "int_parsing" | "int_from_float" | "int_parsing_size":
            expected = "a whole number"
        case "float_type" | "float_parsing" | "finite_number" | "number_wanted":
            expected = "a number"
        case "bool_type" | "bool_parsing":
            expected = "true or false"
        case "string_type":
            expected = "a text"
        case "tuple_type" | "list_type":
            expected = "a list"
        case "model_type" | "model_attributes_type" | "dict_type":
            expected = "a section with keys below it"
        case "greater_than":
            return f"expected more than {context['gt']:g}, got {_number(given)}"
        case "greater_than_equal":
            return f"expected at least {context['ge']:g}, got {_number(given)}"
        case "less_than_equal":
            return f"expected at most {context['le']:g}, got {_number(given)}"
        case "string_too_short":
            return "this must not be empty"
        case "string_too_long":
            return f"this is too long; {context['max_length']} characters are allowed"
        case "string_pattern_mismatch":
            return (
                "letters, digits, '.', '-' and '_' are allowed, with a letter or digit at each end"
            )
        case "literal_error":
            return _describe_choice(str(context["expected"]), given)
        case "value_error" if "error" in context:
            return str(context["error"])
        case _:
            return str(error["msg"])
    if isinstance(given, str) and expected in _NUMBERS and error["loc"]:
        return _without_unit(str(error["loc"][-1]), expected, given)
    return f"expected {expected}, got {kind_of(given)}"


_NUMBERS: Final = ("a whole number", "a number")
_QUANTITY: Final = re.compile(r"\s*(\d{1,12}(?:\.\d{1,6})?)\s*([A-Za-z]{1,12})\s*", re.ASCII)
_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_UNITS_BYTES: Final = {"kb": 1e3, "kib": 2.0**10, "mb": 1e6, "mib": 2.0**20, "gib": 2.0**30}
_UNITS: Final[Mapping[str, tuple[str, Mapping[str, float], float]]] = {
    "ms": ("milliseconds", _UNITS_S, 0.001),
    "s": ("seconds", _UNITS_S, 1.0),
    "bytes": ("bytes", _UNITS_BYTES, 1.0),
    "mb": ("MiB", {**_UNITS_BYTES, "gb": 1e9}, 2.0**20),
}
"""What a key counts by its last word: its name, the units that people write, and its own size."""


def _without_unit(key: str, expected: str, given: str) -> str:
    """The message for a number with a unit, as in `timeout_s: 2m`: the unit is in the key."""
    unit, found = _UNITS.get(key.rpartition("_")[2]), _QUANTITY.fullmatch(given)
    if unit is None or found is None:
        return f"expected {expected}, got {kind_of(given)}"
    name, sizes, own_size = unit
    text = f"expected {expected} of {name} without a unit"
    size = sizes.get(found[2].lower())
    if size is None:
        return text
    number = float(found[1]) * size / own_size
    return f"{text}; write {round(number) if number >= 1 else f'{number:g}'}"


def _number(given: object) -> str:
    """A number that is out of range; from the environment and from flags it is a text."""
    if isinstance(given, str):
        try:
            return kind_of(float(given))
        except ValueError:
            pass
    return kind_of(given)


def _describe_choice(expected: str, given: object) -> str:
    choices = [choice.strip("' ") for choice in expected.replace(" or ", ", ").split(", ")]
    text = f"expected one of {', '.join(choices)}"
    if not isinstance(given, str):
        return f"{text}, got {kind_of(given)}"
    guess = nearest(given, choices)
    return f"{text}; did you mean {guess}?" if guess else text
