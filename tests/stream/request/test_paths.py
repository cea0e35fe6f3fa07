"""Claims about extproc/stream/request/paths.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.core.rejection import Reason
from extproc.core.request import Kind
from extproc.runners.apis import SLOT_PATHS
from extproc.security.path_rule import PathRule
from extproc.stream.request.paths import Paths, normalised

PATHS = Paths()
slot_kind = PATHS.slot_kind

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


OF_OTHERS = {
    *("/api/generate", "/api/chat", "/api/embed", "/api/embeddings"),
    *("/score", "/v1/score", "/pooling", "/classify"),
    *("/generate", "/encode", "/api/v1/chat"),
}


def test_the_table_has_every_name_with_and_without_its_version() -> None:
    """And what only one kind of server has, once."""
    wanted = {f"{version}/{name}" for name in NAMES for version in ("", "/v1")}
    assert wanted | {"/completion"} | OF_OTHERS == set(SLOT_PATHS)


@pytest.mark.parametrize(
    ("path", "api"),
    [
        ("/v1/chat/completions", None),
        ("/v1/models", None),
        ("/nothing", None),
        ("/completion", "llama-server"),
        ("/completion/?a=b", "llama-server"),
        ("/", "llama-server"),
        ("/v1/rerank", "rerank"),
        ("/tokenize", "tokenize"),
        ("/api/chat", "ollama"),
        ("//api/./pull", "ollama"),
        ("/api/blobs/sha256:1", "ollama"),
        ("/score", "vllm"),
    ],
)
def test_each_path_belongs_to_one_api_or_to_all(path: str, api: str | None) -> None:
    """In any spelling, open or closed."""
    found = PATHS.api_of(path)
    assert (found and found.name) == api


@pytest.mark.parametrize(
    "path",
    [
        *("/api/pull", "/api/push", "/api/create", "/api/copy", "/api/delete"),
        *("/api/blobs/sha256:1", "/api/experimental/aliases", "/api/me", "/api/user/keys/a"),
        *("/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/sleep", "/wake_up"),
    ],
)
def test_what_changes_a_server_for_all_is_closed_by_each_method(path: str) -> None:
    for method in ("GET", "POST", "DELETE", "PUT"):
        assert PATHS.why_closed(method, path) is Reason.BLOCKED_PATH


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


def rules(*texts: str) -> tuple[PathRule, ...]:
    return tuple(map(PathRule.parse, texts))


@pytest.mark.parametrize("path", sorted(SLOT_PATHS))
def test_slots_are_taken_below_the_prefix_too(path: str) -> None:
    """And below no other."""
    paths = Paths("/llama")
    for spelling in (path, f"/llama{path}", f"/llama{path}/", f"//llama/{path}?x=1"):
        assert paths.slot_kind("POST", spelling) is SLOT_PATHS[path], spelling
        assert not paths.is_closed("POST", spelling)
    for spelling in (f"/other{path}", f"/llama/llama{path}"):
        assert paths.slot_kind("POST", spelling) is None
        assert paths.is_closed("POST", spelling)
    assert PATHS.slot_kind("POST", f"/llama{path}") is None
    assert PATHS.is_closed("POST", f"/llama{path}")


def test_the_models_are_asked_for_below_the_prefix_too() -> None:
    for path in ("/v1/models", "/llama/v1/models", "/llama/models/"):
        assert Paths("/llama").asks_for_models("GET", path)
    assert not PATHS.asks_for_models("GET", "/llama/v1/models")


def test_health_is_asked_for_on_open_paths() -> None:
    for path in ("/health", "/v1/health", "/llama/health/", "//v1/./health"):
        assert Paths("/llama").asks_for_health("GET", path)
    assert not PATHS.asks_for_health("GET", "/llama/health")
    assert not PATHS.asks_for_health("POST", "/health")
    assert not PATHS.asks_for_health("GET", "/healthz")
    assert not Paths(blocked=rules("/health")).asks_for_health("GET", "/health")


OPEN = """
GET /health | GET /v1/health | GET /v1/models | GET /models | GET /props | GET /props?model=m
POST /tokenize | POST /detokenize | POST /apply-template | POST /v1/messages/count_tokens
POST /v1/chat/completions/input_tokens | POST /v1/responses/input_tokens
GET / | HEAD / | GET /index.html | GET /?x=1 | GET /bundle.js | GET /bundle.css | GET /build.json
GET /_app/immutable/bundle.Dz0tER.js | GET /_app/immutable/assets/bundle.x.css
GET /_app/version.json | GET /sw.js | GET /workbox-1a2b3c.js | GET /manifest.webmanifest
GET /favicon.ico | GET /favicon-dark.svg | GET /pwa-64x64.png | GET /recommended-mcp/exa.png
GET /loading.html | HEAD /v1/models
GET /v1/stream?conv_id=1 | HEAD /v1/stream | DELETE /v1/stream/ | POST /v1/streams/lookup
"""
SHUT = """
GET /slots | POST /slots/0?action=erase | GET /metrics | POST /props | GET /lora-adapters
POST /lora-adapters | POST /models | DELETE /models | POST /models/load | POST /models/unload
GET /models/sse | GET /tools | POST /tools | GET /cors-proxy?url=http://x | POST /predict
POST /v1/chat/completions/control | HEAD /slots
GET /%73lots | GET //slots | GET /props/../slots | GET /health/%2e%2e/slots | GET /%u0073lots
GET /_app/../slots | GET /_app/%u002e%u002e/slots | GET /_app/%252e%252e/slots
GET /v1/models/%u0073lots
"""
UNKNOWN = """
POST /sw.js | GET /v1/chat/completions | PUT /v1/chat/completions | BREW /health | PUT /props
GET /prefix/health | GET /x/index.html | GET /SLOTS | GET /HEALTH | GET /v1 | GET /health/x
GET /slots%3f.js | GET /slots%00.js | GET \\slots | GET http://elsewhere/slots | GET /v2/models/a
GET /v1/stream/abc | DELETE /v1/stream/abc | GET /v1/stream/abc.js | POST /v1/stream
GET /v1/streams | GET /v1/streams/lookup | GET /V1/stream | PUT /v1/stream
POST /v1/embedding/x | GET /prefix/slots | POST /v1/models/a | GET /v1/threads | GET /favicon
"""


def each(lines: str) -> list[str]:
    return [one.strip() for line in lines.split("\n") for one in line.split("|") if one.strip()]


@pytest.mark.parametrize("asked", each(OPEN))
def test_what_llama_server_serves_to_users_is_open(asked: str) -> None:
    assert not PATHS.is_closed(*asked.split())
    assert PATHS.why_closed(*asked.split()) is None


@pytest.mark.parametrize("asked", each(SHUT))
def test_what_clients_must_not_use_is_closed(asked: str) -> None:
    """The rest of llama-server's routes."""
    assert PATHS.is_closed(*asked.split())
    assert PATHS.why_closed(*asked.split()) is Reason.BLOCKED_PATH


