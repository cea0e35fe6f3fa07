"""Commands that take none of llama-server's flags behind their own: containers, shells, and servers
of other kinds. Pure.

Everything else is taken for llama-server, or for a script that passes its arguments on to it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

CONTAINERS: Final = frozenset({"docker", "nerdctl", "podman"})
SHELLS: Final = frozenset({"bash", "dash", "fish", "ksh", "sh", "zsh"})
OTHER_SERVERS: Final = frozenset(
    {
        *("aphrodite", "infinity_emb", "koboldcpp", "lemonade-server", "lmdeploy", "mlx_lm"),
        *("mlx_lm.server", "ollama", "sd-server", "sglang", "tabbyapi", "vllm"),
        *("text-generation-launcher", "text-embeddings-router", "whisper-server"),
    }
)
PREFIXES: Final = frozenset(
    {
        *("chrt", "env", "exec", "ionice", "nice", "nohup", "numactl", "setpriv", "stdbuf"),
        *("sudo", "systemd-run", "taskset", "time", "timeout"),
    }
)
"""Programs that start another one, which their arguments name."""
_DETACHED: Final = frozenset({"-d", "-dit", "-itd", "--detach", "--detach=true"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """A program whose command is left as it is, and what its user must write there. Where
    `can_serve` is false it is no llama-server, and nothing helps."""

    program: str
    advice: str
    can_serve: bool = True
    is_detached: bool = False


def launcher_of(command: Sequence[str]) -> Launcher | None:
    """The launcher of this command; None if the keeper may add flags of llama-server to it."""
    names = [PurePath(word).name for word in command]
    start = 0
    if names and names[0] in PREFIXES:
        known = CONTAINERS | SHELLS | OTHER_SERVERS
        start = next(
            (at for at, name in enumerate(names) if name in known or name.startswith("llama")), 0
        )
    program, rest = (names[start], list(command[start + 1 :])) if names else ("", [])
    if program in CONTAINERS:
        return Launcher(
            program=program,
            advice="it must publish the port (-p ${HOST}:${PORT}:8080), stay in the foreground, "
            "remove its container (--rm), and say --parallel with the number of `slots`",
            is_detached=not _DETACHED.isdisjoint(rest),
        )
    if program in SHELLS and rest and rest[0].startswith("-") and "c" in rest[0]:
        return Launcher(
            program=program,
            advice="its text must say --host ${HOST} --port ${PORT}, and --parallel with the "
            "number of `slots`",
        )
    if program.startswith("python") and rest[:1] == ["-m"] and len(rest) > 1:
        program = rest[1].partition(".")[0]
    if program in OTHER_SERVERS:
        return Launcher(
            program=program,
            advice="it is no llama-server: without its /props and /slots Coxswain sends it no "
            "request. Remove the model, and let Envoy route to such a server beside Coxswain",
            can_serve=False,
        )
    return None
