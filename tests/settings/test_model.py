"""Claims about extproc/settings/model.py, values.py and reference.py."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from pydantic import BaseModel, ValidationError

from extproc.core.budgets import Budget
from extproc.core.observation import MAX_SLOTS
from extproc.core.request import HOLD_MARGIN_S
from extproc.settings import (
    DnsSettings,
    EndpointSettings,
    QueueSettings,
    ScraperSettings,
    Settings,
    SettingsError,
    load_settings,
    profile_of,
    settings_reference,
    settings_schema,
)
from extproc.settings.envoy_section import EnvoySettings
from extproc.settings.keys import every_key, model_of
from extproc.settings.reference import descriptions_of
from extproc.settings.servers_section import ServersSettings
from extproc.stream.envoy import codec

NAMED = {"name": "gpu", "port": 1, "tls": True}


def every_model(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    yield model
    for field in model.model_fields.values():
        section, _ = model_of(field)
        if section is not None:
            yield from every_model(section)


@pytest.mark.parametrize("url", ["http://127.0.0.1:3000", " https://grafana.example/d/x?a=b#c "])
def test_addresses_of_web_pages(url: str) -> None:
    """As they are, without blanks around them."""
    section = Settings.model_validate({"dashboard": {"grafana_url": url}}).dashboard
    assert section.grafana_url == url.strip() and section.jaeger_url is None


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "grafana:3000", "//grafana", "http://", "http://[", "http://a b"]
)
def test_what_is_no_address_of_a_web_page(url: str) -> None:
    """A script above all: the dashboard would run it."""
    with pytest.raises(ValidationError, match="write a web address"):
        Settings.model_validate({"dashboard": {"jaeger_url": url}})


def test_every_setting_is_described() -> None:
    """No setting without a sentence on what it means, no section without a docstring."""
    for model in every_model(Settings):
        assert model.__doc__
        for name, field in model.model_fields.items():
            section, is_list = model_of(field)
            if section is None or is_list:
                assert descriptions_of(model)[name].endswith("."), f"{model.__name__}.{name}"


def test_settings_never_change() -> None:
    """Settings are read once and shared freely: nobody can change them."""
    with pytest.raises(ValidationError):
        Settings().queue.max_requests = 3


def test_a_model_belongs_to_one_objective() -> None:
    """Whichever was written last would win, and nobody would be told."""
    with pytest.raises(ValidationError, match="chat and batch both have the model tiny"):
        Settings.model_validate(
            {"objectives": {"chat": {"models": ["tiny"]}, "batch": {"models": ["big", "tiny"]}}}
        )


def test_code_builds_settings_without_the_world(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Settings made in code is what the code says, whatever the environment holds."""
    monkeypatch.setenv("QUEUE", '{"max_requests": 5}')
    monkeypatch.setenv("COXSWAIN_QUEUE__MAX_REQUESTS", "5")
    assert Settings(queue=QueueSettings(timeout_s=1)).queue.max_requests == 1024


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.5:8080", "10.0.0.5:8080"),
        ("[::1]:8080", "[::1]:8080"),
        ("gpu-1.example.org.:1", "gpu-1.example.org.:1"),
        ("llama_server:65535", "llama_server:65535"),
    ],
)
def test_addresses(text: str, address: str) -> None:
    """An endpoint is an IP address or a host name, and a port."""
    assert EndpointSettings(address=text).address == address


@pytest.mark.parametrize("section", [EndpointSettings, DnsSettings])
@pytest.mark.parametrize(
    "wrong",
    [
        *({"server_name": name} for name in ("", "my gpu", "bücher.example", "10.0.0.256", "-a")),
        *({"slots": slots} for slots in (0, MAX_SLOTS + 1, True)),
    ],
)
def test_servers_that_nobody_could_ask(section: type[BaseModel], wrong: dict[str, object]) -> None:
    """By a name that no certificate holds, or with more slots than a server can have."""
    server = {"address": "https://gpu:1"} if section is EndpointSettings else NAMED
    for good in ({"server_name": "gpu_1.example."}, {"server_name": "fd00::1"}, {"slots": 65_536}):
        section.model_validate({**server, **good})
    with pytest.raises(ValidationError):
        section.model_validate({**server, **wrong})


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        ":80",
        "10.0.0.5",
        "10.0.0.5:",
        "10.0.0.5:0",
        "10.0.0.5:65536",
        "10.0.0.5:-1",
        "10.0.0.5:\uff18\uff10",
        "10.0.0.5:999999999999999999999",
        "256.0.0.1:80",
        "10.0.0:80",
        "0.0.0.0:80",
        "[::]:80",
        "::1:80",
        "[10.0.0.1]:80",
        "[::1:80",
        "-a:80",
        "a..b:80",
        "a b:80",
        "http://a:80",
        "u:p@a:80",
        "a:80/v1",
        "x" * 64 + ":80",
    ],
)
def test_no_addresses(text: str) -> None:
    """What is no address is rejected when the settings are read, not when it is dialled."""
    with pytest.raises(ValidationError):
        EndpointSettings(address=text)


