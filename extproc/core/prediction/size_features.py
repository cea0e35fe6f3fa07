"""What identifies similar requests, for the estimate of their answers' lengths.

From general to specific: the path with its grammar, tools and media; the objective; the tenant's
flow; `max_tokens` as that flow uses it; the length of the prompt; the beginning of the prompt, at
depths that double. The hashes of the prefix index identify beginnings: they hold the model and the
adapters, but no text.
"""

from typing import Final, NamedTuple

from extproc.core.request import Request

PATH, OBJECTIVE, FLOW, BOUND, LENGTH, BEGINNING = range(6)
"""The kinds of features; the last begins those of the prompt's beginning, one for each depth."""
DEPTHS: Final = (1, 2, 4, 8, 16, 32, 64)
"""After how many blocks of the prompt's beginning a feature is taken."""
KINDS: Final = BEGINNING + len(DEPTHS)

FlowName = tuple[str, str, str]
"""The objective, the tenant and its name for a part of its requests."""
FeatureKey = tuple[object, ...]
"""Equal for requests that share the feature, and for no other feature."""


class SizeFeatures(NamedTuple):
    """The features of one request with their kinds, general ones first. `group` has the requests
    whose lengths spread alike; `max_tokens` is the client's bound for each answer, None without
    one."""

    model: str
    group: FeatureKey
    flow: FlowName
    keys: tuple[tuple[int, FeatureKey], ...]
    max_tokens: int | None


def features_of(request: Request, model: str | None, objective: str) -> SizeFeatures:
    """The features of a request for that model, of that objective. O(depths)."""
    name = model or ""
    flow = (objective, request.tenant, request.fairness_id)
    traits = request.traits or request.kind.value
    group = (OBJECTIVE, name, traits, objective)
    keys: list[tuple[int, FeatureKey]] = [
        (PATH, (PATH, name, traits)),
        (OBJECTIVE, group),
        (FLOW, (FLOW, name, traits, flow)),
    ]
    max_tokens = request.max_tokens
    if max_tokens is not None:
        keys.append((BOUND, (BOUND, name, traits, flow, max_tokens.bit_length())))
    prompt_tokens = request.prompt_tokens
    if prompt_tokens is not None:
        keys.append((LENGTH, (LENGTH, name, traits, objective, prompt_tokens.bit_length())))
    blocks = request.prompt_blocks
    for number, depth in enumerate(DEPTHS):
        if depth > len(blocks):
            break
        keys.append((BEGINNING + number, (blocks[depth - 1], traits)))
    return SizeFeatures(name, group, flow, tuple(keys), max_tokens)
