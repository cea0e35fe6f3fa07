"""Translates llama-swap's configuration into a keeper's file. Pure, except for the sizes of model
files.

What has no counterpart is named in `notes`, so that nothing is lost in silence.
"""

import itertools
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from extproc.keeper.command_line import split_command
from extproc.keeper.launchers import launcher_of
from extproc.keeper.llama_swap_file import read_llama_swap, unresolved
from extproc.keeper.models_file import PORT_MACRO
from extproc.settings.problems import Problem, SettingsError

HEADROOM: Final = 1.2
"""What a model takes beyond its file: caches and buffers. A first guess, to be corrected."""
MIB: Final = 1024 * 1024
LEAST_TIMEOUT_S: Final = 15
"""llama-swap's own."""
GLOBAL_TTL: Final = -1
BY_ID: Final = "setParamsByID"
DEFAULT_GROUP: Final = "(default)"

STOPPED: Final = "a server gets SIGTERM when its last request has ended, and SIGKILL after 15 s"
NO_COUNTERPART: Final = {
    "name": "clients see the model's name and aliases",
    "description": "clients see the model's name and aliases",
    "metadata": "there is no metadata of models",
    "unlisted": "every model is listed",
    "useModelName": "llama-server ignores the name in requests; for other servers use an alias",
    "filters": "requests are passed on unchanged",
    "concurrencyLimit": "`slots` limits the requests, and Coxswain queues the rest",
    "sendLoadingState": "clients see the state at GET /queue/{id}",
    "timeouts": "see envoy.* and queue.timeout_s in the picker's settings",
    "capabilities": "there are no capabilities of models",
    "compat": "WebSockets are passed to no server",
    "unloadTimeout": STOPPED,
}
GLOBAL_NOTES: Final = {
    "apiKeys": "let the picker check clients' keys: the `clients` section of its settings",
    "peers": "list other machines' servers under `endpoints`, or run a keeper there",
    "selectors": "give several models one name: `models` in the picker's settings",
    "profiles": "change `models` in the picker's settings, and reload them",
    "upstream": "a path without a model is sent to any server",
    "unloadTimeout": STOPPED,
    "ui": "the dashboard has no sessions",
    "sendLoadingState": NO_COUNTERPART["sendLoadingState"],
    "includeAliasesInList": "aliases are always listed",
    "captureBuffer": "requests are not recorded",
    "performance": "see the picker's metrics",
    "store": "nothing is stored",
}
IGNORED: Final = frozenset(
    {
        *("logLevel", "logTimeFormat", "logToStdout", "logHTTPRequests", "logRequests"),
        "metricsMaxInMemory",
    }
)
"""About llama-swap's own logs and pages."""


@dataclass(frozen=True, slots=True)
class Imported:
    """The content of a keeper's file, and what has no counterpart in it."""

    content: dict[str, Any]
    notes: tuple[str, ...]


def import_llama_swap(
    content: bytes,
    name: str,
    file_size: Callable[[str], int | None],
    environment: Mapping[str, str],
) -> Imported:
    """Translate llama-swap's file, reported as `name`. `file_size` returns the bytes of a model's
    file, None if it is not here. Raises `SettingsError` for what llama-swap would not read either,
    and for a command with a quotation that has no end."""
    values, variables = read_llama_swap(content, name, environment)
    return _Import(values, name, file_size).run(variables)


