"""Reads llama-swap's configuration as a keeper's file. Pure, except for the sizes of model files.

What has no counterpart is named in `notes`, so that nothing is lost in silence.
"""

import itertools
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from extproc.keeper.models_file import PORT_MACRO
from extproc.settings.problems import Problem, SettingsError

MACRO: Final = re.compile(r"\$\{([^${}]+)\}")
MAX_MACRO_ROUNDS: Final = 20
HEADROOM: Final = 1.2
"""What a model takes beyond its file: caches and buffers. A first guess, to be corrected."""
MIB: Final = 1024 * 1024
KEPT_MACROS: Final = frozenset({"PORT", "HOST"})
DEFAULT_GROUP: Final = "(default)"

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
}
GLOBAL_NOTES: Final = {
    "apiKeys": "let the picker check clients' keys: the `clients` section of its settings",
    "peers": "list other machines' servers under `endpoints`, or run a keeper there",
    "matrix": "write `exclusive_with` for models that must not be loaded together",
    "sendLoadingState": NO_COUNTERPART["sendLoadingState"],
    "includeAliasesInList": "aliases are always listed",
    "captureBuffer": "requests are not recorded",
    "performance": "see the picker's metrics",
    "store": "nothing is stored",
}
IGNORED: Final = frozenset(
    {"logLevel", "logTimeFormat", "logToStdout", "logHTTPRequests", "metricsMaxInMemory"}
)
"""About llama-swap's own logs and pages."""


@dataclass(frozen=True, slots=True)
class Imported:
    """The content of a keeper's file, and what has no counterpart in it."""

    content: dict[str, Any]
    notes: tuple[str, ...]


def import_llama_swap(
    values: Mapping[str, Any], name: str, file_size: Callable[[str], int | None]
) -> Imported:
    """Translate the values of llama-swap's YAML. `file_size` returns the bytes of a model's file,
    None if it is not here. Raises `SettingsError` for what llama-swap would not read either."""
    return _Import(values, name, file_size).run()