@pytest.mark.parametrize("asked", each(UNKNOWN))
def test_what_is_not_known_reaches_no_server(asked: str) -> None:
    """A later llama-server may have it, but nothing is closed on purpose: the client reads 404."""
    assert PATHS.is_closed(*asked.split())
    assert PATHS.why_closed(*asked.split()) is Reason.UNKNOWN_PATH


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("GET /v1/models/tiny", "tiny"),
        ("HEAD /models/tiny?x=1", "tiny"),
        ("GET /v1/models/org%2Ftiny%3AQ4", "org/tiny:Q4"),
        ("GET //v1/models/org/my%20model/", "org/my model"),
        ("GET /llama/v1/models/a", "a"),
        ("GET /v1/models/v1/models/a", "v1/models/a"),
        ("GET /models/load", None),
        ("GET /v1/models/", None),
        ("GET /v1/models", None),
        ("POST /v1/models/tiny", None),
        ("GET /other/v1/models/tiny", None),
        ("GET /models/../slots", None),
        ("GET /v1/models/secret", None),
        ("GET /models/sse", None),
        ("GET /v1/models/sse", "sse"),
    ],
)
def test_one_model_is_asked_for_by_its_name(asked: str, name: str | None) -> None:
    """In any spelling and below the prefix, but not where a rule of the settings stands."""
    paths = Paths("/llama", rules("GET /models/sse"), rules("/v1/models/secret"))
    assert paths.asks_for_model(*asked.split()) == name


def test_what_the_settings_open_for_one_method_is_unknown_to_others() -> None:
    paths = Paths("", rules("GET /slots", "/tools"), rules("/metrics", "GET /"))
    assert paths.why_closed("GET", "/slots") is paths.why_closed("PUT", "/tools") is None
    assert paths.why_closed("POST", "/slots") is Reason.UNKNOWN_PATH
    for asked in ("GET /slots/0", "GET /tools/0", "GET /Metrics", "GET /"):
        assert paths.why_closed(*asked.split()) is Reason.BLOCKED_PATH, asked


def test_the_settings_open_more_and_close_more() -> None:
    """What is blocked is so also where it is open; a slot path that is blocked takes no slot."""
    paths = Paths("", rules("GET /slots*", "/static*"), rules("/static/private*", "POST /infill"))
    assert not paths.is_closed("GET", "/slots/0") and paths.is_closed("POST", "/slots/0")
    assert not paths.is_closed("PUT", "/static/a") and paths.is_closed("PUT", "/static/private/a")
    assert paths.slot_kind("POST", "/infill") is None and paths.is_closed("POST", "/infill")
    assert paths.slot_kind("POST", "//infill/") is None
    assert paths.slot_kind("POST", "/completion") is Kind.GENERATION


def test_what_is_hidden_stays_closed_where_all_is_open() -> None:
    paths = Paths("", rules("/*"), rules("/slots*"))
    assert not paths.is_closed("BREW", "/any/thing")
    for path in ("/slots", "/%73lots", "/%u0073lots", "/a/../SLOTS/1", "/%2573lots"):
        assert paths.is_closed("GET", path), path


def test_a_path_that_nobody_reported_is_not_judged() -> None:
    """Some gateways tell none; their own routes have to close what must be."""
    assert not PATHS.is_closed("POST", "")
    assert not PATHS.is_closed("GET", "?x=1")


@given(st.text(), st.text())
def test_any_method_and_path_are_judged(method: str, path: str) -> None:
    """Without an error, and what takes a slot is open."""
    for paths in (PATHS, Paths("/llama", rules("/*"))):
        if paths.slot_kind(method, path) is not None:
            assert not paths.is_closed(method, path)
        else:
            paths.is_closed(method, path)


def test_a_path_that_takes_a_slot_has_one_plain_form() -> None:
    """Below the prefix and in any spelling; what takes none stays as it is."""
    paths = Paths("/llama")
    for spelled in ("/v1/embeddings", "/llama/v1/embeddings", "/llama//v1/./embeddings/?x=1"):
        assert paths.below_prefix(spelled) == "/v1/embeddings"
    assert paths.below_prefix("/v1/%65mbeddings") == "/v1/embeddings"
    for other in ("/health", "/llama/health", "/llamas/v1/embeddings", ""):
        assert paths.below_prefix(other) == other
    assert Paths().below_prefix("/llama/v1/embeddings") == "/llama/v1/embeddings"