class _Import:
    def __init__(
        self, values: Mapping[str, Any], name: str, file_size: Callable[[str], int | None]
    ) -> None:
        self._values = values
        self._name = name
        self._file_size = file_size
        self._notes: list[str] = []

    def run(self, variables: Collection[str]) -> Imported:
        models = self._mapping(self._values.get("models"), "models")
        if not models:
            raise self._error("models", "this is not llama-swap's configuration: it has no models")
        for key in self._values:
            if key in GLOBAL_NOTES:
                self._notes.append(f"{key}: {GLOBAL_NOTES[key]}")
            elif key not in IGNORED and key not in HANDLED:
                self._notes.append(f"{key}: unknown here, and left out")
        preloaded = self._preloaded(models)
        found = {
            name: self._model(name, self._mapping(model, f"models.{name}"), name in preloaded)
            for name, model in models.items()
        }
        for name, others in self._exclusions(found).items():
            if others:
                found[name]["exclusive_with"] = others
        content = {
            "memory_mb": sum(model["memory_mb"] for model in found.values()),
            "first_port": self._values.get("startPort", 5800),
            "models": found,
        }
        if variables:
            self._notes.append(
                f"environment: the values of {', '.join(sorted(variables))} are written as they "
                "are here and now; secrets may be among them"
            )
        self._notes.append(
            "memory_mb: llama-swap does not know memory. The models' values are guessed from their "
            "files, the machine's is their sum; correct them, and remove `exclusive_with` where "
            "memory is the only reason"
        )
        return Imported(content, tuple(self._notes))

    def _model(self, name: str, model: Mapping[str, Any], is_preloaded: bool) -> dict[str, Any]:
        where = f"models.{name}"
        for key in MODEL_TRANSLATED:
            if problem := unresolved(model.get(key)):
                raise self._error(f"{where}.{key}", problem)
        command = model.get("cmd")
        if not isinstance(command, str):
            raise self._error(f"{where}.cmd", "a text is expected")
        try:
            words = split_command(command)
        except ValueError as error:
            raise self._error(f"{where}.cmd", f"this is not a command: {error}") from None
        if not words:
            raise self._error(f"{where}.cmd", "it is empty")
        entry: dict[str, Any] = {"cmd": words}
        entry.update(self._place(model, words, where))
        entry["slots"] = self._slots(words, where)
        entry["memory_mb"] = self._memory_mb(words, where)
        if aliases := self._texts(model.get("aliases"), f"{where}.aliases"):
            entry["aliases"] = aliases
        ttl_s = self._number(model.get("ttl"), f"{where}.ttl", GLOBAL_TTL)
        if ttl_s == GLOBAL_TTL:
            ttl_s = self._number(self._values.get("globalTTL"), "globalTTL", 0)
        if ttl_s:
            entry["ttl_s"] = float(ttl_s)
        if env := self._environment(model, where):
            entry["env"] = env
        timeout_s = self._number(self._values.get("healthCheckTimeout"), "healthCheckTimeout", 0)
        if timeout_s:
            entry["load_timeout_s"] = float(max(timeout_s, LEAST_TIMEOUT_S))
        if is_preloaded:
            entry["preload"] = True
        self._note_rest(model, where)
        return entry

    def _slots(self, words: list[str], where: str) -> int:
        slots = _value_of(words, "--parallel", "-np")
        launcher = launcher_of(words)
        if launcher is not None:
            self._notes.append(f"{where}.cmd: {launcher.program}: {launcher.advice}")
        elif slots is None:
            self._notes.append(f"{where}: the command has no --parallel, so slots is 1")
        return int(slots) if slots and slots.isdecimal() and int(slots) else 1

    def _environment(self, model: Mapping[str, Any], where: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for each in self._texts(model.get("env"), f"{where}.env"):
            key, equals, value = each.partition("=")
            if equals:
                found[key] = value
            else:
                self._notes.append(f"{where}.env: {key} has no value, and is left out")
        return found

    def _note_rest(self, model: Mapping[str, Any], where: str) -> None:
        if model.get("cmdStop"):
            self._notes.append(
                f"{where}.cmdStop: the keeper sends SIGTERM to the command and all its processes; "
                "a container must run in the foreground"
            )
        if (check := model.get("checkEndpoint", "/health")) != "/health":
            self._notes.append(f"{where}.checkEndpoint: {check}: the keeper asks /health")
        for key, value in model.items():
            if key in NO_COUNTERPART and value:
                self._notes.append(f"{where}.{key}: {NO_COUNTERPART[key]}")
                if key == "filters" and self._mapping(value, f"{where}.filters").get(BY_ID):
                    self._notes.append(f"{where}.filters.{BY_ID}: its names are unknown here")
            elif key not in MODEL_HANDLED and key not in NO_COUNTERPART:
                self._notes.append(f"{where}.{key}: unknown here, and left out")

    def _place(self, model: Mapping[str, Any], words: list[str], where: str) -> dict[str, Any]:
        """The fixed port of a model, which becomes `${PORT}` in its command."""
        proxy = model.get("proxy")
        has_macro = any(PORT_MACRO in word for word in words)
        if not isinstance(proxy, str):
            if not has_macro:
                self._notes.append(f"{where}.cmd: {self._added_port(words)}")
            return {}
        try:
            url = urlsplit(proxy.replace(PORT_MACRO, "1"))
            port = url.port
        except ValueError:
            raise self._error(f"{where}.proxy", "this is not an address") from None
        if url.hostname not in ("127.0.0.1", "localhost", "::1"):
            text = f"{where}.proxy: {url.hostname} is not this machine; add it to the picker's"
            self._notes.append(f"{text} endpoints instead")
        if url.path.strip("/"):
            self._notes.append(f"{where}.proxy: the path {url.path} is left out")
        if PORT_MACRO in proxy or port is None:
            return {}
        for index, word in enumerate(words):
            if word == "--port" and words[index + 1 : index + 2] == [str(port)]:
                words[index + 1] = PORT_MACRO
                has_macro = True
            elif word == f"--port={port}":
                words[index] = f"--port={PORT_MACRO}"
                has_macro = True
        if not has_macro:
            self._notes.append(f"{where}.cmd: {self._added_port(words)}")
        return {"port": port}

    def _added_port(self, words: list[str]) -> str:
        if launcher_of(words) is None:
            return f"--port {PORT_MACRO} is added when it is started"
        return f"it does not say {PORT_MACRO}, and no port is added to it"

    def _memory_mb(self, words: list[str], where: str) -> int:
        file = _value_of(words, "--model", "-m")
        size = self._file_size(file) if file else None
        if size is None:
            self._notes.append(f"{where}.memory_mb: unknown, because its file is not here")
            return 0
        return int(size * HEADROOM / MIB) + 1

    def _preloaded(self, models: Mapping[str, Any]) -> set[str]:
        hooks = self._mapping(self._values.get("hooks"), "hooks")
        startup = self._mapping(hooks.get("on_startup"), "hooks.on_startup")
        real = {
            alias: name
            for name, model in models.items()
            if isinstance(model, Mapping)
            for alias in (name, *self._texts(model.get("aliases"), f"models.{name}.aliases"))
        }
        preload = self._texts(startup.get("preload"), "hooks.on_startup.preload")
        found = {name.strip() for name in preload}
        for name in sorted(found - real.keys()):
            self._notes.append(f"hooks.on_startup.preload: {name} is no model, and is left out")
        return {real[name] for name in found & real.keys()}

    def _exclusions(self, models: Mapping[str, Any]) -> dict[str, list[str]]:
        """Which models llama-swap would never have loaded together."""
        rules, group_of = self._groups(models)

        def rule(model: str, key: str, default: bool) -> bool:
            return bool(rules.get(group_of.get(model, DEFAULT_GROUP), {}).get(key, default))

        def excludes(one: str, other: str) -> bool:
            if group_of.get(one, DEFAULT_GROUP) == group_of.get(other, DEFAULT_GROUP):
                return rule(one, "swap", True)
            return rule(one, "exclusive", True) and not rule(other, "persistent", False)

        return {
            one: [other for other in models if other != one and excludes(one, other)]
            for one in models
        }

    def _groups(
        self, models: Mapping[str, Any]
    ) -> tuple[dict[str, Mapping[str, Any]], dict[str, str]]:
        """The groups that decide, and the group of each model that is in one. They stand under
        `routing` today, and stood at the top before."""
        routing = self._mapping(self._values.get("routing"), "routing")
        router = self._mapping(routing.get("router"), "routing.router")
        settings = self._mapping(router.get("settings"), "routing.router.settings")
        before = self._values.get("groups") or self._values.get("matrix")
        if before and router:
            raise self._error("routing.router", "`groups` or `matrix` stand at the top as well")
        where = "groups" if before else "routing.router.settings.groups"
        matrix = self._values.get("matrix") or settings.get("matrix")
        is_matrix = router.get("use") == "matrix" or bool(self._values.get("matrix"))
        if matrix:
            text = "all models exclude each other" if is_matrix else "it is not in use"
            self._notes.append(
                f"matrix: left out, and {text}; write `exclusive_with` for models that must not be "
                "loaded together"
            )
        scheduler = self._mapping(routing.get("scheduler"), "routing.scheduler")
        if self._mapping(scheduler.get("settings"), "routing.scheduler.settings").get("fifo"):
            self._notes.append(
                "routing.scheduler: see `objectives` in the picker's settings for priorities"
            )
        groups = (
            {}
            if is_matrix
            else self._mapping(
                self._values.get("groups") if before else settings.get("groups"), where
            )
        )
        rules = {name: self._mapping(group, f"{where}.{name}") for name, group in groups.items()}
        group_of: dict[str, str] = {}
        for name, group in rules.items():
            for member in self._texts(group.get("members"), f"{where}.{name}.members"):
                if member not in models:
                    self._notes.append(f"{where}.{name}: {member} is no model, and is left out")
                elif group_of.setdefault(member, name) != name:
                    raise self._error(f"{where}.{name}", f"{member} is in two groups")
        return rules, group_of

    def _number(self, value: object, where: str, default: int) -> int:
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._error(where, "a whole number is expected")
        return value

    def _texts(self, value: object, where: str) -> list[str]:
        if value is None:
            return []
        if not isinstance(value, list):
            raise self._error(where, "a list is expected")
        return [str(each) for each in value]

    def _mapping(self, value: object, where: str) -> Mapping[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise self._error(where, "a section is expected")
        return value

    def _error(self, key: str, message: str) -> SettingsError:
        return SettingsError([Problem(where=self._name, key=key, message=message)])


HANDLED: Final = frozenset(
    {
        *("models", "groups", "matrix", "routing", "hooks", "startPort"),
        *("healthCheckTimeout", "globalTTL"),
    }
)
MODEL_TRANSLATED: Final = ("cmd", "proxy", "ttl", "aliases", "env")
MODEL_HANDLED: Final = frozenset({*MODEL_TRANSLATED, "cmdStop", "checkEndpoint"})


def _value_of(words: list[str], *flags: str) -> str | None:
    """The value of the first of these flags in a command."""
    for word, following in itertools.pairwise([*words, ""]):
        flag, equals, value = word.partition("=")
        if flag in flags:
            return value if equals else following
    return None
