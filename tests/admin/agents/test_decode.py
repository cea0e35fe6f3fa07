"""What an agent sees arrives as it was seen; what no agent sends is rejected."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest

from extproc.admin.agents.decode import read_hello, read_observation
from extproc.admin.call_errors import CallError
from extproc.core.address import Address
from extproc.core.observation import (
    MAX_ENTRIES,
    MAX_TEXT_CHARS,
    AdapterReading,
    EndedTask,
    Issue,
    ModelReading,
    ModelState,
    Observation,
    ScrapeStatus,
    SlotReading,
)
from extproc.pb.coxswain.v1 import agent_pb2 as pb
from extproc.runners.llama_server.parse import parse_adapters, parse_models, parse_slots
from scraper.agent.messages import observation_message
from tests.fakes.authority import Authority

HERE = Address("10.0.0.1", 8080)

FULL = Observation(
    address=HERE,
    began_at=10.0,
    answered_at=11.0,
    status=ScrapeStatus.READY,
    slots=4,
    busy_slots=2,
    models=(
        ModelReading(
            name="m",
            aliases=("a", "b"),
            is_loaded=False,
            is_loading=True,
            may_be_loading=True,
            slots=3,
            busy_slots=1,
            reported=ModelState.DOWNLOADING,
            shared_tokens=0,
        ),
    ),
    issues=(Issue(code="slow-slots", message="slow", remedy="wait"),),
    instance="process-1",
    slot_readings=(
        SlotReading(
            task_id=7,
            prompt_tokens=100,
            cached_tokens=50,
            processed_tokens=20,
            decoded_tokens=3,
            remaining_tokens=9,
            model="m",
        ),
        SlotReading(task_id=8),
    ),
    ended_tasks=(EndedTask(task_id=6, held_tokens=120, model="m"),),
    context_tokens=4096,
    shared_tokens=8192,
    adapters=(AdapterReading(id=1, name="sql"),),
    awaits_adapters=True,
    runner="ollama",
    apis=frozenset({"ollama", "rerank"}),
    is_full=True,
)
BARE = Observation(address=HERE, began_at=1.0, answered_at=1.0, status=ScrapeStatus.UNREACHABLE)


def there_and_back(observation: Observation) -> Observation:
    sent = observation_message(observation, 12.0).SerializeToString()
    return read_observation(
        pb.Observation.FromString(sent), HERE, observation.began_at, observation.answered_at
    )


OF_THE_PICKER = {
    (Observation, "router"),
    (Observation, "counters"),
    (Observation, "is_machine_on"),
    (ModelReading, "is_closed"),
    (ModelReading, "context_tokens"),
}
"""A router behind an agent is left alone: the picker may not reach it, and has no key of it. Models
that are not loaded are reported by keepers. Counters are read of servers that the picker scrapes:
a reading is compared with its leases at the same moment (decision 0114). A machine with an agent
that reports is on."""


def test_the_full_observation_leaves_no_field_at_its_default() -> None:
    """So that a new field which the message forgets makes the next test fail."""
    assert FULL.adapters is not None
    parts = (FULL.models[0], FULL.slot_readings[0], FULL.ended_tasks[0], FULL.adapters[0])
    for record in (FULL, *parts):
        for field in fields(record):
            if (type(record), field.name) not in OF_THE_PICKER:
                assert getattr(record, field.name) != field.default, field.name


@pytest.mark.parametrize("observation", [FULL, BARE])
def test_an_observation_arrives_as_it_was(observation: Observation) -> None:
    assert there_and_back(observation) == observation


@pytest.mark.parametrize("status", list(ScrapeStatus))
def test_every_status_has_its_number(status: ScrapeStatus) -> None:
    seen = Observation(address=HERE, began_at=1.0, answered_at=1.0, status=status, adapters=())
    assert there_and_back(seen) == seen


def test_ages_are_reported_not_times() -> None:
    observation = observation_message(FULL, 12.5)
    assert (observation.began_ago_s, observation.answered_ago_s) == (2.5, 1.5)


@pytest.mark.parametrize(
    "hello",
    [
        pb.Hello(address="", agent_id="a"),
        pb.Hello(address="gpu-1:8080", agent_id="a"),
        pb.Hello(address="10.0.0.1:0", agent_id="a"),
        pb.Hello(address="10.0.0.1:1" + "x" * 100_000, agent_id="a"),
        pb.Hello(address="10.0.0.1:1"),
        pb.Hello(address="10.0.0.1:1", agent_id="x" * 1000),
        pb.Hello(address="10.0.0.1:1", agent_id="a", name="no spaces"),
        pb.Hello(address="10.0.0.1:1", agent_id="a", name="x" * 1000),
        pb.Hello(address="10.0.0.1:1", agent_id="a", slots=1_000_000),
    ],
)
def test_a_hello_that_no_agent_says_is_rejected(hello: pb.Hello) -> None:
    with pytest.raises(CallError):
        read_hello(hello)


def hello(**tls: str) -> pb.Hello:
    return pb.Hello(address=str(HERE), agent_id="a", tls=pb.Tls(**tls))


def test_a_server_without_tls_needs_no_trust() -> None:
    spec, trust = read_hello(pb.Hello(address=str(HERE), agent_id="a"))
    assert (spec.tls_profile, trust) == ("", None)


def test_a_key_that_an_agent_offers_is_its_servers_alone() -> None:
    """It goes with the address, and is shown nowhere; without one clients' own keys count."""
    spec, _ = read_hello(pb.Hello(address=str(HERE), agent_id="a", api_key="sk-1"))
    assert spec.authorization == "Bearer sk-1" and spec.requires_envoy_support
    assert "sk-1" not in repr(spec)
    assert read_hello(pb.Hello(address=str(HERE), agent_id="a"))[0].authorization == ""


