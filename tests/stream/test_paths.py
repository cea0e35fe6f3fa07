"""Claims about extproc/stream/paths.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.core.request import Kind
from extproc.stream.paths import SLOT_PATHS, normalised, slot_kind

OF_LLAMA_SERVER = """
/completion /completions /v1/completions /chat/completions /v1/chat/completions /infill
/responses /v1/responses /v1/messages /audio/transcriptions /v1/audio/transcriptions
/embedding /embeddings /v1/embeddings /rerank /reranking /v1/rerank /v1/reranking
"""


@pytest.mark.parametrize("path", OF_LLAMA_SERVER.split())
def test_each_of_llama_servers_slot_paths_is_known(path: str) -> None:
    """A path that is forgotten would overrun full servers."""
    kind = Kind.EMBEDDING if "embed" in path or "rerank" in path else Kind.GENERATION
    assert slot_kind("POST", path) is kind


NAMES = [
    "completions",
    "chat/completions",
    "messages",
    "responses",
    "infill",
    "audio/transcriptions",
]
NAMES += ["embedding", "embeddings", "rerank", "reranking"]


def test_the_table_has_every_name_with_and_without_its_version() -> None:
    """And what only llama.cpp has ever had, once."""
    wanted = {f"{version}/{name}" for name in NAMES for version in ("", "/v1")}
    assert wanted | {"/completion", "/api/chat"} == set(SLOT_PATHS)


@pytest.mark.parametrize("path", sorted(SLOT_PATHS))
def test_each_of_the_table(path: str) -> None:
    """A POST takes a slot, however the path is spelt; other methods do not."""
    for spelling in (
        path,
        f"{path}?stream=true",
        f"{path}/",
        f"/{path}",
        f"/props/..{path}",
        path.replace("e", "%65"),
        f"{path}?x=/../health",
        f"{path}#part",
    ):
        assert slot_kind("POST", spelling) is not None, spelling
    for method in ("GET", "HEAD", "OPTIONS", "post", ""):
        assert slot_kind(method, path) is None


@pytest.mark.parametrize(
    "path",
    [
        "/health",
        "/v1/models",
        "/props",
        "/slots",
        "/tokenize",
        "/detokenize",
        "/apply-template",
        "/v1/messages/count_tokens",
        "/v1/responses/input_tokens",
        "/v1/chat/completions/control",
        "/completion/..",
        "/completionx",
        "/V1/COMPLETIONS",
        "/%2563ompletions",
        "/",
        "",
        "?",
        "*",
    ],
)
def test_others_take_none(path: str) -> None:
    """What llama.cpp answers beside its slots is never queued."""
    assert slot_kind("POST", path) is None


@given(st.text())
def test_any_path_has_one_spelling(path: str) -> None:
    """No text breaks it; the spelling starts with one slash, ends with none, has no dots."""
    plain = normalised(path)
    assert plain == "/" or (plain[0] == "/" and plain[1:2] != "/" and plain[-1] != "/")
    assert not {"", ".", ".."} & set(plain.split("/")[2:])


@given(st.binary())
def test_broken_bytes_are_a_path(data: bytes) -> None:
    """Percent escapes that are no UTF-8, and bytes that were replaced on the way."""
    slot_kind("POST", data.decode(errors="replace"))
    slot_kind("POST", "/" + "".join(f"%{byte:02x}" for byte in data))
