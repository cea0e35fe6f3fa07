"""Commands of models that an operator replaced: kept beside the keeper's file, which stays as is.

    models.yaml  ->  models.replaced.yaml

The file of models belongs to people: it has comments, is under version control, or cannot be
written. A replacement holds until its entry there changes: then the file counts again.
"""

import hashlib
import json
from pathlib import Path
from typing import Annotated, Final

import yaml
from pydantic import Field, ValidationError

from extproc.keeper.models_file import MAX_MB, Command, ModelEntry, ModelsFile, Name
from extproc.keeper.private_file import write_private
from extproc.settings.problems import Problem, SettingsError, dotted
from extproc.settings.section import Section
from extproc.settings.yaml_file import read_yaml

HEADER: Final = (
    "# Written by `coxswain models replace`. Each entry holds until the same one in the file of\n"
    "# models changes. To go back, delete it and restart the keeper.\n"
)


class Replacement(Section):
    """What is different about one model. `of` is the digest of the entry that it replaces."""

    of: str
    cmd: Command
    memory_mb: Annotated[int, Field(ge=0, le=MAX_MB)]


class _File(Section):
    models: dict[Name, Replacement] = Field(default_factory=dict)


class Replacements:
    """The file beside `models`. All calls block on the disk."""

    def __init__(self, models: Path) -> None:
        self.path = models.with_suffix(f".replaced{models.suffix}")
        self._held: dict[str, Replacement] = {}

    def apply(self, file: ModelsFile) -> tuple[ModelsFile, list[str]]:
        """The models with their replacements, and a sentence for each that is left out. Raises
        `SettingsError`."""
        if not self.path.exists():
            return file, []
        try:
            found = _File.model_validate(read_yaml(self.path).values or {})
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            raise SettingsError(
                [
                    Problem(
                        where=str(self.path),
                        key=dotted(problem["loc"]),
                        message=f"{problem['msg'].lower()}; correct it or delete the file",
                    )
                ]
            ) from None
        entries, notes = dict(file.models), []
        for name, one in found.models.items():
            if name not in entries or one.of != digest_of(entries[name]):
                notes.append(
                    f"{name} has changed in the file of models: its replacement is dropped"
                )
                continue
            self._held[name] = one
            update = {"cmd": one.cmd, "memory_mb": one.memory_mb}
            entries[name] = entries[name].model_copy(update=update)
        return file.model_copy(update={"models": entries}), notes

    def put(self, name: str, base: ModelEntry, entry: ModelEntry) -> None:
        """Keep what replaces `base`, the entry of the file of models. Raises `OSError`."""
        held = dict(self._held)
        if (entry.cmd, entry.memory_mb) == (base.cmd, base.memory_mb):
            held.pop(name, None)
        else:
            held[name] = Replacement(of=digest_of(base), cmd=entry.cmd, memory_mb=entry.memory_mb)
        content = {"models": {name: one.model_dump(mode="json") for name, one in held.items()}}
        # A command may hold a key.
        write_private(self.path, HEADER + yaml.safe_dump(content, sort_keys=False))
        self._held = held


def digest_of(entry: ModelEntry) -> str:
    """Two entries with the same digest start the same server."""
    text = json.dumps(entry.model_dump(mode="json"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
