"""Claims about extproc/settings/load.py and the file and environment readers below it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from extproc.settings import Settings, SettingsError, load_settings
from extproc.settings.yaml_file import MAX_FILE_BYTES, parse_yaml


def write(folder: Path, text: str) -> Path:
    file = folder / "coxswain.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def problems_of(file: Path | None = None, **sources: object) -> list[str]:
    environ = sources.get("environ", {})
    flags = sources.get("flags", {})
    assert isinstance(environ, dict)
    assert isinstance(flags, dict)
    with pytest.raises(SettingsError) as caught:
        load_settings(file, flags=flags, environ=environ)
    return [str(problem) for problem in caught.value.problems]


def test_nothing_given_is_the_defaults() -> None:
    """Without flags, environment and file the settings are those of the model."""
    assert load_settings(environ={}) == Settings()


def test_order_of_sources(tmp_path: Path) -> None:
    """A flag beats the environment, which beats the file, which beats the default."""
    file = write(tmp_path, "queue: {max_requests: 1, timeout_s: 1}\ndrain_timeout_s: 1\n")
    environ = {"COXSWAIN_QUEUE__MAX_REQUESTS": "2", "COXSWAIN_QUEUE__TIMEOUT_S": "2"}
    settings = load_settings(file, flags={"queue.max_requests": 3}, environ=environ)
    assert settings.queue.max_requests == 3
    assert settings.queue.timeout_s == 2
    assert settings.drain_timeout_s == 1
    assert settings.picker.fallbacks == 2


def test_file_by_environment(tmp_path: Path) -> None:
    """COXSWAIN_CONFIG names the file where no flag does."""
    file = write(tmp_path, "response_headers: false\n")
    assert load_settings(environ={"COXSWAIN_CONFIG": str(file)}).response_headers is False


def test_endpoints_both_ways(tmp_path: Path) -> None:
    """An endpoint is a plain address or a section; the environment takes a list with commas."""
    file = write(tmp_path, "endpoints:\n- 10.0.0.1:8080\n- {address: 'gpu-1:81', slots: 4}\n")
    one, two = load_settings(file, environ={}).endpoints
    assert (one.host, one.port, one.slots) == ("10.0.0.1", 8080, None)
    assert (two.host, two.port, two.slots) == ("gpu-1", 81, 4)
    settings = load_settings(environ={"COXSWAIN_ENDPOINTS": "[::1]:80, gpu-1:81,"})
    assert [endpoint.address for endpoint in settings.endpoints] == ["[::1]:80", "gpu-1:81"]
    json_list = '[{"address": "gpu-1:81", "name": "big"}]'
    settings = load_settings(environ={"COXSWAIN_ENDPOINTS": json_list})
    assert settings.endpoints[0].name == "big"


def test_models_and_objectives_from_the_environment() -> None:
    """Both are JSON there, as in a flag; a mistake in them is told by the key inside."""
    environ = {
        "COXSWAIN_MODELS": '{"chat": "tiny", "mix": {"tiny": 3, "small": 1}}',
        "COXSWAIN_OBJECTIVES": '{"chat": {"criticality": "critical", "weight": 2}}',
    }
    settings = load_settings(environ=environ)
    assert settings.models == {"chat": {"tiny": 1.0}, "mix": {"tiny": 3.0, "small": 1.0}}
    assert settings.objectives["chat"].criticality == "critical"
    assert load_settings(flags={"models": '{"a": "b"}'}, environ={}).models == {"a": {"b": 1.0}}
    wrong = {
        "COXSWAIN_MODELS": '{"chat": {"tiny": 0}}',
        "COXSWAIN_OBJECTIVES": '{"chat": ',
    }
    with pytest.raises(SettingsError) as caught:
        load_settings(environ=wrong)
    assert [str(problem) for problem in caught.value.problems] == [
        "COXSWAIN_MODELS: models.chat.tiny: expected more than 0, got the number 0",
        "COXSWAIN_OBJECTIVES: objectives: this is not a valid JSON object",
    ]


def test_json_of_any_depth_is_a_mistake_like_any_other() -> None:
    deep = '{"a":' * 100_000
    flags = {"models": deep, "endpoints": '[{"address": ' + deep}
    with pytest.raises(SettingsError) as caught:
        load_settings(flags=flags, environ={})
    assert sorted(problem.message for problem in caught.value.problems) == [
        "this is not a valid JSON object",
        "this is not a valid list",
    ]


def test_models_and_objectives_that_are_all_commented_out(tmp_path: Path) -> None:
    """As for every other section: nothing below the key is an empty section."""
    file = write(tmp_path, "models:\n#  chat: tiny\nobjectives:\n#  chat: {}\n")
    settings = load_settings(file, environ={})
    assert (settings.models, settings.objectives) == ({}, {})


def test_a_server_written_as_a_url() -> None:
    """https:// is how a server behind TLS is named, in any case of letters; http:// is too much,
    and the answer says which of both to write."""
    settings = load_settings(flags={"endpoints": "HTTPS://gpu-1:443"}, environ={})
    assert settings.endpoints[0].address == "https://gpu-1:443" and settings.endpoints[0].is_tls
    flags = {"endpoints": "http://gpu-1:80", "envoy.picker": "grpc://a:1"}
    either = "write host:port without http://, or https://host:port if it uses TLS"
    with pytest.raises(SettingsError) as caught:
        load_settings(flags=flags, environ={})
    assert [str(problem) for problem in caught.value.problems] == [
        f"flag: endpoints[0].address: {either}",
        "flag: envoy.picker: write host:port, without grpc://",
    ]


def test_every_mistake_by_its_line(tmp_path: Path) -> None:
    """All mistakes come at once, each with file, line, key and what is expected."""
    file = write(
        tmp_path,
        "queue:\n"
        "  max_requets: 5\n"
        "  timeout_s: soon\n"
        "endpoints:\n"
        "  - 10.0.0.1:80800\n"
        "  - name: big\n"
        "log: {format: jsn}\n"
        "max_requests: 4\n"
        "scraper: 4\n"
        "picker: {fallbacks: -1}\n",
    )
    assert problems_of(file) == [
        f"{file}:2: queue.max_requets: unknown key; did you mean queue.max_requests?",
        f"{file}:3: queue.timeout_s: expected a number, got a text",
        f"{file}:5: endpoints[0].address: '80800' is not a port; ports are 1 to 65535",
        f"{file}:6: endpoints[1].address: this key must be given",
        f"{file}:7: log.format: expected one of human, json; did you mean json?",
        f"{file}:8: max_requests: unknown key; did you mean queue.max_requests?",
        f"{file}:9: scraper: expected a section with keys below it, got the number 4",
        f"{file}:10: picker.fallbacks: expected at least 0, got the number -1",
    ]


def test_mistakes_of_the_environment() -> None:
    """A misspelt variable is named with the right one, a wrong value with its variable."""
    environ = {
        "COXSWAIN_QUEUE__MAX_REQUEST": "3",
        "COXSWAIN_PICKER__FALLBACKS": "9",
        "COXSWAIN_QUEUE_TIMEOUT_S": "3",
        "COXSWAIN_XYZZY": "",
    }
    unknown = "no setting has this name"
    assert problems_of(environ=environ) == [
        f"COXSWAIN_QUEUE_TIMEOUT_S: {unknown}; did you mean COXSWAIN_QUEUE__TIMEOUT_S?",
        f"COXSWAIN_QUEUE__MAX_REQUEST: {unknown}; did you mean COXSWAIN_QUEUE__MAX_REQUESTS?",
        f"COXSWAIN_XYZZY: {unknown}",
        "COXSWAIN_PICKER__FALLBACKS: picker.fallbacks: expected at most 2, got the number 9",
    ]


def test_unknown_flag() -> None:
    """A flag for a key that does not exist is named with the nearest one."""
    assert problems_of(flags={"queue.timeout": 3}) == [
        "flag: queue.timeout: unknown key; did you mean queue.timeout_s?"
    ]


def test_kubernetes_service_links_are_no_settings() -> None:
    """A pod beside a Service named coxswain, or coxswain-admin, starts."""
    environ = {
        "COXSWAIN_SERVICE_HOST": "10.1.1.1",
        "COXSWAIN_SERVICE_PORT": "9002",
        "COXSWAIN_SERVICE_PORT_GRPC": "9002",
        "COXSWAIN_PORT": "tcp://10.1.1.1:9002",
        "COXSWAIN_PORT_9002_TCP": "tcp://10.1.1.1:9002",
        "COXSWAIN_PORT_9002_TCP_ADDR": "10.1.1.1",
        "COXSWAIN_ADMIN_PORT_9003_TCP_PROTO": "tcp",
    }
    assert load_settings(environ=environ) == Settings()


def test_empty_variable_counts_as_unset() -> None:
    """What a compose file passes on as `${X:-}` changes nothing."""
    assert load_settings(environ={"COXSWAIN_QUEUE__MAX_REQUESTS": " "}) == Settings()


@pytest.mark.parametrize("text", ["# nothing\n", "---\n", "queue:\nendpoints:\nlog:\n"])
def test_a_file_without_keys_and_empty_sections(tmp_path: Path, text: str) -> None:
    """A file whose keys are all commented out is fine."""
    assert load_settings(write(tmp_path, text), environ={}) == Settings()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("queue: [\n", ":2:1: this is not YAML: "),
        ("a: b: c\n", ":1:5: this is not YAML: "),
        ("queue:\n\ttimeout_s: 1\n", ":2:1: this is not YAML: "),
        ("- a\n- b\n", ":1: a settings file contains `key: value` lines"),
        ("just words\n", ":1: a settings file contains `key: value` lines"),
        ("a: 1\n---\nb: 1\n", ":2:1: this is not YAML: "),
        ("log: {}\nlog: {}\n", ":2: log: this key is duplicated; the first one is on line 1"),
        ("? [1]\n: 2\n", ":1: a key must be a plain word"),
        ("queue: &a {x: *a}\n", "nested too deeply"),
        ("queue: {timeout_s: \x07}\n", "characters that YAML forbids"),
        ('a: "\\U00110000"\n', "characters that YAML forbids"),
        ('a: "\\UFFFFFFFF"\n', "characters that YAML forbids"),
        ("discovery: {file: ~nobody-of-this-name/f}\n", ":1: discovery.file: the home folder"),
        ("admin: {token_file: ~nobody-of-this-name/f}\n", ":1: admin.token_file: the home folder"),
        ("grpc_tls: {cert_file: ~nobody-of-this-name/f, key_file: k}\n", "the home folder"),
        ('clients: {keys_file: "a\\0"}\n', ":1: clients.keys_file: a file name must not contain"),
        (f"discovery: {{file: {'x' * 256}}}\n", ":1: discovery.file: a file name has at most"),
        (f"discovery: {{file: {'x/' * 2_048}}}\n", ":1: discovery.file: a path has at most"),
        ("queue: !!python/object:os.system {}\n", "queue"),
        ("drain_timeout_s: 2026-99-99\n", ":1: drain_timeout_s: expected a number, got a text"),
        ('drain_timeout_s: !!float ""\n', ":1: drain_timeout_s: expected a number, got an empty"),
        ("drain_timeout_s: !!bool maybe\n", ":1: drain_timeout_s: expected a number, got a text"),
        ("drain_timeout_s: !!timestamp x\n", ":1: drain_timeout_s: expected a number, got a text"),
        ("drain_timeout_s: .inf\n", ":1: drain_timeout_s: expected"),
        ("drain_timeout_s:\n", ":1: drain_timeout_s: expected a number, got nothing"),
        ("queue: {max_requests: true}\n", ":1: queue.max_requests: expected a number, got true"),
        ("queue: {max_requests: 1.5}\n", "expected a whole number, got the number 1.5"),
        ("endpoints: [5]\n", ":1: endpoints[0]: write host:port, or a section with an address"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, told: str) -> None:
    """Whatever stands in the file: a sentence with its place, never a traceback."""
    if text.startswith("queue: !!python"):
        assert load_settings(write(tmp_path, text), environ={}) == Settings()
        return
    assert told in problems_of(write(tmp_path, text))[0]


def test_aliases_cannot_multiply() -> None:
    """A few lines of YAML that would grow to billions of values are rejected at once."""
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    for name, last in zip("bcdefghi", "abcdefgh", strict=True):
        lines.append(f"{name}: &{name} [{', '.join([f'*{last}'] * 9)}]")
    with pytest.raises(SettingsError, match="repeats"):
        parse_yaml("\n".join(lines).encode(), "bomb.yaml")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """A missing file, a folder, a huge file and one that is no text are told as such."""
    missing = tmp_path / "missing.yaml"
    assert problems_of(missing) == [
        f"{missing}: the settings file cannot be read: no such file or directory"
    ]
    assert "is a directory" in problems_of(tmp_path)[0]
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    assert "larger than 1 MiB" in problems_of(large)[0]
    for cut in ("", "\n"):
        (tmp_path / "cut.yaml").write_text(cut)
        assert "the settings file is empty" in problems_of(tmp_path / "cut.yaml")[0]
    os.mkfifo(tmp_path / "pipe")  # nobody writes to it
    assert "the settings file is empty" in problems_of(tmp_path / "pipe")[0]
    assert load_settings(Path(os.devnull), environ={}) == Settings()
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"queue:\n\xff\xfe")
    assert problems_of(binary) == [f"{binary}:2: this is not UTF-8 text"]


def test_file_and_environment_are_reported_together(tmp_path: Path) -> None:
    """A broken file does not hide a misspelt variable."""
    told = problems_of(tmp_path / "missing.yaml", environ={"COXSWAIN_LOGS": "x"})
    assert len(told) == 2


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40))
@example("hunter2-sk-0123456789")
def test_texts_are_never_echoed(secret: str) -> None:
    """A text given for the wrong setting does not end up in the error: it may be a key."""
    marked = f"s3cr3t{secret}"
    for key in ("drain_timeout_s", "response_headers", "log.level", "envoy.blocked_paths"):
        with pytest.raises(SettingsError) as caught:
            load_settings(flags={key: marked}, environ={})
        assert "s3cr3t" not in str(caught.value)


@given(st.binary(max_size=200))
@example(b"a: \xc2\x85b: [")
@example(b"? ")
@example(b"<<: 1")
def test_any_bytes_are_settings_or_an_error(content: bytes) -> None:
    """No content of a file raises anything but SettingsError."""
    with contextlib.suppress(SettingsError):
        parse_yaml(content, "x.yaml")