def test_contradictions() -> None:
    """Settings that cannot work together are rejected."""
    with pytest.raises(ValidationError, match="must not exceed slow_interval_s"):
        ScraperSettings(fast_interval_s=3)
    with pytest.raises(ValidationError, match="must exceed slow_interval_s"):
        ScraperSettings(slow_interval_s=6)
    with pytest.raises(ValidationError, match="less than or equal to 3600"):
        EnvoySettings(max_message_timeout_s=3601)
    with pytest.raises(ValidationError, match="not both"):
        EndpointSettings(address="a:1", api_key_env="A", api_key_file="b")


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ({"picker_cert_file": "/envoy.pem"}, "picker_key_file together"),
        ({"picker_key_file": "/envoy.key"}, "picker_key_file together"),
        ({"listen": "localhost:10000"}, "at an IP address"),
        ({"admin": "localhost:9901"}, "at an IP address"),
        ({"request_body_idle_timeout_s": 0.0001}, "expected 0, or at least 0.001"),
        ({"per_try_idle_timeout_s": 0.0001}, "expected 0, or at least 0.001"),
        ({"max_heap_bytes": 10**20}, "less than or equal to 1000000000000000"),
        ({"message_timeout_s": 0.0}, "greater than or equal to 0.001"),
        ({"message_timeout_s": 2.0, "max_message_timeout_s": 1.0}, "must not exceed"),
        ({"discovery": False, "host_rewrite": True}, "host_rewrite needs discovery"),
        ({"connect_timeout_s": 0.0}, "greater than or equal to 0.001"),
        ({"retries": -1}, "greater than or equal to 0"),
        ({"trace_percent": 101.0}, "less than or equal to 100"),
    ],
)
def test_what_envoy_would_reject(section: dict[str, object], told: str) -> None:
    """Told when the settings are read, not when Envoy starts."""
    with pytest.raises(ValidationError, match=told):
        EnvoySettings.model_validate(section)


def test_where_envoy_may_listen() -> None:
    """At any of its addresses; and 0 waits for ever."""
    section = EnvoySettings(listen="[::]:10000", admin="127.0.0.1:0", request_body_idle_timeout_s=0)
    assert (section.listen, section.admin) == ("[::]:10000", "127.0.0.1:0")


def test_envoy_has_the_patience_that_the_longest_wait_asks_for() -> None:
    """A longer hold than it allows Envoy ignores: after a second it would give the picker up and
    send the request to a server that is full."""
    envoy = EnvoySettings(max_message_timeout_s=25)
    longest = Settings(queue=QueueSettings(timeout_s=20), envoy=envoy).queue.timeout_s
    asked = codec.extend_timeout(longest + HOLD_MARGIN_S).override_message_timeout.ToSeconds()
    assert asked <= envoy.max_message_timeout_s
    with pytest.raises(ValidationError, match=r"5 s shorter than envoy\.max_message_timeout_s"):
        Settings(queue=QueueSettings(timeout_s=21), envoy=envoy)


def test_schema_knows_every_key() -> None:
    """The JSON schema is JSON and allows no key but the known ones."""
    schema = settings_schema()
    assert json.loads(json.dumps(schema)) == schema
    assert set(schema["properties"]) == set(Settings.model_fields)
    assert schema["additionalProperties"] is False
    for definition in schema["$defs"].values():
        assert definition["additionalProperties"] is False


def test_reference_names_every_setting() -> None:
    """The page leaves none out that a variable can set, and says how the variable is made."""
    page = settings_reference()
    assert "`queue.timeout_s` has `COXSWAIN_QUEUE__TIMEOUT_S`" in page
    for *section, key in every_key(Settings):
        heading = f"## `{section[0]}`" if section else "# Settings"
        assert f"\n| `{key}` |" in page.partition(f"{heading}\n")[2].partition("\n## ")[0]


