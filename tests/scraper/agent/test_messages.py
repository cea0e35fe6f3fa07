"""Claims about scraper/agent/messages.py; tests/admin/agents/test_decode.py reads them back."""

from __future__ import annotations

import pytest
from google.protobuf.descriptor import EnumDescriptor

from extproc.core.address import Address
from extproc.core.observation import AdapterReading, Observation, ScrapeStatus, SlotReading
from extproc.pb.coxswain.v1 import agent_pb2 as pb
from extproc.runners.probe import ScrapePriority
from scraper.agent.messages import SCRAPE_PRIORITIES, STATUSES, observation_message

HERE = Address("10.0.0.1", 8080)


def observed(**what: object) -> Observation:
    times = {"began_at": 10.0, "answered_at": 10.5}
    status = ScrapeStatus.READY
    return Observation(**{"address": HERE, "status": status, **times, **what})  # type: ignore[arg-type]


def names_of(enum: EnumDescriptor) -> set[int]:
    """The numbers of its values but for the unspecified one."""
    return {value.number for value in enum.values} - {0}


def test_every_status_and_priority_has_its_number() -> None:
    """A new one in the protocol or in the code is in the table."""
    assert set(STATUSES) == set(ScrapeStatus)
    assert set(STATUSES.values()) == names_of(pb.Observation.Status.DESCRIPTOR)
    assert set(SCRAPE_PRIORITIES.values()) == set(ScrapePriority)
    assert set(SCRAPE_PRIORITIES) == names_of(pb.PickerMessage.ScrapePriority.DESCRIPTOR)


def test_times_are_sent_as_ages() -> None:
    """The clocks of two machines have nothing in common."""
    message = observation_message(observed(), 12.0)
    assert (message.began_ago_s, message.answered_ago_s) == (2.0, 1.5)


def test_no_age_is_negative() -> None:
    """The picker would reject a scrape from the future."""
    message = observation_message(observed(), 9.0)
    assert (message.began_ago_s, message.answered_ago_s) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("adapters", "is_there"), [(None, False), ((), True), ((AdapterReading(id=0, name="a"),), True)]
)
def test_no_adapters_and_unknown_adapters_are_two_things(
    adapters: tuple[AdapterReading, ...] | None, is_there: bool
) -> None:
    message = observation_message(observed(adapters=adapters), 12.0)
    assert message.HasField("adapters") is is_there
    assert len(message.adapters.adapters) == len(adapters or ())


def test_what_was_not_reported_is_not_sent_as_zero() -> None:
    message = observation_message(observed(slots=4), 12.0)
    assert message.slots == 4 and not message.HasField("busy_slots")
    assert not message.HasField("context_tokens")
    zero = observation_message(observed(slots=0, busy_slots=0), 12.0)
    assert zero.HasField("slots") and zero.HasField("busy_slots")


def test_a_slot_without_a_task_is_task_0() -> None:
    """llama-server reports -1, and the protocol's numbers have no sign."""
    message = observation_message(observed(slot_readings=(SlotReading(task_id=-1),)), 12.0)
    assert message.busy[0].task_id == 0
