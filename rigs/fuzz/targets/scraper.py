"""llama-server's answers: a reading that the core takes, or a `ParseError`."""

from extproc.core.address import Address
from extproc.core.observation import AdapterReading, Observation, ScrapeStatus
from extproc.runners.answers import ParseError
from extproc.runners.llama_server.parse import (
    MAX_NAMES,
    ModelEntry,
    PropsReading,
    SlotsReading,
    parse_adapters,
    parse_models,
    parse_props,
    parse_slots,
)
from extproc.runners.llama_server.server_identity import ServerIdentity
from tests.fakes.small_fleet import SmallFleet

PARSERS = (parse_slots, parse_props, parse_models, parse_adapters)
HERE = Address("10.0.0.1", 8000)


def check(data: bytes) -> None:
    """The first byte says which answer it is."""
    which = data[0] % len(PARSERS) if data else 0
    try:
        found = PARSERS[which](data[1:])
    except ParseError as error:
        assert str(error)
        return
    match found:
        case SlotsReading():
            _observe(found)
        case PropsReading():
            ServerIdentity().update(found, None)
        case _:
            entries = tuple(one for one in found if isinstance(one, ModelEntry))
            ServerIdentity().set_models(entries)
            assert sum(1 + len(one.aliases) for one in entries) <= MAX_NAMES
            ServerIdentity().set_adapters(
                tuple(one for one in found if isinstance(one, AdapterReading))
            )


def _observe(found: SlotsReading) -> None:
    assert 0 <= found.busy_slots <= found.slots
    fleet = SmallFleet(4)
    observation = Observation(
        address=HERE,
        began_at=fleet.now,
        answered_at=fleet.now,
        status=ScrapeStatus.READY,
        slots=found.slots,
        busy_slots=found.busy_slots,
        slot_readings=found.busy,
        context_tokens=found.context_tokens,
    )
    fleet.dispatcher.observe(observation, fleet.now)
    account = fleet.account(HERE)
    assert account.slots == found.slots and account.foreign_slots == found.busy_slots
