"""Splits: one model name that stands for several models, by weight."""

from collections.abc import Mapping
from itertools import accumulate
from random import Random

Splits = Mapping[str, Mapping[str, float]]
"""By the name that clients use: the models it stands for, with their weights."""


def resolve_model(name: str | None, splits: Splits, random: Random) -> str | None:
    """The model that a name stands for: itself, its alias' target, or one by weighted chance."""
    if name is None:
        return None
    targets = splits.get(name)
    if not targets:
        return name
    if len(targets) == 1:
        return next(iter(targets))
    sums = list(accumulate(targets.values()))
    point = random.random() * sums[-1]
    for target, upto in zip(targets, sums, strict=True):
        if point < upto:
            return target
    return name
