"""The paths of Ollama's own API."""

from typing import Final

from extproc.runners.api import Api, kinds, rules

TAGS_PATH: Final = "/api/tags"
RUNNING_PATH: Final = "/api/ps"
VERSION_PATH: Final = "/api/version"

OLLAMA: Final = Api(
    name="ollama",
    slot_paths=kinds(
        generating=("/api/generate", "/api/chat"), embedding=("/api/embed", "/api/embeddings")
    ),
    counting_paths=frozenset({"/api/show"}),
    needs_loaded=False,
    other_paths=rules(f"GET {TAGS_PATH}", f"GET {RUNNING_PATH}", f"GET {VERSION_PATH}"),
    # All but the names of what is open: whatever else there is changes the machine for all clients.
    closed_paths=rules(
        "/api/pull",
        "/api/push",
        "/api/create",
        "/api/copy",
        "/api/delete",
        "/api/blobs*",
        "/api/experimental*",
        "/api/me",
        "/api/signout",
        "/api/user*",
        "/api/status",
    ),
    lenient_paths=frozenset({"/api/chat", "/api/show", TAGS_PATH}),  # of older llama-servers
    has_plain_errors=True,
)