def test_reference_describes_each_kind_of_entry_once() -> None:
    """Its other places lead there, those that share a part of their keys with it too."""
    page = settings_reference()
    for key in ("queue_timeout_s", "sleep_command", "tls"):
        assert page.count(f"\n| `{key}` |") == 1
    assert "### Each entry of `bounds.paths`\nAs each entry of `bounds.objectives`.\n" in page
    (further,) = re.findall(r"\nFurther keys, as in each entry of `discovery.dns`: (.+)\.\n", page)
    assert further.replace("`", "").split(", ") == list(ServersSettings.model_fields)


def test_reference_names_what_no_variable_can_set() -> None:
    """What stands in a section of a list's section too."""
    page = settings_reference()
    for key in ("may_sleep", "type", "criticality", "slo.ttft_ms", "slo.queue_ms"):
        assert f"\n| `{key}` |" in page


def test_endpoints_behind_tls() -> None:
    """https:// says so; servers with one authority and one name share a profile."""
    section = {"address": "https://gpu.example:443", "ca_file": "/ca.pem"}
    one, two, plain = Settings.model_validate(
        {
            "endpoints": [
                section,
                {**section, "address": "https://10.0.0.5:443", "server_name": "gpu.example"},
                "10.0.0.6:8080",
            ]
        }
    ).endpoints
    assert (one.is_tls, one.host, one.port) == (True, "gpu.example", 443)
    assert profile_of(one) == profile_of(two) != profile_of(plain) == ""


@pytest.mark.parametrize(
    "section",
    [
        {"address": "10.0.0.5:80", "ca_file": "/ca.pem"},
        {"address": "10.0.0.5:80", "server_name": "x"},
        {"address": "10.0.0.5:80", "inject_key": True},
        {"address": "https://"},
        {"address": "https://https://10.0.0.5:80"},
    ],
)
def test_what_does_not_go_together(section: dict[str, object]) -> None:
    """Told when the settings are read."""
    with pytest.raises(ValidationError):
        Settings.model_validate({"endpoints": [section]})


@pytest.mark.parametrize(
    ("text", "fronts"), [("0", 0), ("3", 3), ("auto", "auto"), (" AUTO ", "auto")]
)
def test_fronts_are_a_number_or_auto(text: str, fronts: object) -> None:
    assert load_settings(None, environ={"COXSWAIN_FRONTS": text}).fronts == fronts


