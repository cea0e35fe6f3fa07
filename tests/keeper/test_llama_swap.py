"""Claims about extproc/keeper/llama_swap.py: what is translated, and what is named instead."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from extproc.keeper.llama_swap import import_llama_swap
from extproc.keeper.models_file import ModelsFile, parse_models
from extproc.settings import SettingsError

SWAP = """
healthCheckTimeout: 90
logLevel: debug
startPort: 10001
apiKeys: [sk-secret]
macros:
  bin: /opt/llama-server --port ${PORT}
  gpu: ${bin} -ngl 99
hooks:
  on_startup:
    preload: [chat]
models:
  qwen:
    cmd: |
      # the chat model
      ${gpu}
      -m /models/qwen.gguf -np 4
    aliases: [chat]
    ttl: 300
    env: ["CUDA_VISIBLE_DEVICES=0,1"]
    filters: {strip_params: temperature}
  coder:
    macros: {ctx: 4096}
    cmd: ${gpu} -m /models/coder.gguf -c ${ctx} --slot-name ${MODEL_ID}
    checkEndpoint: /v1/models
  whisper:
    cmd: docker run whisper --port 9503
    cmdStop: docker stop whisper
    proxy: http://127.0.0.1:9503/api
groups:
  big: {swap: true, exclusive: true, members: [qwen, coder]}
  always: {swap: false, exclusive: false, persistent: true, members: [whisper]}
newThing: 1
"""
MIB = 1024 * 1024
SIZES = {"/models/qwen.gguf": 1000 * MIB, "/models/coder.gguf": 100 * MIB}


ENVIRONMENT = {"SWAP_KEY": "sk-secret", "SWAP_MODELS": "/m", "SWAP_PEER_KEY": "sk-secret"}


def imported(text: str) -> tuple[ModelsFile, str]:
    result = import_llama_swap(text.encode(), "llama-swap.yaml", SIZES.get, ENVIRONMENT)
    content = yaml.safe_dump(result.content, sort_keys=False)
    return parse_models(content.encode(), "imported"), "\n".join(result.notes)


def command(lines: str, macros: str = "") -> tuple[str, ...]:
    """The command of a model whose `cmd: |` has these lines, without its first words."""
    indented = "".join(f"      {line}\n" for line in lines.split("\n"))
    text = f"macros: {{{macros}}}\nmodels:\n  a:\n    cmd: |\n      x ${{PORT}}\n{indented}"
    return imported(text)[0].models["a"].cmd[2:]


def test_models_are_translated() -> None:
    file, _ = imported(SWAP)
    qwen, coder, whisper = file.models.values()
    assert qwen.cmd == (
        *("/opt/llama-server", "--port", "${PORT}", "-ngl", "99"),
        *("-m", "/models/qwen.gguf", "-np", "4"),
    )
    assert (qwen.slots, qwen.aliases, qwen.ttl_s, qwen.preload) == (4, ("chat",), 300.0, True)
    assert qwen.env == {"CUDA_VISIBLE_DEVICES": "0,1"}
    assert (qwen.memory_mb, coder.memory_mb, file.memory_mb) == (1201, 121, 1322)
    assert coder.cmd[-4:] == ("-c", "4096", "--slot-name", "coder")
    assert not coder.preload and coder.load_timeout_s == 90.0
    assert "${PORT}" in whisper.cmd and whisper.port == 9503 and whisper.memory_mb == 0
    assert file.first_port == 10001


def test_groups_become_exclusions() -> None:
    """Members that swap exclude each other; a persistent group is not excluded."""
    file, _ = imported(SWAP)
    assert {name: model.exclusive_with for name, model in file.models.items()} == {
        "qwen": ("coder",),
        "coder": ("qwen",),
        "whisper": (),
    }
    alone, _ = imported("models: {a: {cmd: x}, b: {cmd: x}}")
    assert alone.models["a"].exclusive_with == ("b",), "without groups one model at a time"


@pytest.mark.parametrize(
    "words",
    [
        "apiKeys: let the picker check",
        "models.qwen.filters: requests are passed on unchanged",
        "models.coder.checkEndpoint: /v1/models",
        "models.coder: the command has no --parallel",
        "models.whisper.cmdStop: the keeper sends SIGTERM",
        "models.whisper.proxy: the path /api is left out",
        "models.whisper.memory_mb: unknown",
        "models.whisper.cmd: docker: it must publish the port (-p ${HOST}:${PORT}:8080)",
        "newThing: unknown here",
        "memory_mb: llama-swap does not know memory",
    ],
)
def test_what_has_no_counterpart_is_named(words: str) -> None:
    _, notes = imported(SWAP)
    assert words in notes
    assert "sk-secret" not in notes and "logLevel" not in notes


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("-m a \\\n-ngl 99 \\", ["-m", "a", "-ngl", "99"]),
        ("-m a\\\n  b", ["-m", "a", "b"]),
        ("--api-key k#1 -ngl 99", ["--api-key", "k#1", "-ngl", "99"]),
        ("--api-key #1 -ngl 99", ["--api-key", "#1", "-ngl", "99"]),
        ("  # -a ${server} ${none}\n-b", ["-b"]),
        ("-a \\\n # -b \\\n -c", ["-a", "-c"]),
        ("${two}", ["-a", "-c"]),
        (
            "${server} ${heat} ${flag} ${on} ${ten} ${time}",
            ["s", "0.7", "true", "on", "10", "1:30"],
        ),
        (r"""'a\$b' "a\$b" "a\b" a\ b \"q\" '""' """, ["a\\$b", "a$b", "a\\b", "a b", '"q"', '""']),
        ('"a \\\n b"', ["a  \n b"]),
    ],
)
def test_a_command_is_read_as_llama_swap_reads_it(lines: str, words: list[str]) -> None:
    """The words are those that llama-swap v250 starts for the same text."""
    macros = r'two: "-a\n# -b\n-c", server: s, heat: 0.7, flag: true, on: on, ten: 10.0, time: 1:30'
    assert list(command(lines, macros)) == words