class _Import:
    def __init__(
        self, values: Mapping[str, Any], name: str, file_size: Callable[[str], int | None]
    ) -> None:
        self._values = values
        self._name = name
        self._file_size = file_size
        self._notes: list[str] = []

    def run(self) -> Imported:
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
        self._notes.append(
            "memory_mb: llama-swap does not know memory. The models' values are guessed from their "
            "files, the machine's is their sum; correct them, and remove `exclusive_with` where "
            "memory is the only reason"
        )
        return Imported(content, tuple(self._notes))

    def _model(self, name: str, model: Mapping[str, Any], is_preloaded: bool) -> dict[str, Any]:
        where = f"models.{name}"
        macros = {
            **self._mapping(self._values.get("macros"), "macros"),
            **self._mapping(model.get("macros"), f"{where}.macros"),
            "MODEL_ID": name,
        }
        if not isinstance(model.get("cmd"), str):
            raise self._error(f"{where}.cmd", "a text is expected")
        try:
            words = shlex.split(self._expanded(model["cmd"], macros, where), comments=True)
        except ValueError as error:
            raise self._error(f"{where}.cmd", f"this is not a command: {error}") from None
        entry: dict[str, Any] = {"cmd": words}
        entry.update(self._place(model, words, macros, where))
        slots = _value_of(words, "--parallel", "-np")
        entry["slots"] = int(slots) if slots and slots.isdigit() and int(slots) else 1
        if slots is None:
            self._notes.append(f"{where}: the command has no --parallel, so slots is 1")
        entry["memory_mb"] = self._memory_mb(words, where)
        if aliases := model.get("aliases"):
            entry["aliases"] = [str(alias) for alias in aliases]
        ttl_s = model.get("ttl", self._values.get("globalTTL", 0))
        if isinstance(ttl_s, int | float) and ttl_s > 0:
            entry["ttl_s"] = float(ttl_s)
        if env := model.get("env"):
            pairs = (self._expanded(str(each), macros, where).partition("=") for each in env)
            entry["env"] = {key: value for key, _, value in pairs}
        if timeout_s := self._values.get("healthCheckTimeout"):
            entry["load_timeout_s"] = float(timeout_s)
        if is_preloaded:
            entry["preload"] = True
        self._note_rest(model, where)
        return entry

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
            elif key not in MODEL_HANDLED and key not in NO_COUNTERPART:
                self._notes.append(f"{where}.{key}: unknown here, and left out")

    def _place(
        self, model: Mapping[str, Any], words: list[str], macros: Mapping[str, Any], where: str
    ) -> dict[str, Any]:
        """The fixed port of a model, which becomes `${PORT}` in its command."""
        proxy = model.get("proxy")
        if not isinstance(proxy, str):
            return {}
        url = urlsplit(self._expanded(proxy, macros, where).replace(PORT_MACRO, "1"))
        if url.hostname not in ("127.0.0.1", "localhost", "::1"):
            text = f"{where}.proxy: {url.hostname} is not this machine; add it to the picker's"
            self._notes.append(f"{text} endpoints instead")
        if url.path.strip("/"):
            self._notes.append(f"{where}.proxy: the path {url.path} is left out")
        if PORT_MACRO in proxy or url.port is None:
            return {}
        is_found = False
        for index, word in enumerate(words):
            if word == "--port" and words[index + 1 : index + 2] == [str(url.port)]:
                words[index + 1] = PORT_MACRO
                is_found = True
            elif word == f"--port={url.port}":
                words[index] = f"--port={PORT_MACRO}"
                is_found = True
        if not is_found and not any(PORT_MACRO in word for word in words):
            self._notes.append(f"{where}.cmd: --port {PORT_MACRO} is added when it is started")
        return {"port": url.port}

    def _memory_mb(self, words: list[str], where: str) -> int:
        file = _value_of(words, "--model", "-m")
        size = self._file_size(file) if file else None
        if size is None:
            self._notes.append(f"{where}.memory_mb: unknown, because its file is not here")
            return 0
        return int(size * HEADROOM / MIB) + 1

    def _expanded(self, text: str, macros: Mapping[str, Any], where: str) -> str:
        """The text with its macros, which may contain others."""
        for _ in range(MAX_MACRO_ROUNDS):
            found = [one for one in MACRO.findall(text) if one in macros]
            if not found:
                break
            for one in found:
                text = text.replace(f"${{{one}}}", str(macros[one]))
        for one in MACRO.findall(text):
            if one not in KEPT_MACROS:
                self._notes.append(f"{where}: ${{{one}}} is not a macro here: write its value")
        return text

    def _preloaded(self, models: Mapping[str, Any]) -> set[str]:
        hooks = self._mapping(self._values.get("hooks"), "hooks")
        startup = self._mapping(hooks.get("on_startup"), "hooks.on_startup")
        names = startup.get("preload") or []
        real = {
            str(alias): name
            for name, model in models.items()
            if isinstance(model, Mapping)
            for alias in (name, *(model.get("aliases") or ()))
        }
        return {real.get(str(name), str(name)) for name in names}

    def _exclusions(self, models: Mapping[str, Any]) -> dict[str, list[str]]:
        """Which models llama-swap would never have loaded together."""
        groups = self._mapping(self._values.get("groups"), "groups")
        rules = {name: self._mapping(group, f"groups.{name}") for name, group in groups.items()}
        group_of = {
            str(member): name
            for name, group in rules.items()
            for member in group.get("members") or ()
        }

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

    def _mapping(self, value: object, where: str) -> Mapping[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise self._error(where, "a section is expected")
        return value

    def _error(self, key: str, message: str) -> SettingsError:
        return SettingsError([Problem(where=self._name, key=key, message=message)])


HANDLED: Final = frozenset(
    {"models", "macros", "groups", "hooks", "startPort", "healthCheckTimeout", "globalTTL"}
)
MODEL_HANDLED: Final = frozenset(
    {"cmd", "cmdStop", "proxy", "checkEndpoint", "ttl", "aliases", "env", "macros"}
)


def _value_of(words: list[str], *flags: str) -> str | None:
    """The value of the first of these flags in a command."""
    for word, following in itertools.pairwise([*words, ""]):
        flag, equals, value = word.partition("=")
        if flag in flags:
            return value if equals else following
    return None