@pytest.mark.parametrize("text", ["-1", "many", "1.5", "129", "true"])
def test_other_fronts_are_one_clear_error(text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(None, environ={"COXSWAIN_FRONTS": text})
    assert "processes" in str(caught.value) and "\n" not in str(caught.value)


def test_a_cluster_needs_fronts() -> None:
    flags = {"cluster.name": "c", "cluster.valkey": "redis://v:1", "cluster.advertise": "a:1"}
    with pytest.raises(SettingsError, match="needs fronts"):
        load_settings(None, environ={}, flags=flags)
    assert load_settings(None, environ={}, flags={**flags, "fronts": "1"}).cluster.name == "c"


def test_only_members_of_a_cluster_serve_the_same_envoy() -> None:
    flags = {"envoy.other_pickers": "10.0.0.3:9002"}
    with pytest.raises(SettingsError, match=r"needs cluster\.name"):
        load_settings(None, environ={}, flags=flags)


def of_web(**limit: object) -> dict[str, object]:
    """Settings with a limit of the client `web`."""
    return {"clients": {"keys_file": "keys", "limits": {"web": limit}}}


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"clients": {"limits": {"web": {"requests": 1}}}}, "keys_file"),
        (
            {"clients": {"keys_file": "keys", "limits": {"*": {"tokens_per_minute": 9}}}},
            "usage.path",
        ),
        ({"clients": {"keys_file": "keys", "limits": {"web": {"request": 1}}}}, "request"),
        ({"clients": {"keys_file": "keys", "limits": {"web": {"requests": -1}}}}, "requests"),
        (of_web(budgets={"daily": {"tokens": 9}}), "usage.path"),
        (of_web(budgets={"monthly": {"cost": 0}}), "monthly.cost"),
        (of_web(budgets={"weekly": {"tokens": 9}}), "weekly"),
        (of_web(models=[]), "name at least one"),
        (of_web(objectives=["chat", ""]), "name at least one"),
        (of_web(objectives=["chat"]), "no objective of the name chat"),
        ({"clients": {"limits": {"web": {"requests_per_flow": 1}}}}, "keys_file"),
        ({"clients": {"limits": {"*": {"requests_per_session": 1, "queued": 1}}}}, "keys_file"),
        ({"clients": {"limits": {"*": {"requests_per_session": -1}}}}, "requests_per_session"),
        ({"clients": {"batches": "web"}}, "batches needs keys_file"),
        (
            {"clients": {"keys_file": "keys"}, "envoy": {"batches": "127.0.0.1:9006"}},
            "needs clients.batches",
        ),
        (of_web(models=["tiny"]) | {"routing": {"read_body": "never"}}, "read_body"),
    ],
)
def test_limits_that_cannot_be_held_are_rejected(values: dict[str, object], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        Settings.model_validate(values)


def test_sessions_and_flows_have_limits_without_keys() -> None:
    limits = {"*": {"requests_per_session": 2, "requests_per_flow": 3}}
    found = Settings.model_validate({"clients": {"limits": limits}}).clients
    limit = found.limits_for_core()["*"]
    assert (limit.per_session, limit.per_flow, limit.requests) == (2, 3, None)


def test_what_a_key_permits() -> None:
    """Names may be text, as in the environment; an empty budget is none."""
    values = of_web(models="tiny, large", objectives=["chat"], budgets={"daily": None})
    found = Settings.model_validate(values | {"objectives": {"chat": {}}}).clients
    limit = found.limits_for_core()["web"]
    assert (limit.models, limit.objectives) == (frozenset({"tiny", "large"}), ("chat",))
    assert not limit.has_budget
    budgets = {"daily": {"tokens": 9}, "monthly": {"cost": 2.5}}
    values = of_web(budgets=budgets) | {"usage": {"path": "usage.db"}}
    limit = Settings.model_validate(values).clients.limits_for_core()["web"]
    assert (limit.daily, limit.monthly) == (Budget(tokens=9), Budget(cost=2.5))


def test_limits_of_clients() -> None:
    limits = {"web": {"requests": 3, "queued": 0, "tokens_per_minute": 100}, "*": {"requests": 1}}
    values = {"clients": {"keys_file": "keys", "limits": limits}, "usage": {"path": "usage.db"}}
    found = Settings.model_validate(values).clients.limits
    assert (found["web"].queued, found["*"].requests, found["*"].queued) == (0, 1, None)


@pytest.mark.parametrize(
    ("wake", "problem"),
    [
        ({"mac": "02:00:00:00:00"}, "write a MAC address in quotes"),
        ({"mac": 8_053_421_459}, "write a MAC address in quotes"),
        ({"mac": "02:00:00:00:00:0a", "broadcast": "host.lan"}, "write an IPv4 broadcast address"),
        ({"mac": "02:00:00:00:00:0a", "broadcast": "10.0.0.255:0"}, "0 is not a port"),
    ],
)
def test_mistakes_in_how_a_machine_is_woken(wake: dict[str, object], problem: str) -> None:
    """YAML reads a MAC address of digits alone as a number."""
    endpoint = {"address": "10.0.0.5:8080", "wake": wake}
    with pytest.raises(ValidationError, match=problem):
        Settings.model_validate({"endpoints": [endpoint]})


def test_servers_on_one_machine_say_the_same_of_it() -> None:
    """What the second one says would never count."""
    wake = {"mac": "02:00:00:00:00:0a", "after_idle_s": 60}
    endpoints = [
        {"address": "10.0.0.5:8080", "wake": wake},
        {"address": "10.0.0.5:8081", "wake": {**wake, "mac": "02:00:00:00:00:0A"}},
    ]
    Settings.model_validate({"endpoints": endpoints})
    endpoints[1]["wake"] = {**wake, "after_idle_s": 900}
    with pytest.raises(ValidationError, match="are on one machine"):
        Settings.model_validate({"endpoints": endpoints})


def test_only_machines_of_the_first_tier_are_woken() -> None:
    key = {"api_key_env": "KEY", "inject_key": True}
    far = {"address": "10.0.0.5:80", "tier": 2, "wake": {"mac": "02:00:00:00:00:0a"}, **key}
    with pytest.raises(ValidationError, match="wake is for endpoints of tier 1"):
        Settings.model_validate({"endpoints": [far]})
