"""Translates headers and body into the request for the core."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from extproc.core.address import Address
from extproc.core.constraints import NO_NUMBERS
from extproc.core.fleet.resolver import RequestResolver
from extproc.core.prompt_blocks import CHARS_PER_TOKEN, chain
from extproc.core.request import DAMAGED, MEDIA, Kind, Request
from extproc.stream.envoy.codec import RequestHead
from extproc.stream.request.body import RequestBody, read_body
from extproc.stream.request.form import read_form
from extproc.stream.request.lora import BYTE_ORDER_MARK, is_object
from extproc.stream.request.names import UNSAYABLE, names_of, validate_names


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingOptions:
    """Whether bodies are read, and how. `limit_bytes` is how much of each is read for its prompt. A
    body whose announced length is at most `short_bytes` is requested whole; it must fit into
    Envoy's buffer.

    `kept_bytes` is how much of a body is waited for, and held while its request is queued.

    `is_strict` rejects a body that cannot be parsed; otherwise it is routed without the missing
    information. Raises `ValueError` for a limit below 1.
    """

    reads_bodies: bool = True
    limit_bytes: int = 65_536
    short_bytes: int = 65_536
    kept_bytes: int = 4 * 1024 * 1024
    is_strict: bool = False

    def __post_init__(self) -> None:
        if self.limit_bytes < 1:
            raise ValueError(f"limit_bytes must be greater than 0, not {self.limit_bytes}")

    def kept_of(self, head: RequestHead, here_bytes: int, *, has_all: bool) -> int:
        """How many bytes of a body are held while its request is queued, by Envoy or, in full
        duplex, by us; `here_bytes` have arrived, and `has_all` says that these are all."""
        if has_all:
            return here_bytes
        announced_bytes = head.body_bytes
        coming = (
            self.kept_bytes if announced_bytes is None else min(announced_bytes, self.kept_bytes)
        )
        return max(here_bytes, coming)

    def read(self, head: RequestHead, kind: Kind, body: bytes, *, is_whole: bool) -> RequestBody:
        """Read the body of a request with this head: a form, or JSON."""
        if head.form:
            return read_form(body, head.form, is_whole=is_whole)
        if not head.has_json:
            return NO_JSON
        return read_body(
            body.removeprefix(BYTE_ORDER_MARK),
            kind,
            limit_bytes=self.limit_bytes,
            is_whole=is_whole,
            is_strict=self.is_strict,
        )


NO_BODY: Final = RequestBody()
"""The result for a request without a body."""
NOT_READ: Final = RequestBody(unread="was not read")
"""The result for a body that was not requested."""
NO_JSON: Final = RequestBody(unread="is neither JSON nor a form")


def understand(
    head: RequestHead,
    body: RequestBody,
    raw: bytes,
    *,
    kind: Kind,
    is_whole: bool,
    allowed: frozenset[Address] | None,
    longest_s: float,
    resolver: RequestResolver,
    kept_bytes: int = 0,
    is_partial: bool = False,
    path: str = "",
    api: str = "",
) -> Request | str:
    """The request that is meant, or why it cannot be served, for its client.

    `raw` are the bytes of the body that are here, `is_whole` says that these are all. It may
    wait for `longest_s`, or less if it asks for that; `kept_bytes` of its body are kept meanwhile.
    `is_partial` says that a part was waited for, and is not all. `path` is that of the request in
    its plain form, `api` what its server must have. `resolver` is that of its pool.
    """
    model, adapter = names_of(head, body, resolver)
    problem = validate_names(model, adapter, body, raw, resolver, is_whole=is_whole)
    if problem is not None:
        return problem
    asked_s = head.queue_timeout_s
    numbers = body.adapter_numbers or NO_NUMBERS
    may_change = resolver.may_need_rewrite(model, adapter, numbers)
    request = Request(
        id=head.id,
        timeout_s=longest_s if asked_s is None else min(asked_s, longest_s),
        weight_slots=body.weight_slots,
        kind=kind,
        model=model,
        adapter=adapter,
        adapter_numbers=numbers,
        objective=head.objective,
        tenant=head.tenant,
        fairness_id=head.fairness_id,
        session_id=head.session_id,
        prompt_blocks=chain(resolver.names.cache_key_seed(model, adapter, numbers), body.text)
        if body.text
        else (),
        prompt_tokens=_prompt_tokens(head, body),
        max_tokens=body.max_tokens,
        allowed=allowed,
        ttft_s=head.ttft_s,
        # Otherwise it is not kept, or no key can be appended to it.
        is_verbatim=not (may_change and is_whole and is_object(raw)),
        body_bytes=kept_bytes,
        is_uploading=not is_whole,
        traits=_traits(
            head.path, body.has_grammar, body.has_tools, body.has_media, body.is_damaged
        ),
        fingerprint=fingerprint_of(raw, head),
        is_partial=is_partial,
        api=api,
        prompt_chars=0 if body.has_media or body.has_tools else len(body.text),
        path=path or head.path,
        pool=resolver.pool,
    )
    return UNSAYABLE if resolver.needs_impossible_rewrite(request) else request


@lru_cache(maxsize=256)
def _traits(
    path: str, has_grammar: bool, has_tools: bool, has_media: bool, is_damaged: bool
) -> str:
    """The same text for requests that may fail for the same cause."""
    found = {"grammar": has_grammar, "tools": has_tools, MEDIA: has_media, DAMAGED: is_damaged}
    return " ".join([path, *(name for name, is_there in found.items() if is_there)])


def fingerprint_of(raw: bytes, head: RequestHead) -> int:
    """Equal for equal bodies on one path, 0 where none was read. Of a long body its length and
    its ends count. Python's hash has a secret of its own in each process."""
    if not raw:
        return 0
    part = raw if len(raw) <= WHOLE_BYTES else raw[:END_BYTES] + raw[-END_BYTES:]
    return hash((part, len(raw), head.body_bytes, head.path)) or 1


WHOLE_BYTES: Final = 8192
END_BYTES: Final = WHOLE_BYTES // 2


def _prompt_tokens(head: RequestHead, body: RequestBody) -> int | None:
    """The estimated length of the prompt: from its text if it was read completely, else the body's.

    None if the bytes do not show it: images, sounds, compressed bodies or forms.
    """
    if not head.has_json or body.has_media:
        return None
    if body.is_complete and body.text:
        return len(body.text) // CHARS_PER_TOKEN
    if head.body_bytes is None:
        return len(body.text) // CHARS_PER_TOKEN if body.text else None
    return head.body_bytes // CHARS_PER_TOKEN
