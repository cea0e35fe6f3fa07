"""What identifies similar requests, for the estimate of their answers' lengths.

From general to specific: the path with its grammar, tools and media; the objective; the tenant's
flow; `max_tokens` as that flow uses it; the length of the prompt; the beginning of the prompt, at
depths that double. The hashes of the prefix index identify beginnings: they hold the model and the
adapters, but no text. What beginnings share beside their path is left to the general features.
"""

from typing import Final

from extproc.core.request import Request

PATH, OBJECTIVE, FLOW, BOUND, LENGTH, BEGINNING = range(6)
"""The kinds of features; the last begins those of the prompt's beginning, one for each depth."""
DEPTHS: Final = (1, 2, 4, 8, 16, 32, 64)
"""After how many blocks of the prompt's beginning a feature is taken."""
KINDS: Final = BEGINNING + len(DEPTHS)
UNKNOWN: Final = -1
"""The magnitude of a number that a request does not have."""

FlowName = tuple[str, str, str]
"""The objective, the tenant and its name for a part of its requests."""
FeatureKey = tuple[object, ...] | int
"""Equal for requests that share the feature, and for no other feature. A beginning is its last
block's hash alone, so that nothing is built to look it up."""
SimilarKey = tuple[str, str, str, str, str, int, int]
"""Model, traits, objective, tenant, its name for a part of its requests, and the magnitudes of
`max_tokens` and of the prompt's length: equal for requests that share all general features."""


class SizeFeatures:
    """The features of one request. `blocks` are its prompt's beginning, `max_tokens` is the
    client's bound for each answer, None without one."""

    __slots__ = ("blocks", "max_tokens", "similar")

    def __init__(
        self, similar: SimilarKey, blocks: tuple[int, ...], max_tokens: int | None
    ) -> None:
        self.similar = similar
        self.blocks = blocks
        self.max_tokens = max_tokens

    @property
    def model(self) -> str:
        return self.similar[0]

    @property
    def flow(self) -> FlowName:
        _, _, objective, tenant, fairness_id, _, _ = self.similar
        return (objective, tenant, fairness_id)

    @property
    def group(self) -> FeatureKey:
        """Equal for the requests whose lengths spread alike."""
        model, traits, objective, _, _, _, _ = self.similar
        return (OBJECTIVE, model, traits, objective)

    @property
    def keys(self) -> list[tuple[int, FeatureKey]]:
        """All features with their kinds: general ones first, then the prompt's beginnings at each
        depth that it has. O(depths)."""
        keys, blocks = self.general_keys, self.blocks
        for number, depth in enumerate(DEPTHS):
            if depth <= len(blocks):
                keys.append((BEGINNING + number, blocks[depth - 1]))
        return keys

    @property
    def general_keys(self) -> list[tuple[int, FeatureKey]]:
        """The features that requests with an equal `similar` share, with their kinds."""
        model, traits, objective, tenant, fairness_id, bound, length = self.similar
        flow = (FLOW, model, traits, objective, tenant, fairness_id)
        keys: list[tuple[int, FeatureKey]] = [
            (PATH, (PATH, model, traits)),
            (OBJECTIVE, self.group),
            (FLOW, flow),
        ]
        if bound != UNKNOWN:
            keys.append((BOUND, (BOUND, *flow, bound)))
        if length != UNKNOWN:
            keys.append((LENGTH, (LENGTH, model, traits, objective, length)))
        return keys


def features_of(request: Request, model: str | None, objective: str) -> SizeFeatures:
    """The features of a request for that model, of that objective. O(1)."""
    max_tokens, prompt_tokens = request.max_tokens, request.prompt_tokens
    similar = (
        model or "",
        request.traits or request.kind.value,
        objective,
        request.tenant,
        request.fairness_id,
        UNKNOWN if max_tokens is None else max_tokens.bit_length(),
        UNKNOWN if prompt_tokens is None else prompt_tokens.bit_length(),
    )
    return SizeFeatures(similar, request.prompt_blocks, max_tokens)
