"""Claims about extproc/cli: the command line as people and scripts meet it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from extproc.settings import Settings, load_settings, settings_reference, settings_schema
from tests.cli.typed_command import Command

ROOT = Path(__file__).resolve().parents[3]


def test_help_and_version(coxswain: Command) -> None:
    """Help is asked for in three ways and always answers; so does the version."""
    assert "config" in coxswain("--help").out
    assert coxswain("-h").code == 0
    assert "Usage: coxswain" in "".join([(bare := coxswain()).out, bare.err])
    assert coxswain("--version").out.startswith("coxswain ")
    assert "Examples:" in coxswain("config", "check", "--help").out


def test_help_loads_nothing_heavy() -> None:
    """`coxswain --help` imports neither gRPC nor the settings' machinery: it answers at once."""
    script = (
        "import sys; sys.argv = ['coxswain', '--help']\n"
        "from extproc.cli import main\n"
        "try:\n    main()\n"
        "finally:\n"
        "    print(sorted({'grpc', 'pydantic', 'yaml', 'httpx', 'opentelemetry',"
        " 'envoy_data_plane'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.rstrip().endswith("[]")


def test_good_settings(coxswain: Command) -> None:
    """Good settings are said to be good."""
    ended = coxswain("config", "check", "-e", "10.0.0.5:8080", "-e", "gpu-1:8080")
    assert (ended.code, ended.out, ended.err) == (0, "the settings are valid: 2 endpoints\n", "")


def test_bad_settings(coxswain: Command, tmp_path: Path) -> None:
    """Bad settings end with 2 and one line for each mistake, on stderr, without a traceback."""
    file = tmp_path / "coxswain.yaml"
    file.write_text("queue:\n  max_request: 1\n  timeout_s: -1\n", encoding="utf-8")
    ended = coxswain("config", "check", "--config", str(file), "--set", "log.level=loud")
    assert ended.code == 2
    assert ended.out == ""
    assert ended.err.splitlines() == [
        "flag: log.level: expected one of debug, info, warning, error",
        f"{file}:2: queue.max_request: unknown key; did you mean queue.max_requests?",
        f"{file}:3: queue.timeout_s: expected at least 0, got the number -1",
    ]


def test_a_missing_key_is_a_bad_setting(coxswain: Command, tmp_path: Path) -> None:
    """`check` also looks whether each API key is where the settings say."""
    file = tmp_path / "coxswain.yaml"
    file.write_text("endpoints: [{address: 'a:1', api_key_env: NO_SUCH_KEY}]", encoding="utf-8")
    ended = coxswain("config", "check", "-c", str(file))
    assert ended.code == 2
    assert "NO_SUCH_KEY is empty or not set" in ended.err


def test_what_only_shows_at_a_start(coxswain: Command) -> None:
    """`check` tells it, to scripts too; `--insecure` means the same as to `serve`."""
    given = ("config", "check", "--set", "listen.grpc=0.0.0.0:9002")
    ended = coxswain(*given, "--set", "admin.token_file=/no/such")
    assert ended.code == 2
    token, exposed = ended.err.splitlines()
    assert token.startswith("admin.token_file: /no/such") and "--insecure" in exposed
    (problem,) = json.loads(coxswain(*given, "-o", "json").out)["problems"]
    assert problem["key"] == "listen.grpc"
    assert coxswain(*given, "--insecure").code == 0


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "listen: {grpc: '127.0.0.1:7000', admin: '127.0.0.1:7000'}",
            "listen.admin: 127.0.0.1:7000 is also listen.grpc; choose another port",
        ),
        (
            "listen: {admin: '127.0.0.1:9090'}",
            "listen.http: 127.0.0.1:9090 is also listen.admin; choose another port",
        ),
        (
            "listen: {http: '0.0.0.0:9003'}",
            "listen.http: 0.0.0.0:9003 is also listen.admin; choose another port",
        ),
        (
            "listen: {http: 'localhost:9002'}",
            "listen.http: localhost:9002 is also listen.grpc; choose another port",
        ),
        (
            "keda: {listen: '127.0.0.1:9003'}",
            "keda.listen: 127.0.0.1:9003 is also listen.admin; choose another port",
        ),
        (
            "endpoints: ['10.0.0.5:1', 'gpu-1:1', 'GPU-1:1']",
            "{file}:1: endpoints: GPU-1:1 is in the list twice; remove one",
        ),
        (
            "endpoints: ['10.0.0.5:1', 'https://10.0.0.5:1']",
            "{file}:1: endpoints: https://10.0.0.5:1 is in the list twice; remove one",
        ),
        (
            "endpoints: [{address: 'a:1', name: gpu}, {address: 'b:1', name: gpu}]",
            "{file}:1: endpoints: two endpoints have the name gpu; rename one",
        ),
        (
            "# endpoints: ['10.0.0.5:1']",
            (
                "{file}: nothing is set, so there is nothing to check; name a settings file "
                "with --config or in COXSWAIN_CONFIG"
            ),
        ),
    ],
)
def test_what_is_there_twice_or_not_at_all(
    coxswain: Command, tmp_path: Path, text: str, line: str
) -> None:
    file = tmp_path / "coxswain.yaml"
    file.write_text(text, encoding="utf-8")
    ended = coxswain("config", "check", "--config", str(file))
    assert (ended.code, ended.err.splitlines()) == (2, [line.format(file=file)])


