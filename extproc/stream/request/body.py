"""A request's body: its beginning, read as far as it can be read, and all keys at its top.

One reader for all dialects: OpenAI's chat, completions, responses and embeddings, Anthropic's
messages, llama.cpp's own, Ollama's. They differ in where the prompt stands, and no name means two
things. Whatever the bytes are, reading ends in a `RequestBody`; nothing raises. What stands before
the first fault, or before the end of a cut part, counts; a value that may itself be cut does not,
but for the prompt's text, whose beginning is what is wanted of it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite, isinf
from typing import Any, Final

import jiter

from extproc.core.request import Kind
from extproc.stream.request.prompt import Prompt, has_media, read_prompt
from extproc.stream.request.shared_text import shared_text
from extproc.stream.request.top_level import NO_OBJECT, NUMBER_END, read_cut, read_whole

MAX_COUNT: Final = 65_536
"""More inputs, answers or slots than any server has; a larger number says no more than this."""
MAX_TOKENS: Final = 2**31 - 1
MAX_NAME_CHARS: Final = 512
"""The longest model name that is taken for one."""
MAX_CHAR_BYTES: Final = 4
"""The most bytes of one character in UTF-8."""

_TOKEN_BOUNDS: Final = ("n_predict", "max_completion_tokens", "max_output_tokens", "max_tokens")
_ANSWERS: Final = ("n_cmpl", "n")
"""Of several names for one thing llama-server takes the first that is given, in this order."""
_GRAMMARS: Final = ("grammar", "json_schema", "response_format")
_INPUTS: Final = {
    Kind.GENERATION: ("prompt",),
    Kind.EMBEDDING: ("input", "content", "documents", "texts"),
}
_PROMPT_KEYS: Final = frozenset(
    {"prompt", "input", "system", "instructions", "content", "input_prefix", "input_suffix"}
)
"""Where text stands at the top: cut, it is still the prompt's beginning."""
_PLACE: Final = re.compile(r"at line (\d+) column (\d+)$")
CUT: Final = "was longer than what is kept of it, and what is kept does not name the model"
"""Why the model of a body that is not here as a whole is unknown."""
TOO_DEEP: Final = "recursion limit"
"""The parser's fault with JSON that is nested more deeply than it reads."""
TOO_LONG_NAME: Final = f"names a model with more than {MAX_NAME_CHARS} characters"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestBody:
    """What a body says. What is missing, odd or cut stays at its default.

    `text` is the beginning of the prompt in the order in which servers build it, empty for
    embeddings; `has_media` says that images or sounds were found in what is asked, `has_grammar`
    that the answer is to follow a grammar or a schema, `has_tools` that it may call tools.
    `answers` is how many each input gets, `inputs` how many things are to be completed, embedded
    or ranked.
    `adapter_numbers` are the adapters that `lora` wants, None without any list. `is_complete`
    says that the whole body was read and is a JSON object; `problem` what is wrong with it, for
    the client, and None when nothing is; `unread` why it may name a model although none was found,
    and None if all that stands at its top was read.
    """

    model: str | None = None
    text: str = ""
    has_media: bool = False
    has_grammar: bool = False
    has_tools: bool = False
    answers: int = 1
    inputs: int = 1
    max_tokens: int | None = None
    adapter_numbers: frozenset[int] | None = None
    is_complete: bool = False
    problem: str | None = None
    unread: str | None = None

    @property
    def is_damaged(self) -> bool:
        """Whether no server can read it; JSON that is nested too deep only we cannot."""
        return self.problem is not None and TOO_DEEP not in self.problem

    @property
    def weight_slots(self) -> int:
        """How many slots it takes at once: one for each answer to each input."""
        return min(self.answers * self.inputs, MAX_COUNT)


def read_body(
    body: bytes, kind: Kind, *, limit_bytes: int, is_whole: bool, is_strict: bool
) -> RequestBody:
    """Read the first `limit_bytes` of a body, and the keys at the top of all that is here of it.

    `is_whole` says that all of it is here. O(its size). `is_strict` also finds fault with keys
    given twice and with numbers beyond all bounds, in a body that is not longer than the limit.
    """
    part = body[:limit_bytes]
    is_short = len(part) == len(body)
    if is_whole and is_short:
        tree, problem = _parse(part, is_strict=is_strict)
        is_in_list = False
    else:
        (tree, is_in_list), problem = _parse_beginning(part), None
    inputs, unread = 1, None
    if not is_whole:
        unread = CUT
        if not is_short and isinstance(tree, dict):
            read_cut(body, tree)
    elif is_short and not (problem and TOO_DEEP in problem):
        unread = problem
    else:
        tree = tree if isinstance(tree, dict) else {}
        is_in_list = is_in_list and not is_strict
        found, inputs = read_whole(body, tree, limit_bytes, _INPUTS[kind], is_in_list=is_in_list)
        problem = problem or found
        unread = None if found == NO_OBJECT else found
    if not isinstance(tree, dict):
        return RequestBody(problem=problem or NO_OBJECT, unread=unread)
    model = tree.get("model")
    is_named = isinstance(model, str) and len(model) <= MAX_NAME_CHARS
    if isinstance(model, str) and not is_named:
        unread = TOO_LONG_NAME
    prompt = read_prompt(tree) if kind is Kind.GENERATION else _inputs_alone(tree)
    return RequestBody(
        model=shared_text(model) if is_named and model else None,
        text=prompt.text,
        has_media=prompt.has_media,
        has_grammar=any(tree.get(key) for key in _GRAMMARS),
        has_tools=bool(tree.get("tools")),
        answers=_whole(_given(tree, _ANSWERS), MAX_COUNT) or 1,
        inputs=max(inputs, _count_inputs(tree, _INPUTS[kind])),
        max_tokens=_whole(_token_bound(tree), MAX_TOKENS),
        adapter_numbers=_adapter_numbers(tree.get("lora")),
        is_complete=is_whole and is_short and problem is None,
        problem=problem,
        unread=unread,
    )


