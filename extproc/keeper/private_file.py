"""Files that only the keeper's user can read, written whole or not at all."""

import os
from pathlib import Path


def write_private(path: Path, text: str) -> None:
    """Put `text` in place of the file. Blocks on the disk; raises `OSError`."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    draft.replace(path)
