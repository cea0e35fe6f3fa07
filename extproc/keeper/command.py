"""The command line of a model's server. Pure."""

import itertools
from collections.abc import Sequence
from typing import Final

from extproc.core.address import Address
from extproc.keeper.launchers import launcher_of
from extproc.keeper.models_file import PORT_MACRO, ModelEntry

HOST_MACRO: Final = "${HOST}"


SLOTS_FLAG: Final = "--slot-save-path"
CONTEXT_FLAGS: Final = ("--ctx-size", "-c")
PARALLEL_FLAGS: Final = ("--parallel", "-np")
UNIFIED_FLAGS: Final = ("--kv-unified", "-kvu")
"""With these all slots share the whole context."""


def server_command(entry: ModelEntry, address: Address, slots_folder: str = "") -> list[str]:
    """The arguments that start the server of `entry` at `address`.

    The macros are replaced. Where the command does not say it, the host, the port, the slots and
    the context are added, except behind a launcher, which would take them for its own.
    llama-server divides its context by its slots, so the context of one slot is multiplied. With
    `slots_folder` the server can save its slots there.
    """
    command = [
        word.replace(PORT_MACRO, str(address.port)).replace(HOST_MACRO, address.host)
        for word in entry.cmd
    ]
    if launcher_of(entry.cmd) is not None:
        return command
    written = "\0".join(entry.cmd)
    if PORT_MACRO not in written:
        command += ["--port", str(address.port)]
    if HOST_MACRO not in written and not _has(command, "--host"):
        command += ["--host", address.host]
    if not _has(command, *PARALLEL_FLAGS):
        command += ["--parallel", str(entry.slots)]
    if entry.context_tokens and not _has(command, *CONTEXT_FLAGS):
        command += ["--ctx-size", str(entry.context_tokens * entry.slots)]
    if slots_folder and takes_slots_folder(entry):
        command += [SLOTS_FLAG, slots_folder]
    return command


def slot_context(entry: ModelEntry) -> int:
    """The context of one slot, in tokens: as the file says it, else as the command does; 0 if
    neither does."""
    words = [part for word in entry.cmd for part in word.split("=", 1)]
    if entry.context_tokens and not _has(words, *CONTEXT_FLAGS):
        return entry.context_tokens
    total = _number(words, *CONTEXT_FLAGS)
    if _has(words, *UNIFIED_FLAGS):
        return total
    return total // max(1, _number(words, *PARALLEL_FLAGS) or entry.slots)


def _number(words: Sequence[str], *flags: str) -> int:
    """The last value of these flags; 0 if there is none."""
    values = [after for word, after in itertools.pairwise(words) if word in flags]
    return int(values[-1]) if values and values[-1].isdecimal() else 0


def takes_slots_folder(entry: ModelEntry) -> bool:
    """Whether a folder for slots can be added to the command."""
    return not _has(entry.cmd, SLOTS_FLAG) and launcher_of(entry.cmd) is None


def _has(command: Sequence[str], *flags: str) -> bool:
    return any(word == flag or word.startswith(f"{flag}=") for word in command for flag in flags)
