"""The command line of a model's server. Pure."""

from collections.abc import Sequence
from typing import Final

from extproc.core.address import Address
from extproc.keeper.models_file import PORT_MACRO, ModelEntry

HOST_MACRO: Final = "${HOST}"


SLOTS_FLAG: Final = "--slot-save-path"


def server_command(entry: ModelEntry, address: Address, slots_folder: str = "") -> list[str]:
    """The arguments that start the server of `entry` at `address`.

    The macros are replaced. Where the command does not say it, the host, the port, the slots and
    the context are added. llama-server divides its context by its slots, so the context of one
    slot is multiplied. With `slots_folder` the server can save its slots there.
    """
    command = [
        word.replace(PORT_MACRO, str(address.port)).replace(HOST_MACRO, address.host)
        for word in entry.cmd
    ]
    written = "\0".join(entry.cmd)
    if PORT_MACRO not in written:
        command += ["--port", str(address.port)]
    if HOST_MACRO not in written and not _has(command, "--host"):
        command += ["--host", address.host]
    if not _has(command, "--parallel", "-np"):
        command += ["--parallel", str(entry.slots)]
    if entry.context_tokens and not _has(command, "--ctx-size", "-c"):
        command += ["--ctx-size", str(entry.context_tokens * entry.slots)]
    if slots_folder and not saves_slots(entry):
        command += [SLOTS_FLAG, slots_folder]
    return command


def saves_slots(entry: ModelEntry) -> bool:
    """Whether the command names a folder for slots itself."""
    return _has(entry.cmd, SLOTS_FLAG)


def _has(command: Sequence[str], *flags: str) -> bool:
    return any(word == flag or word.startswith(f"{flag}=") for word in command for flag in flags)
