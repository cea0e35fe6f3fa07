"""The numbers in an object of the core, to compare."""

from extproc.core.prediction.latency import LatencyEstimate
from extproc.core.selection.cost import Cost


def numbers(subject: Cost | LatencyEstimate) -> dict[str, float]:
    """All that it holds, by name."""
    return {name: getattr(subject, name) for name in type(subject).__slots__}