def test_a_file_with_all_that_llama_swap_has_is_imported() -> None:
    """The commands are those that llama-swap v250 itself starts for the same file."""
    text = (Path(__file__).parent / "llama_swap_example.yaml").read_text(encoding="utf-8")
    file, notes = imported(text)
    server = ("/opt/llama/llama-server", "--port", "${PORT}")
    common = ("--ctx-size", "4096", "-fa", "on")
    assert {name: model.cmd for name, model in file.models.items()} == {
        "writer": (
            *(*server, "--model", "/m/writer.gguf", "--ctx-size", "16384", "-fa", "on"),
            *("--temp", "0.7", "--jinja", "--api-key", "k#1", "-ngl", "99"),
        ),
        "coder": (*server, "-m", "/models/code #2.gguf", "-np", "2", *common),
        "embedder": (*server, "-m", "/models/e.gguf", "--embedding"),
        "reranker": (server[0], "--port=${PORT}", "-m", "/models/r.gguf", "--reranking"),
        "boxed": (
            *("docker", "run", "--name", "boxed", "--init", "--rm", "-p", "${PORT}:8080"),
            *("-v", "/models:/models", "ghcr.io/ggml-org/llama.cpp:server"),
            *("--model", "/models/boxed.gguf"),
        ),
        "other": ("vllm", "serve", "org/other", "--port", "${PORT}"),
    }
    models = file.models
    assert (models["writer"].port, models["reranker"].port) == (8999, 9700)
    assert models["writer"].aliases == ("gpt-4o-mini", "writer-latest")
    assert models["writer"].env["CUDA_VISIBLE_DEVICES"] == "0"
    assert [model.ttl_s for model in models.values()] == [900, 0, 60, 900, 900, 900]
    assert [name for name, model in models.items() if model.preload] == ["writer"]
    assert (models["writer"].load_timeout_s, models["coder"].slots) == (15, 2)
    assert models["writer"].exclusive_with == ("coder", "embedder", "reranker", "other")
    assert models["boxed"].exclusive_with == ()
    for words in (
        "selectors: ",
        "profiles: ",
        "matrix: left out, and it is not in use",
        "routing.scheduler: ",
        "peers: ",
        "upstream: ",
        "ui: ",
        "unloadTimeout: ",
        "models.writer.compat: ",
        "models.writer.filters.setParamsByID: its names",
        "models.other.cmd: vllm: it is no llama-server",
        "models.boxed.cmd: docker: it must publish",
        "hooks.on_startup.preload: best is no model",
        "environment: the values of SWAP_KEY, SWAP_MODELS, SWAP_PEER_KEY are written",
    ):
        assert words in notes
    assert "sk-secret" not in notes


@pytest.mark.parametrize("use", ["group", "matrix"])
def test_todays_groups_are_those_of_before(use: str) -> None:
    """Where the matrix decides, models exclude each other until somebody says more."""
    models = "models: {a: {cmd: x}, b: {cmd: x}, c: {cmd: x}}\n"
    groups = "{together: {swap: false, members: [a, b]}}"
    router = f"{{use: {use}, settings: {{groups: {groups}, matrix: {{sets: {{s: a & c}}}}}}}}"
    today, notes = imported(f"{models}routing: {{router: {router}}}")
    before, _ = imported(f"{models}groups: {groups}")
    exclusive = {name: model.exclusive_with for name, model in today.models.items()}
    if use == "group":
        assert exclusive == {"a": ("c",), "b": ("c",), "c": ("a", "b")}
        assert today == before
    else:
        assert exclusive == {"a": ("b", "c"), "b": ("a", "c"), "c": ("a", "b")}
        assert "matrix: left out, and all models exclude each other" in notes


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("{}", "models"),
        ("", "models"),
        ("models: {a: {}}", r"models\.a\.cmd"),
        ("models: {a: 1}", r"models\.a"),
        ("models: {a: {cmd: ''}}", r"models\.a\.cmd: it is empty"),
        ("models: {a: {cmd: 'x \"'}}", "not a command"),
        ("models: {a: {cmd: 'x ${later}'}}\nmacros: {b: 1}", "later} is no macro"),
        ("models: {a: {cmd: 'x ${a}'}}\nmacros: {a: '${b}', b: 1}", "b} is no macro"),
        ("models: {a: {cmd: 'x ${env.NOT_SET}'}}", "variable NOT_SET is not set"),
        ("models: {a: {cmd: x, ttl: soon}}", r"models\.a\.ttl: a whole number"),
        ("models: {a: {cmd: x, aliases: b}}", r"models\.a\.aliases: a list"),
        ("models: {a: {cmd: x, env: B=1}}", r"models\.a\.env: a list"),
        ("models: {a: {cmd: x, proxy: 'http://[::1'}}", r"models\.a\.proxy"),
        ("models: {a: {cmd: x}}\nhealthCheckTimeout: long", "healthCheckTimeout"),
        ("models: {a: {cmd: x}}\ngroups: {g: {members: [a]}, h: {members: [a]}}", "two groups"),
        ("models: {a: {cmd: x}}\ngroups: {g: {}}\nrouting: {router: {use: group}}", "at the top"),
    ],
)
def test_what_llama_swap_would_not_read_is_an_error(text: str, key: str) -> None:
    with pytest.raises(SettingsError, match=key):
        import_llama_swap(text.encode(), "llama-swap.yaml", SIZES.get, ENVIRONMENT)
