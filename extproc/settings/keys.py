"""Finds the known keys, and the nearest one to an unknown key."""

from collections.abc import Iterator
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from extproc.settings.problems import KeyPath, Problem, describe, dotted, nearest
from extproc.settings.values import RELOADABLE


def model_of(field: FieldInfo) -> tuple[type[BaseModel] | None, bool]:
    """The section type of a field, if it is one, and whether the field is a list of sections."""
    annotation: Any = field.annotation
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    for argument in get_args(annotation):
        if isinstance(argument, type) and issubclass(argument, BaseModel):
            return argument, True
    return None, False


def every_key(model: type[BaseModel]) -> Iterator[tuple[str, ...]]:
    """The path of every setting that is not a section; a list of sections counts as one setting."""
    return (path for path, _ in _every_field(model))


def reloadable_keys(model: type[BaseModel]) -> Iterator[tuple[str, ...]]:
    """The path of every setting that a reload applies."""
    return (path for path, field in _every_field(model) if RELOADABLE in field.metadata)


def _every_field(
    model: type[BaseModel], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], FieldInfo]]:
    for name, field in model.model_fields.items():
        section, is_list = model_of(field)
        if section is None or is_list:
            yield (*path, name), field
        else:
            yield from _every_field(section, (*path, name))


def keys_at(model: type[BaseModel], path: KeyPath) -> tuple[str, ...]:
    """The keys directly below `path`; none if `path` does not exist."""
    here: type[BaseModel] | None = model
    is_name = False  # the next part is a name that the operator chose
    for part in path:
        if isinstance(part, int) or is_name:
            is_name = False
            continue
        if here is None or part not in here.model_fields:
            return ()
        field = here.model_fields[part]
        here, _ = model_of(field)
        is_name = here is not None and get_origin(field.annotation) is dict
    return tuple(here.model_fields) if here is not None else ()


def advise(model: type[BaseModel], path: KeyPath) -> str:
    """What to write instead of the unknown key at `path`."""
    wrong = str(path[-1])
    siblings = keys_at(model, path[:-1])
    guess = nearest(wrong.lower(), siblings)
    if guess is not None:
        return f"unknown key; did you mean {dotted((*path[:-1], guess))}?"
    elsewhere = {key[-1]: key for key in every_key(model)}
    guess = nearest(wrong.lower(), elsewhere)
    if guess is not None:
        return f"unknown key; did you mean {dotted(elsewhere[guess])}?"
    return f"unknown key; known here: {', '.join(siblings)}" if siblings else "unknown key"


def problem_of(error: ErrorDetails, model: type[BaseModel], where: str) -> Problem:
    """An error of pydantic in a `model`, as a problem at `where`."""
    path = error["loc"]
    is_unknown = error["type"] == "extra_forbidden"
    message = advise(model, path) if is_unknown else describe(error)
    return Problem(where=where, key=dotted(path), message=message)
