"""The API keys of clients: a file with one line `name key` for each."""

from pathlib import Path
from typing import Final

from extproc.settings.problems import Problem, SettingsError

MAX_FILE_BYTES: Final = 1024 * 1024


def read_client_keys(file: Path) -> dict[str, str]:
    """Names by their keys. Blank lines and lines that begin with # are ignored.

    Blocks on the disk. Raises SettingsError with the line of each error; never shows a key.
    """
    try:
        with file.open("rb") as stream:
            text = stream.read(MAX_FILE_BYTES).decode("ascii")
    except OSError as error:
        reason = (error.strerror or "cannot be read").lower()
        raise SettingsError([_problem(str(file), reason)]) from None
    except UnicodeDecodeError:
        raise SettingsError([_problem(str(file), "names and keys must be plain ASCII")]) from None
    names: dict[str, str] = {}
    problems = []
    for number, line in enumerate(text.splitlines(), start=1):
        parts = line.split()
        if not parts or parts[0].startswith("#"):
            continue
        where = f"{file}:{number}"
        if len(parts) != 2 or not all(part.isprintable() for part in parts):
            problems.append(_problem(where, "write each line as `name key`"))
        elif parts[1] in names:
            problems.append(_problem(where, "this key is in the file already"))
        else:
            names[parts[1]] = parts[0]
    if not names and not problems:
        problems.append(
            _problem(str(file), "it contains no key, so every client would be rejected")
        )
    if problems:
        raise SettingsError(problems)
    return names


def _problem(where: str, message: str) -> Problem:
    return Problem(where=where, key="clients.keys_file", message=message)