def _parse(part: bytes, *, is_strict: bool) -> tuple[Any, str | None]:
    """The value and what is wrong with it; None for what cannot be read at all."""
    try:
        tree = jiter.from_json(
            part, allow_inf_nan=not is_strict, catch_duplicate_keys=is_strict, cache_mode="keys"
        )
    except ValueError as error:
        return _parse_beginning(part)[0], f"is not JSON: {error}"
    if is_strict and _has_infinity(tree):
        return tree, "has a number that is too large"
    return tree, None


def _has_infinity(tree: object) -> bool:
    rest = [tree]
    while rest:
        value = rest.pop()
        if isinstance(value, dict):
            rest.extend(value.values())
        elif isinstance(value, list):
            rest.extend(value)
        elif isinstance(value, float) and isinf(value):
            return True
    return False


def _parse_beginning(part: bytes) -> tuple[Any, bool]:
    """What stands before the end or the first fault, whichever comes first; None for nothing. And
    whether there is no fault, and a list was the last value at the top to begin."""
    valid = _before_fault_of_utf8(part)
    is_sound = len(part) - len(valid) < MAX_CHAR_BYTES  # half a character is no fault
    for _ in range(2):
        valid = valid.rstrip(NUMBER_END)  # a number at the end may be half of one
        try:
            tree = jiter.from_json(valid, partial_mode="trailing-strings", cache_mode="keys")
        except ValueError as error:
            valid, is_sound = valid[: _place(str(error), valid)], False
        else:
            last = tree[next(reversed(tree))] if isinstance(tree, dict) and tree else None
            return _without_half_a_text(tree, valid), is_sound and isinstance(last, list)
    return None, False


def _before_fault_of_utf8(part: bytes) -> bytes:
    """All of it, or what stands before the first byte that is no UTF-8. O(its size), about 5 us
    for 64 KiB of ASCII.

    The parser itself forgives a text that ends in half a character, closed or not, in one of the
    two ways in which a beginning is read, and raises in the other.
    """
    try:
        part.decode()
    except UnicodeDecodeError as error:
        return part[: error.start]
    return part


def _place(message: str, part: bytes) -> int:
    """Where the fault is, as an index into `part`."""
    found = _PLACE.search(message)
    if found is None:
        return 0
    line, column = int(found[1]), int(found[2])
    start = 0
    for _ in range(line - 1):
        start = part.find(b"\n", start) + 1
    return max(0, start + column - 1)


def _without_half_a_text(tree: Any, part: bytes) -> Any:
    """The last value may be half of a text; of the prompt's, its beginning is what is wanted."""
    if isinstance(tree, dict) and tree:
        key = next(reversed(tree))
        if key not in _PROMPT_KEYS and isinstance(tree[key], str):
            return jiter.from_json(part, partial_mode=True, cache_mode="keys")
    return tree


def _given(tree: Mapping[str, Any], names: tuple[str, ...]) -> object:
    """What stands under the first of these names that is given, None under none."""
    for name in names:
        value = tree.get(name)
        if value is not None:
            return value
    return None


def _token_bound(tree: Mapping[str, Any]) -> object:
    """The most tokens that are wanted; Ollama and SGLang have them among their
    options."""
    options = tree.get("options")
    found = _given(tree, _TOKEN_BOUNDS)
    if found is None and isinstance(options, dict):
        return options.get("num_predict")
    sampling = tree.get("sampling_params")
    return sampling.get("max_new_tokens") if found is None and isinstance(sampling, dict) else found


def _whole(value: object, most: int) -> int | None:
    """A number from 1 to `most` without its fraction, as llama-server reads it; a larger one
    counts as `most`."""
    if isinstance(value, float) and not isfinite(value):
        return None
    if isinstance(value, int | float) and value >= 1:
        return min(int(value), most)
    return None


def _count_inputs(tree: Mapping[str, Any], keys: tuple[str, ...]) -> int:
    """How many inputs: texts or lists of tokens; tokens, or tokens and texts mixed, are one."""
    for key in keys:
        found = tree.get(key)
        if isinstance(found, list) and found and not any(map(_is_token, found)):
            return min(len(found), MAX_COUNT)
    return 1


def _inputs_alone(tree: Mapping[str, Any]) -> Prompt:
    """What is embedded is in no cache: of it counts only what it is made of."""
    return Prompt(has_media=any(has_media(tree.get(key)) for key in _INPUTS[Kind.EMBEDDING]))


def _adapter_numbers(lora: object) -> frozenset[int] | None:
    """The adapters that are wanted by numbers, as llama-server reads them: a missing scale
    is 0, and such an adapter is off."""
    if not lora:
        return None
    entries = lora if isinstance(lora, list) else ()
    return frozenset(
        entry["id"]
        for entry in entries
        if isinstance(entry, dict) and type(entry.get("id")) is int and _is_on(entry.get("scale"))
    )


def _is_on(scale: object) -> bool:
    return isinstance(scale, int | float) and scale != 0


def _is_token(value: object) -> bool:
    return isinstance(value, int | float)
