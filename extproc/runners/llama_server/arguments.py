"""What the arguments of a llama-server say about its context: for all slots, or one for each. Pure.

No path of a server shows it: with and without a shared context, /props and /slots look alike. The
rules are those of llama.cpp since October 2025:

    -np not given, or negative       4 slots that share the context, whatever else is given
    -np N                            each slot has its part, unless --kv-unified
    --kv-unified-per-slot M          M tokens for each slot; they share the context only if -c is
                                     given, as it may be less than all of them need

An argument goes before the environment variable of the same meaning.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

PARALLEL: Final = ("--parallel", "-np")
CONTEXT: Final = ("--ctx-size", "-c")
PER_SLOT: Final = ("--kv-unified-per-slot",)
UNIFIED: Final = ("--kv-unified", "-kvu")
SPLIT: Final = ("--no-kv-unified", "-no-kvu")
_TRUE: Final = frozenset({"1", "true", "on", "enabled"})
_FALSE: Final = frozenset({"0", "false", "off", "disabled"})
MAX_TOKENS: Final = 2**31


class ContextArguments(NamedTuple):
    """Whether the slots share one context, and of how many tokens, 0 if that is not said."""

    is_shared: bool
    tokens: int = 0

    def shared_tokens(self, slot_tokens: int | None) -> int | None:
        """The size of the shared context, with slots that report that many tokens each; 0 if each
        has its own, None if the size is not known."""
        if not self.is_shared:
            return 0
        return max(self.tokens, slot_tokens or 0) or None


def context_arguments(
    arguments: Sequence[str], environment: Mapping[str, str] | None = None
) -> ContextArguments:
    """What a command line, and the variables of its process, say."""
    words = [part for word in arguments for part in _split(word)]
    variables = environment or {}
    slots = _number(words, PARALLEL, variables.get("LLAMA_ARG_N_PARALLEL"))
    context = max(0, _number(words, CONTEXT, variables.get("LLAMA_ARG_CTX_SIZE")))
    per_slot = _number(words, PER_SLOT, variables.get("LLAMA_ARG_KV_UNIFIED_PER_SLOT"))
    if per_slot > 0:
        return ContextArguments(is_shared=context > 0, tokens=context)
    is_shared = slots <= 0 or _is_unified(words, variables)
    return ContextArguments(is_shared=is_shared, tokens=context if is_shared else 0)


def _split(word: str) -> list[str]:
    return word.split("=", 1) if word.startswith("--") else [word]


def _number(words: Sequence[str], flags: tuple[str, ...], variable: str | None) -> int:
    """The last value of these flags, else that of the variable; 0 if there is none."""
    found = variable or ""
    for index, word in enumerate(words[:-1]):
        if word in flags:
            found = words[index + 1]
    digits = found.removeprefix("-")
    is_number = digits.isascii() and digits.isdecimal() and len(digits) < 12
    return min(MAX_TOKENS, int(found)) if is_number else 0


def _is_unified(words: Sequence[str], variables: Mapping[str, str]) -> bool:
    found = [word in UNIFIED for word in words if word in UNIFIED or word in SPLIT]
    if found:
        return found[-1]
    value = variables.get("LLAMA_ARG_KV_UNIFIED", "").lower()
    if value in _TRUE or value in _FALSE:
        return value in _TRUE
    return False
