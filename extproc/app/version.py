"""The version of Coxswain."""

from importlib.metadata import PackageNotFoundError, version
from typing import Final

DISTRIBUTION: Final = "coxswain-llm"
"""The package's name for pip, which is not the command's: `coxswain` on PyPI is another project."""


def own_version() -> str:
    """The installed version, or "unknown" for a source tree that was not installed."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"
