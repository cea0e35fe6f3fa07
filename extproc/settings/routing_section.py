"""What decides where a request goes, and how long it may wait for that."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from extproc.settings.section import Section
from extproc.settings.values import Count, PathPrefix, Seconds, Whole


class QueueSettings(Section):
    """The line in which requests wait for a free slot."""

    max_requests: Count = Field(
        default=1024,
        description="How many requests may wait. One more is answered 429; 0 lets nobody wait.",
    )
    max_bytes: Whole = Field(
        default=1024 * 1024 * 1024,
        ge=0,
        le=10**15,
        description="How much of the bodies of waiting requests may be kept, by Envoy or, in full "
        "duplex, by Coxswain: up to envoy.body_buffer_bytes of each. A request whose body is "
        "longer than 64 KiB and does not fit is answered 429.",
    )
    timeout_s: Seconds = Field(
        default=60.0,
        description="The longest wait in seconds, then 504. A request may ask for less with "
        "the header x-coxswain-queue-timeout-ms, never for more.",
    )


class RoutingSettings(Section):
    """What of a request decides where it goes."""

    read_body: Literal["auto", "never"] = Field(
        default="auto",
        description="Whether the beginning of a body is read: model, prompt, n, adapter. `auto` "
        "reads what may be JSON and takes a slot; `never` decides by the headers alone, and "
        "every request then counts as one slot. Envoy must allow mode overrides.",
    )
    body_limit_bytes: Whole = Field(
        default=65_536,
        ge=1,
        le=16 * 1024 * 1024,
        description="How much of a body's beginning is read at most. Of the rest only the last "
        "4 KiB are looked at, for the model, where Envoy has the whole body.",
    )
    body_errors: Literal["lenient", "strict"] = Field(
        default="lenient",
        description="What becomes of a body that cannot be read: `lenient` routes it without "
        "what could not be read, `strict` answers 400.",
    )
    path_prefix: PathPrefix = Field(
        default="",
        description="Below which path clients find the API besides the root, such as `/llama`: "
        "where servers have scraper.path_prefix, or a gateway takes a prefix off behind the "
        "picker. The picker and the printed configuration must agree on it.",
    )
    model_match: Literal["lenient", "strict"] = Field(
        default="lenient",
        description="What becomes of a model that no endpoint reports: `lenient` sends it "
        "anywhere, as llama-server itself ignores the name; `strict` answers 404 when none ever "
        "reported it, and waits when those that did are gone.",
    )


class PickerSettings(Section):
    """How an endpoint is chosen."""

    fallbacks: Whole = Field(
        default=2,
        ge=0,
        le=2,
        description="How many further endpoints Envoy may try when the chosen one fails.",
    )
