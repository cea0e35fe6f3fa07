"""Claims about extproc/security/known_keys.py."""

from __future__ import annotations

import hashlib

import pytest

from extproc.security.known_keys import MAX_KEY_CHARS, KnownKeys, digest_of

KEYS = {digest_of("sk-web"): "web", digest_of("sk-batch"): "batch"}


def test_a_digest_is_the_sha_256_that_everybody_computes() -> None:
    assert digest_of("sk-web") == hashlib.sha256(b"sk-web").hexdigest()


@pytest.mark.parametrize(
    ("authorization", "api_key", "client"),
    [
        ("Bearer sk-web", "", "web"),
        ("bearer  sk-web", "", "web"),
        ("sk-web", "", "web"),
        ("", "sk-batch", "batch"),
        ("Bearer of-another-gate", "sk-batch", "batch"),
        ("Bearer sk-web", "sk-batch", "web"),
        *(("", "", ""), ("Bearer ", "", ""), ("Bearer sk-other", "sk-none", "")),
        *(("Basic sk-web", "", ""), ("Bearer sk-web, Bearer sk-web", "", "")),
        (f"Bearer {digest_of('sk-web')}", "", ""),
        ("Bearer \u00fc\udc80", "\U0001f511", ""),
    ],
)
def test_whose_key_it_is(authorization: str, api_key: str, client: str) -> None:
    """In either header, with the word Bearer or without; a digest opens nothing."""
    assert KnownKeys(KEYS).find(authorization, api_key).client == client


def test_all_keys_change_at_once() -> None:
    keys = KnownKeys(KEYS)
    keys.replace({digest_of("sk-new"): "web"})
    assert keys.find("Bearer sk-new", "").client == "web"
    assert keys.find("Bearer sk-web", "").client == keys.find("", "sk-batch").client == ""
    keys.replace({})
    assert keys.find("Bearer sk-new", "").client == ""


def test_a_long_text_is_no_key() -> None:
    """It is not even hashed: headers may have 60 KB."""
    longest, longer = "k" * MAX_KEY_CHARS, "k" * (MAX_KEY_CHARS + 1)
    keys = KnownKeys({digest_of(longest): "web", digest_of(longer): "web"})
    assert keys.find(longest, "").client == "web" and keys.find(longer, "").client == ""


def test_keys_expire() -> None:
    """One that has expired is nobody's, and is known as such until all change."""
    keys = KnownKeys()
    web, batch = digest_of("sk-web"), digest_of("sk-batch")
    keys.replace(KEYS, {web: 100.0})
    before = keys.names()
    assert keys.ends() == {web: 100.0} and keys.expire(99.9) == []
    assert keys.names() is before and keys.find("sk-web", "").client == "web"
    assert keys.expire(100.0) == ["web"] and keys.expire(100.0) == []
    assert keys.names() == {batch: "batch"} and before == KEYS
    assert not keys.knows(web) and not keys.is_client("web")
    assert keys.find("sk-web", "") == keys.find("", "sk-web") == ("", web)
    assert keys.find("sk-web", "sk-other") == ("", web)
    assert keys.find("sk-web", "sk-batch") == ("batch", batch)
    keys.replace(KEYS)
    assert keys.find("sk-web", "").client == "web"
