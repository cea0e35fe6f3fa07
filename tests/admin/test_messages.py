"""Claims about extproc/admin/messages.py: what it says is what `/status` says."""

from __future__ import annotations

from typing import Any

from google.protobuf.json_format import MessageToDict

from extproc.admin.messages import endpoint_message
from extproc.core.fleet.endpoint import ContextSharing, EndpointSpec, Intent
from extproc.status.status_json import status_json
from tests.fakes.steered_fleet import SteeredFleet

ONLY_STATUS = {"unique_name", "is_ejected"}
ONLY_MESSAGES = {"address", "sources", "leases"}


def test_both_say_the_same_of_an_endpoint() -> None:
    """There are two projections of one state (decision 0258): no field is in one alone unseen, and
    what is in both agrees."""
    fleet = SteeredFleet(context=ContextSharing.SHARED)
    address = fleet.add(4, context_tokens=1024)
    spec = EndpointSpec(
        address=address, context=ContextSharing.SHARED, labels=(("a", "b"),), pool="chat"
    )
    fleet.dispatcher.set_members("test", [spec], fleet.now)
    fleet.dispatcher.set_intent(address, Intent.DISABLED, fleet.now)
    now = fleet.now + 1.5
    endpoint = fleet.dispatcher.fleet.get(address)
    assert endpoint is not None
    tree = status_json(fleet.dispatcher, exchanges=0, envoys=(), outcomes={}, now=now)
    shown = tree["endpoints"][str(address)]
    sent: dict[str, Any] = MessageToDict(
        endpoint_message(fleet.dispatcher, endpoint, now),
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True,
    )
    assert shown.keys() - sent.keys() == ONLY_STATUS
    assert sent.keys() - shown.keys() == ONLY_MESSAGES
    sent["health"] = sent["health"].removeprefix("HEALTH_").lower()
    sent["intent"] = sent["intent"].removeprefix("INTENT_").lower()
    sent["models"] = [model["name"] for model in sent["models"]]
    sent["tokens"] = {
        name: value if name == "source" else int(value) for name, value in sent["tokens"].items()
    }
    assert {name: sent[name] for name in sent.keys() - ONLY_MESSAGES} == {
        name: shown[name] for name in shown.keys() - ONLY_STATUS
    }
