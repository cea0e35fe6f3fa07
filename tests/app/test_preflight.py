"""Claims about extproc/app/preflight.py: all that forbids a start is told, and at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from extproc.app.preflight import (
    awaits_file,
    envoy_problems,
    followed_problems,
    startup_problems,
)
from extproc.settings import Settings

GONE = "/no/such/file"


def settings(**values: Any) -> Settings:
    return Settings.model_validate(values)


BROKEN = {
    "endpoints": [
        {"address": "https://10.0.0.5:8080", "ca_file": GONE},
        {"address": "10.0.0.6:8080", "api_key_file": GONE},
    ],
    "discovery": {"dns": [{"name": "gpus.example", "port": 8080, "api_key_env": "NO_SUCH_KEY"}]},
    "admin": {"token_env": "NO_SUCH_TOKEN"},
    "agents": {"token_file": GONE},
    "grpc_tls": {"cert_file": GONE, "key_file": GONE},
    "admin_tls": {"cert_file": GONE, "key_file": GONE},
    "listen": {"grpc": "0.0.0.0:9002"},
    "clients": {"keys_file": GONE},
    "usage": {"path": GONE},
}


def test_each_reason_is_reported_once() -> None:
    """None of them hides another, and each says whose it is."""
    told = [(problem.where, problem.key) for problem in startup_problems(settings(**BROKEN))]
    assert told == [
        ("10.0.0.6:8080", "API key"),
        ("gpus.example:8080", "API key"),
        ("https://10.0.0.5:8080", "ca_file"),
        ("", "admin.token_env"),
        ("", "agents.token_file"),
        ("", "grpc_tls"),
        ("", "admin_tls"),
        ("", "listen.grpc"),
        (GONE, "clients.keys_file"),
    ]
    assert startup_problems(Settings()) == ()


@pytest.mark.parametrize(
    ("place", "values"),
    [
        (
            ("", ""),
            {
                "endpoints": [
                    {"address": "10.0.0.5:1", "api_key_env": "GPU_KEY", "inject_key": True}
                ],
                "envoy": {"discovery": False},
            },
        ),
    ],
)
def test_what_no_envoy_could_be_set_up_for(
    place: tuple[str, str], values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`serve` would serve, and `config envoy` refuse."""
    monkeypatch.setenv("GPU_KEY", "sk-gpu")
    assert startup_problems(settings(**values)) == ()
    (problem,) = envoy_problems(settings(**values))
    assert (problem.where, problem.key) == place and "sk-gpu" not in str(problem)


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        ("endpoint: []", "endpoints"),
        ("endpoints: [{address: 'a:1', api_key_env: NO_SUCH_KEY}]", "NO_SUCH_KEY"),
        ("endpoints: [{address: 'https://a:1', ca_file: /no/such/file}]", "/no/such/file"),
    ],
)
def test_the_endpoints_file_is_read_too(tmp_path: Path, content: str, wrong: str) -> None:
    """A picker would start and wait for a better one."""
    file = tmp_path / "fleet.yaml"
    file.write_text(content, encoding="utf-8")
    followed = settings(discovery={"file": str(file)})
    assert startup_problems(followed) == () and not awaits_file(followed)
    (problem,) = followed_problems(followed)
    assert wrong in str(problem)


def test_a_file_that_is_no_file(tmp_path: Path) -> None:
    (problem,) = followed_problems(settings(discovery={"file": str(tmp_path)}))
    assert str(tmp_path) in str(problem)


def test_an_endpoints_file_may_come_later(tmp_path: Path) -> None:
    """That is no mistake, and worth a word."""
    awaited = settings(discovery={"file": str(tmp_path / "fleet.yaml")})
    assert startup_problems(awaited) == followed_problems(awaited) == envoy_problems(awaited) == ()
    assert awaits_file(awaited) and not awaits_file(Settings())


def test_what_a_picker_can_do_without_is_a_mistake_and_no_obstacle(tmp_path: Path) -> None:
    """`serve` starts and says so; `config check` reports it."""
    damaged = tmp_path / "usage.db"
    damaged.write_bytes(b"SQLite format 3\0" + b"\xa5" * 8_000)
    for values, key in (
        ({"usage": {"path": GONE}}, "usage.path"),
        ({"usage": {"path": str(damaged)}}, "usage.path"),
        ({"scale": {"command": [GONE], "models": {"qwen": {}}}}, "scale.command"),
    ):
        assert startup_problems(settings(**values)) == ()
        assert [problem.key for problem in followed_problems(settings(**values))] == [key]
