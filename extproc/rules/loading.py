"""Loads rules by their names, `package.module:Name`, and tries each before a request depends on it.

A module in the folder of rules precedes an installed one. It is read again each time, so a reload
brings its changes; an installed package is imported once by Python, and its changes need a restart.
"""

import importlib
import importlib.util
import inspect
from collections.abc import Callable, Container, Iterable
from math import isfinite
from pathlib import Path
from types import ModuleType
from typing import Final, NamedTuple, cast

from extproc.rules import v1

METHODS: Final = {"filter": ("request", "endpoint"), "cost": ("request", "endpoint")} | {
    "admit": ("request",)
}
"""What a rule may define, with what it takes besides itself."""
MAX_TEXT_CHARS: Final = 500
"""The longest name or reason that a rule may answer."""


class RuleError(ValueError):
    """A rule that cannot be used; the text names it and says why."""


class LoadedRule(NamedTuple):
    """A rule with the methods that it has."""

    name: str
    filter: Callable[[v1.Request, v1.Endpoint], object] | None
    cost: Callable[[v1.Request, v1.Endpoint], object] | None
    admit: Callable[[v1.Request], object] | None


def load_rules(
    names: Iterable[str],
    folder: Path | None,
    examples: Iterable[v1.Endpoint] = (),
    objectives: Container[str] = (),
) -> list[LoadedRule]:
    """Load and try these rules, with an example request to each of the `examples`; `objectives`
    are those that `admit` may name. Runs their code, and blocks on the disk. Raises `RuleError` for
    the first that is wrong."""
    endpoints = tuple(examples) or (v1.Endpoint(name="example", address="192.0.2.1:8080"),)
    rules: list[LoadedRule] = []
    for name in names:
        rule = _made(name, _class_of(name, folder))
        if any(rule.name == other.name for other in rules):
            raise RuleError(f"{name}: another rule has the name {rule.name}, too; rename one")
        _try(name, rule, endpoints, objectives)
        rules.append(rule)
    return rules


def _class_of(name: str, folder: Path | None) -> type[v1.Rule]:
    module_name, _, class_name = name.partition(":")
    try:
        module = _from_folder(module_name, folder) or importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and module_name.startswith(str(error.name)):
            where = "" if folder is None else f" in {folder} or"
            raise RuleError(f"{name}: there is no module {module_name}{where} installed") from None
        raise RuleError(
            f"{name}: {module_name} cannot be imported: {text_of(error, says_all=True)}"
        ) from error
    found = getattr(module, class_name, None)
    if found is None:
        raise RuleError(f"{name}: {module_name} has no {class_name}")
    if not (isinstance(found, type) and issubclass(found, v1.Rule)):
        raise RuleError(f"{name}: it must be a subclass of extproc.rules.v1.Rule")
    return found


