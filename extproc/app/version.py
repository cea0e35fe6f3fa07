"""The version of Coxswain."""

from importlib.metadata import PackageNotFoundError, version


def own_version() -> str:
    """The installed version, or "unknown" for a source tree that was not installed."""
    try:
        return version("coxswain")
    except PackageNotFoundError:
        return "unknown"
