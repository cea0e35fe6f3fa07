"""Who reports an address: returns, restarts, rivals, silence and farewell."""

from __future__ import annotations

import pytest

from extproc.admin.agents import registry as registry_module
from extproc.admin.agents.registry import AgentRegistry
from extproc.admin.call_errors import CallError
from extproc.core.address import Address
from extproc.core.fleet.endpoint import EndpointSpec

HERE = EndpointSpec(address=Address("10.0.0.1", 8080))


@pytest.fixture
def registry() -> AgentRegistry:
    return AgentRegistry(ttl_s=3.0, forget_s=300.0)


def test_silence_makes_an_agent_silent_once_and_then_forgotten(registry: AgentRegistry) -> None:
    agent, _ = registry.attach(HERE, "a", 1, 0.0)
    assert registry.expire(3.0) == ([], [])
    assert registry.expire(3.1) == ([agent], [])
    assert registry.expire(200.0) == ([], [])
    assert not registry.is_reporting(HERE.address) and registry.specs() == [HERE]
    assert registry.expire(300.1) == ([], [agent])
    assert registry.specs() == [] and len(registry) == 0


def test_a_word_ends_the_silence(registry: AgentRegistry) -> None:
    agent, _ = registry.attach(HERE, "a", 1, 0.0)
    registry.expire(5.0)
    assert registry.heard(agent, 5.1) is True
    assert registry.heard(agent, 5.2) is False
    assert registry.is_reporting(HERE.address)


def test_a_broken_stream_is_no_silence_yet(registry: AgentRegistry) -> None:
    """An agent that flaps, or is restarted at once, is not noticed by anybody."""
    for stream in range(1, 10):
        agent, has_replaced = registry.attach(HERE, f"process {stream}", stream, stream * 1.0)
        assert not has_replaced
        registry.detach(agent, stream)
        assert registry.expire(stream + 0.9) == ([], [])


def test_the_same_agent_takes_its_own_place(registry: AgentRegistry) -> None:
    agent, _ = registry.attach(HERE, "a", 1, 0.0)
    again, has_replaced = registry.attach(HERE, "a", 2, 1.0)
    assert again is agent and not has_replaced
    assert registry.detach(agent, 1) is False and agent.stream == 2


def test_of_two_agents_the_newer_one_reports_and_the_other_cannot_push_it_out(
    registry: AgentRegistry,
) -> None:
    registry.attach(HERE, "old", 1, 0.0)
    agent, has_replaced = registry.attach(HERE, "new", 2, 1.0)
    assert has_replaced
    with pytest.raises(CallError, match="another agent reports"):
        registry.attach(HERE, "old", 3, 1.5)
    registry.expire(5.0)
    agent, has_replaced = registry.attach(HERE, "old", 4, 5.0)
    assert not has_replaced and agent.agent_id == "old" and agent.stream == 4


def test_rivals_are_remembered_up_to_a_bound(registry: AgentRegistry) -> None:
    agent, _ = registry.attach(HERE, "first", 1, 0.0)
    for number in range(100):
        agent, _ = registry.attach(HERE, f"a{number}", number, 0.0)
    assert len(agent.replaced) == registry_module.MAX_REPLACED


def test_a_farewell_names_it_no_more_and_forgets_it_with_its_stream(
    registry: AgentRegistry,
) -> None:
    agent, _ = registry.attach(HERE, "a", 1, 0.0)
    registry.leave(agent)
    assert registry.specs() == [] and registry.is_reporting(HERE.address)
    assert registry.detach(agent, 1) is True
    assert len(registry) == 0


def test_an_agent_that_dies_in_its_farewell_is_forgotten(registry: AgentRegistry) -> None:
    agent, _ = registry.attach(HERE, "a", 1, 0.0)
    registry.leave(agent)
    assert registry.expire(3.1) == ([], [agent])


def test_who_was_forgotten_takes_nobody_along_when_its_stream_ends(registry: AgentRegistry) -> None:
    """A host that died in its farewell is up again before its half-open stream is closed."""
    gone, _ = registry.attach(HERE, "before", 1, 0.0)
    registry.leave(gone)
    assert registry.expire(3.1) == ([], [gone])
    registry.attach(HERE, "after", 2, 4.0)
    assert registry.detach(gone, 1) is False
    assert registry.is_reporting(HERE.address) and registry.specs() == [HERE]


def test_our_own_absence_is_nobodys_silence(registry: AgentRegistry) -> None:
    registry.attach(HERE, "a", 1, 0.0)
    registry.extend_deadlines(10.0)
    assert registry.expire(12.0) == ([], [])


def test_there_is_a_bound(registry: AgentRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "MAX_AGENTS", 1)
    registry.attach(HERE, "a", 1, 0.0)
    registry.attach(HERE, "b", 2, 0.0)
    with pytest.raises(CallError, match="which is the limit"):
        registry.attach(EndpointSpec(address=Address("10.0.0.2", 1)), "c", 3, 0.0)