def _from_folder(module_name: str, folder: Path | None) -> ModuleType | None:
    if folder is None:
        return None
    file = folder.joinpath(*module_name.split(".")).with_suffix(".py")
    if not file.is_file():
        return None
    spec = importlib.util.spec_from_file_location(f"coxswain_rules.{module_name}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Not by its loader, which may take the cached code of a file that was changed within a second.
    exec(compile(file.read_bytes(), str(file), "exec"), module.__dict__)  # noqa: S102
    return module


def _made(name: str, rule_class: type[v1.Rule]) -> LoadedRule:
    for method, takes in METHODS.items():
        function = getattr(rule_class, method, None)
        if function is not None:
            _check_method(name, method, function, takes)
    try:
        rule = rule_class()
    except (Exception, SystemExit) as error:
        raise RuleError(f"{name}: it cannot be made: {text_of(error, says_all=True)}") from error
    found = {method: getattr(rule, method, None) for method in METHODS}
    if not any(found.values()):
        raise RuleError(f"{name}: it has none of the methods filter, cost and admit")
    return LoadedRule(rule_class.__name__, **found)


def _check_method(name: str, method: str, function: object, takes: tuple[str, ...]) -> None:
    wanted = f"{method}(self, {', '.join(takes)})"
    if not callable(function):
        raise RuleError(f"{name}: {method} must be a method: {wanted}")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise RuleError(f"{name}: {method} must be a plain method, without async and yield")
    try:
        inspect.signature(function).bind(None, *takes)
    except TypeError:
        raise RuleError(f"{name}: write {wanted}") from None


def _try(
    name: str, rule: LoadedRule, endpoints: tuple[v1.Endpoint, ...], objectives: Container[str]
) -> None:
    """Call each method as for an example request; raises `RuleError`."""
    request = v1.Request(id="example", path="/v1/chat/completions", prompt_tokens=100)
    method, about = "admit", "an example request"
    try:
        if rule.admit is not None:
            checked_admission(rule.admit(request), objectives)
        for endpoint in endpoints:
            about = f"an example request at {endpoint.name or endpoint.address}"
            method = "filter"
            if rule.filter is not None:
                checked_verdict(rule.filter(request, endpoint))
            method = "cost"
            if rule.cost is not None:
                checked_cost(rule.cost(request, endpoint))
    except (Exception, SystemExit) as error:
        text = text_of(error, says_all=True)  # it is about an example
        raise RuleError(f"{name}: {method} fails for {about}: {text}") from error


class AnswerError(TypeError):
    """A method of a rule returned what is none of its answers. The text holds no value, as that may
    hold what a request held, but for the name of an objective."""


def checked_verdict(answer: object) -> bool | str:
    """What a filter answered; raises `AnswerError`."""
    if isinstance(answer, bool):
        return answer
    if (reason := _cut(answer)) is not None:
        return reason
    raise AnswerError(f"filter must return True, False or a reason, not {_shown(answer)}")


def checked_cost(answer: object) -> float:
    """What a cost is, in seconds; raises `AnswerError`."""
    is_number = isinstance(answer, int | float) and not isinstance(answer, bool)
    if is_number and isfinite(seconds := cast("float", answer)) and seconds >= 0:
        return float(seconds)
    raise AnswerError(f"cost must return seconds, at least 0, not {_shown(answer)}")


Admission = v1.Objective | v1.Tenant | v1.Reject | None


def checked_admission(answer: object, objectives: Container[str]) -> Admission:
    """What `admit` answered; raises `AnswerError`."""
    if answer is None:
        return None
    if isinstance(answer, v1.Objective) and _is_text(answer.name):
        if answer.name in objectives:
            return answer
        raise AnswerError(f"admit named {answer.name!r}, which is no objective of the settings")
    if isinstance(answer, v1.Tenant) and _is_text(answer.name):
        return answer
    if isinstance(answer, v1.Reject) and (reason := _cut(answer.reason)) is not None:
        return v1.Reject(reason)
    wanted = "Objective(name), Tenant(name), Reject(reason) or None"
    raise AnswerError(f"admit must return {wanted}, not {_shown(answer)}")


def _cut(value: object) -> str | None:
    """The beginning of a text, as long as it may be; None for what is none, or blank."""
    return value[:MAX_TEXT_CHARS] if isinstance(value, str) and value.strip() else None


def _is_text(value: object) -> bool:
    return isinstance(value, str) and _cut(value) == value


def _shown(answer: object) -> str:
    match answer:
        case None:
            return "None"
        case str():
            return "an empty text"
        case bool() | int() | float():
            return repr(answer)
        case v1.Objective() | v1.Tenant() | v1.Reject():
            return f"a {type(answer).__name__} without a text of 1 to {MAX_TEXT_CHARS} characters"
    return f"a {type(answer).__name__}"


def text_of(error: BaseException, *, says_all: bool = False) -> str:
    """An error of a rule as one line: its type, and where it was raised. Its text may hold what a
    request held, so it is given only if `says_all`."""
    if isinstance(error, AnswerError):
        return str(error)
    name = type(error).__name__
    line = error.lineno if isinstance(error, SyntaxError) else None
    file, trace = "", error.__traceback__
    while trace is not None and not isinstance(error, SyntaxError):
        file, line = Path(trace.tb_frame.f_code.co_filename).name, trace.tb_lineno
        trace = trace.tb_next
    text = error.msg if isinstance(error, SyntaxError) else " ".join(str(error).split())
    where = ", ".join([*([file] if file else []), *([f"line {line}"] if line else [])])
    said = f": {text[:MAX_TEXT_CHARS]}" if says_all and text else ""
    return f"{name}{said} ({where})" if where else f"{name}{said}"