def test_a_check_of_nothing_is_no_success(
    coxswain: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who forgets to name the file hears it. The environment counts as much as a file."""
    ended = coxswain("config", "check")
    assert ended.code == 2 and ended.err.startswith("nothing is set")
    monkeypatch.setenv("COXSWAIN_LOG__LEVEL", "debug")
    assert coxswain("config", "check").code == 0


@pytest.mark.parametrize(
    "good",
    [
        "listen: {grpc: '127.0.0.1:0', admin: '127.0.0.1:0', http: '127.0.0.1:0'}",
        "listen: {http: '127.0.0.2:9002'}",
        "endpoints: ['10.0.0.5:1', '10.0.0.5:2', '10.0.0.6:1']",
    ],
)
def test_equal_parts_are_not_the_same(coxswain: Command, tmp_path: Path, good: str) -> None:
    file = tmp_path / "coxswain.yaml"
    file.write_text(good, encoding="utf-8")
    assert coxswain("config", "check", "--config", str(file)).code == 0


def test_envoys_ports_are_not_ours(coxswain: Command) -> None:
    """On one machine they clash, and `config envoy` is to be printed for other ports."""
    given = ("config", "check", "--set", "envoy.listen=0.0.0.0:9002")
    told = coxswain(*given)
    assert told.code == 0
    assert "  envoy.listen: 0.0.0.0:9002 is also listen.grpc; choose another port" in told.out
    elsewhere = coxswain(*given, "--set", "envoy.picker=10.0.0.2:9002").out
    assert "choose another port" not in elsewhere
    own = coxswain("config", "check", "--set", "envoy.admin=127.0.0.1:10000").out
    assert "  envoy.admin: 127.0.0.1:10000 is also envoy.listen; choose another port" in own


def test_what_only_our_configuration_of_envoy_needs(coxswain: Command) -> None:
    """A picker before another Envoy is right to leave it out, so it is told and no mistake."""
    given = ("config", "check", "--set", "listen.grpc=127.0.0.1:0")
    told = coxswain(*given)
    assert told.code == 0
    assert told.out.startswith("the settings are valid")
    assert "`coxswain config envoy` would reject them:\n  listen.grpc uses any" in told.out
    found = json.loads(coxswain(*given, "-o", "json").out)
    assert found["problems"] == []
    (problem,) = found["envoy_problems"]
    assert "envoy.picker" in problem["message"]


def test_an_endpoints_file_that_is_not_there_yet(coxswain: Command, tmp_path: Path) -> None:
    """It is waited for, so the settings are valid."""
    file = tmp_path / "fleet.yaml"
    ended = coxswain("config", "check", "--set", f"discovery.file={file}")
    assert ended.code == 0
    assert ended.out.endswith(f"0 endpoints, and those from {file} (does not exist yet)\n")


def test_show_gives_the_same_settings_again(
    coxswain: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `show` prints is a settings file with the same meaning, and holds no key."""
    monkeypatch.setenv("MY_KEY", "sk-secret")
    monkeypatch.setenv("COXSWAIN_QUEUE__TIMEOUT_S", "7")
    endpoints = '[{"address": "[::1]:80", "api_key_env": "MY_KEY"}]'
    ended = coxswain("config", "show", "--set", f"endpoints={endpoints}")
    assert "sk-secret" not in ended.out
    file = tmp_path / "again.yaml"
    file.write_text(ended.out, encoding="utf-8")
    again = load_settings(file, environ={})
    assert again.queue.timeout_s == 7
    assert again.endpoints[0].api_key_env == "MY_KEY"
    assert again.envoy == Settings().envoy


def test_schema(coxswain: Command) -> None:
    """`schema` prints the JSON schema."""
    assert json.loads(coxswain("config", "schema").out) == settings_schema()


def test_reference_is_the_page_in_docs(coxswain: Command) -> None:
    """docs/settings.md is what the command prints; `make docs` writes it."""
    page = coxswain("config", "reference").out
    assert page == settings_reference()
    assert (ROOT / "docs" / "settings.md").read_text(encoding="utf-8") == page


@pytest.mark.parametrize("wrong", ["queue.timeout_s", "=3", ""])
def test_assignments_have_an_equals_sign(coxswain: Command, wrong: str) -> None:
    """`--set` without KEY=VALUE says how to write it."""
    ended = coxswain("config", "check", "--set", wrong)
    assert ended.code == 2
    assert "KEY=VALUE" in ended.err


@pytest.mark.parametrize("wrong", [["confg"], ["config", "chek"], ["config", "check", "--confi"]])
def test_misspelt_commands(coxswain: Command, wrong: list[str]) -> None:
    """A misspelt command or option ends with 2 and names the right one."""
    ended = coxswain(*wrong)
    assert ended.code == 2
    assert "config" in ended.err or "check" in ended.err


@pytest.mark.parametrize(
    ("command", "choices"),
    [
        (("config", "envoy", "--mode", "wrong"), ("discovery", "gateway", "original-dst")),
        (("config", "envoy", "-o", "wrong"), ("yaml", "json")),
        (("config", "check", "-o", "wrong"), ("table", "json")),
        (("endpoints", "-o", "wrong"), ("table", "json")),
        (("agent", "--log-format", "wrong"), ("human", "json")),
        (("serve", "--set", "log.level=wrong"), ("debug", "info", "warning", "error")),
        (("config", "check", "--set", "routing.read_body=wrong"), ("auto", "never")),
    ],
    ids=" ".join,
)
def test_a_wrong_choice_lists_the_right_ones(
    coxswain: Command, command: tuple[str, ...], choices: tuple[str, ...]
) -> None:
    rejected = coxswain(*command)
    assert rejected.code == 2 and rejected.out == ""
    assert all(choice in rejected.err for choice in choices)


def test_servers_with_commas_and_blanks_between(coxswain: Command) -> None:
    """`serve`, `up` and `config` read them alike."""
    checked = coxswain("config", "check", "--endpoint", "gpu-1:1, [::1]:2,10.0.0.1:3", "-e", "a:4")
    assert "4 endpoints" in checked.out


@pytest.mark.parametrize("command", [("config", "check"), ("up",), ("serve",)])
@pytest.mark.parametrize("nothing", ["", " ", ","])
def test_an_endpoint_option_without_one_is_a_mistake(
    coxswain: Command, command: tuple[str, ...], nothing: str
) -> None:
    """A script whose variable is empty must not get a demonstration instead of its servers."""
    rejected = coxswain(*command, "--endpoint", nothing)
    assert rejected.code == 2 and "it has no address" in rejected.err
