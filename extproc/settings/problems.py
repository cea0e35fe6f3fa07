"""Problems in the settings. No message quotes a value that may be secret."""

import datetime
import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

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
    return f"expected {expected}, got {kind_of(given)}"


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