@pytest.mark.parametrize("key", ["two words", "sk-1\r\nx-admin: yes", "caf\u00e9", "s" * 5000])
def test_a_key_that_no_header_carries_is_rejected_and_not_reported(key: str) -> None:
    with pytest.raises(CallError, match=r"hello\.api_key") as caught:
        read_hello(pb.Hello(address=str(HERE), agent_id="a", api_key=key))
    assert key not in str(caught.value)


def test_a_server_behind_tls_is_known_by_what_its_agent_says(tmp_path: Path) -> None:
    """By a name and the reported CAs, and by its IP address and the system's CAs where it
    reports neither; the private key beside them is not taken."""
    authority = Authority(tmp_path)
    reported = authority.issue("other").key.read_text() + authority.ca.read_text()
    spec, trust = read_hello(hello(server_name="gpu.example", ca_pem=reported))
    assert trust is not None and trust.ip is None
    assert trust.ca_pem == authority.ca.read_text().strip()
    assert (spec.tls_profile, spec.server_name) == (trust.profile, "gpu.example")
    assert spec.is_reported
    bare_spec, bare = read_hello(hello())
    assert bare is not None and (bare.ip, bare.ca_pem) == (HERE.host, None)
    assert bare_spec.tls_profile == bare.profile != trust.profile


def test_two_servers_share_a_profile_where_they_share_cas(tmp_path: Path) -> None:
    one, other = (Authority(tmp_path, name).ca.read_text() for name in ("one", "other"))
    profiles = [
        read_hello(hello(server_name=name, ca_pem=pem))[0].tls_profile
        for name, pem in (("a.example", one), ("b.example", one), ("a.example", other))
    ]
    assert profiles[0] == profiles[1] != profiles[2]


@pytest.mark.parametrize(
    "tls",
    [
        {"server_name": "10.0.0.1"},
        {"server_name": "0.0.0.0"},
        {"server_name": "224.0.0.1"},
        {"server_name": "two words"},
        {"server_name": "x" * 300},
        {"ca_pem": "nonsense"},
        {"ca_pem": "-----BEGIN CERTIFICATE-----\nYQ==\n-----END CERTIFICATE-----"},
        {"ca_pem": "-----BEGIN CERTIFICATE-----\n\u00e9\n-----END CERTIFICATE-----"},
        {"ca_pem": "x" * (64 * 1024 + 1)},
    ],
)
def test_tls_that_cannot_be_is_rejected(tls: dict[str, str]) -> None:
    """CAs that are none would be everybody."""
    with pytest.raises(CallError, match=r"hello\.tls"):
        read_hello(hello(**tls))


@pytest.mark.parametrize(
    "observation",
    [
        pb.Observation(),
        pb.Observation(status=99),  # type: ignore[arg-type]  # an unknown number
        pb.Observation(status=pb.Observation.STATUS_READY, slots=100_000),
        pb.Observation(status=pb.Observation.STATUS_READY, busy_slots=100_000),
        pb.Observation(
            status=pb.Observation.STATUS_READY, models=[pb.Observation.Model()] * (MAX_ENTRIES + 1)
        ),
        pb.Observation(
            status=pb.Observation.STATUS_READY, busy=[pb.Observation.Slot()] * (MAX_ENTRIES + 1)
        ),
        pb.Observation(
            status=pb.Observation.STATUS_READY,
            ended=[pb.Observation.EndedTask()] * (MAX_ENTRIES + 1),
        ),
        pb.Observation(
            status=pb.Observation.STATUS_READY,
            models=[pb.Observation.Model(aliases=["a"] * (MAX_ENTRIES + 1))],
        ),
    ],
)
def test_an_impossible_observation_is_rejected(observation: pb.Observation) -> None:
    with pytest.raises(CallError):
        read_observation(observation, HERE, 1.0, 1.0)


def test_all_that_a_scraper_reads_is_taken() -> None:
    """From a server that tells more than is kept, and has the longest names."""
    many, name = range(MAX_ENTRIES + 1), "m" * (MAX_TEXT_CHARS - 4)
    told = [{"is_processing": True, "id_task": each} for each in many]
    adapters = [{"id": number, "path": f"{number}.gguf"} for number in many]
    models = parse_models(json.dumps({"data": [{"id": f"{name}{n:04}"} for n in many]}).encode())
    seen = Observation(
        address=HERE,
        began_at=1.0,
        answered_at=1.0,
        status=ScrapeStatus.READY,
        models=tuple(ModelReading(name=model.name) for model in models),
        adapters=parse_adapters(json.dumps(adapters).encode()),
        slot_readings=parse_slots(json.dumps(told).encode()).busy,
    )
    assert read_observation(observation_message(seen, 1.0), HERE, 1.0, 1.0) == seen
    assert len(seen.models) == len(seen.slot_readings) == MAX_ENTRIES


def test_tokens_that_no_context_holds_are_not_believed() -> None:
    """They would be counted as usage, for a client's limit and in metrics."""
    huge = 2**64 - 1
    seen = read_observation(
        pb.Observation(
            status=pb.Observation.STATUS_READY,
            context_tokens=huge,
            busy=[pb.Observation.Slot(task_id=1, prompt_tokens=huge, decoded_tokens=huge)],
            ended=[pb.Observation.EndedTask(task_id=1, held_tokens=huge)],
        ),
        *(HERE, 1.0, 1.0),
    )
    assert seen.slot_readings == (SlotReading(task_id=1),)
    assert seen.ended_tasks == () and seen.context_tokens is None


def test_texts_are_cut_and_kept_in_one_line() -> None:
    issue = pb.Observation.Issue(code="x\ny", message="m" * 10_000, remedy="r")
    seen = read_observation(
        pb.Observation(status=pb.Observation.STATUS_FAILED, issues=[issue] * 500), HERE, 1.0, 1.0
    )
    assert len(seen.issues) == 20
    assert seen.issues[0].code == "x y" and len(seen.issues[0].message) == MAX_TEXT_CHARS


def test_a_server_among_other_models_requires_a_pick() -> None:
    for count, requires_pick in ((0, False), (1, False), (2, True)):
        spec, _ = read_hello(pb.Hello(address=str(HERE), agent_id="a", kept_models=count))
        assert (spec.kept_models, spec.requires_pick) == (count, requires_pick)
