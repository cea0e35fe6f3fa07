"""Claims about extproc/status/dashboard.py and the page that it puts together.

What a browser makes of it is in tests/e2e/test_dashboard.py.
"""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from random import Random

import pytest
from google.protobuf.message import Message

from extproc.app.pages.activity import learned_json
from extproc.core.address import Address
from extproc.core.exchange_record import Outcome
from extproc.core.exchange_registry import ExchangeRegistry
from extproc.core.fleet.endpoint import EndpointSpec
from extproc.core.fleet.health import Health
from extproc.core.rejection import Reason
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.core.views.waits import WaitReason
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.status.dashboard import dashboard
from extproc.status.event_feed import EventFeed
from extproc.status.history import History
from extproc.status.requests_json import requests_json
from tests.fakes.core_events import listen
from tests.fakes.small_fleet import RecordingListener
from tests.telemetry.records import record

SCRIPT = (files("extproc.status") / "dashboard.js").read_text(encoding="utf-8")
STYLE = (files("extproc.status") / "dashboard.css").read_text(encoding="utf-8")
HTML = dashboard().html


def inside(tag: str) -> str:
    found = re.findall(rf"<{tag}>(.*?)</{tag}>", HTML, flags=re.DOTALL)
    assert len(found) == 1
    return str(found[0])


def policy() -> dict[str, str]:
    """Each directive with its sources."""
    parts = dashboard().headers["content-security-policy"].split("; ")
    return {name: sources for name, _, sources in (part.partition(" ") for part in parts)}


@pytest.mark.parametrize("tag", ["style", "script"])
def test_the_policy_allows_this_style_and_this_script_alone(tag: str) -> None:
    """By the hash of exactly what stands in the page; a browser rejects anything else."""
    digest = b64encode(sha256(inside(tag).encode()).digest()).decode()
    assert policy()[f"{tag}-src"] == f"'sha256-{digest}'"
    assert policy()["default-src"] == "'none'"


def test_nothing_is_fetched_from_elsewhere() -> None:
    """The page works where there is no network but the picker."""
    addresses = re.findall(r"(?:src|href)=\"([^\"]*)\"", HTML)
    assert addresses
    for address in addresses:
        assert address.startswith("data:") or re.fullmatch(r"[a-z]+|#/", address), address
    assert "@import" not in STYLE and "url(" not in STYLE
    assert re.findall(r"fetch\(([^,]+),", SCRIPT) == ["`actions/${action}`", "path"]
    asked = re.findall(r"(?<!function )\bask\((.*)", SCRIPT)
    assert [set(re.findall(r"[\"`]([a-z]+)", each)) for each in asked] == [{"status"}, {"activity"}]
    assert re.findall(r"send\(([^,]+),", SCRIPT) == ["action", "action", '"check"']


def test_what_the_picker_reports_never_becomes_markup() -> None:
    """Nothing in the script parses text as HTML or code, and no attribute of the page does."""
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert way not in SCRIPT
    for way in ("Function(", "DOMParser", "createContextualFragment", ".href", "srcdoc"):
        assert way not in SCRIPT
    assert re.findall(r'"href", (\w+)', SCRIPT) == ["hrefOf", "hrefOf"]
    assert "return `#/endpoints/${encodeURIComponent(name)}`;" in SCRIPT, "never another page"
    assert not re.search(r"\s(?:on\w+|style)=", HTML.replace(SCRIPT, ""))
    assert set(re.findall(r"\.setAttribute\((\w+|\"[\w-]+\")", SCRIPT)) == {"attribute"}
    described = set(re.findall(r"describe\(.+?, \"([\w-]+)\"", SCRIPT))
    assert described == {
        *("aria-label", "data-health", "data-state", "title", "href", "viewBox", "d"),
    }


def test_links_are_those_of_the_settings() -> None:
    """They are text in an attribute, whatever is in them; without any there is none."""
    html = dashboard({"Grafana": 'https://g.example/?a="><script>'}).html
    assert '<a href="https://g.example/?a=&quot;&gt;&lt;script&gt;" rel="noreferrer">' in html
    assert "noreferrer" not in HTML


def test_each_part_that_the_script_fills_is_in_the_page() -> None:
    """Ids and parts of the rows, also those whose names are put together."""
    ids = set(re.findall(r"\bid=\"([\w-]+)\"", HTML))
    asked = set(re.findall(r"byId\(\"([\w-]+)\"\)", SCRIPT))
    asked |= {f"slots-{kind}" for kind in ("leased", "foreign", "idle", "unusable")}
    asked |= {f"chart-{name}" for name in re.findall(r'showChart\("([\w-]+)"', SCRIPT)}
    tables = re.findall(r'showTable\("(\w+)"', SCRIPT)
    asked |= {f"{name}-{part}" for name in tables for part in ("rows", "part")}
    asked |= {f"endpoint-{name}" for name in ("health", "also", "cells", "issues")}
    assert len(tables) == 3 and asked <= ids
    parts = set(re.findall(r"data-part=\"([\w-]+)\"", HTML))
    filled = set(re.findall(r"\b(?:rows|parts)\.(\w+)", SCRIPT)) - {"body", "map"} | {"issue-list"}
    assert filled <= parts


def test_each_field_that_the_script_reads_is_reported() -> None:
    """By `/status`, which is the messages of the admin API as JSON, and by `/activity`."""
    dispatcher = listen(Dispatcher(Random(1)), RecordingListener())
    address = Address("10.0.0.1", 8080)
    dispatcher.set_members("test", [EndpointSpec(address=address)], 0.0)
    status = pb.GetStatusResponse
    told = {
        "status": fields_of(status) | {"endpoints"},
        "machine": fields_of(pb.Machine),
        "kept": fields_of(pb.PlacedModel),
        "queue": fields_of(status.Queue),
        "need": fields_of(pb.ModelScale),
        "bound": fields_of(status.Bound),
        "pool": fields_of(status.Pool),
        "cluster": fields_of(status.Cluster),
        "peer": fields_of(status.Member),
        "endpoint": fields_of(pb.Endpoint),
        "slots": fields_of(pb.Slots),
        "tokens": fields_of(pb.Tokens),
        "issue": fields_of(pb.Issue),
        **activity_fields(dispatcher, address),
    }
    for name, reported in told.items():
        read = set(re.findall(rf"(?<![\w.]){name}\.(\w+)", SCRIPT))
        assert read, name
        assert read <= reported, name


def fields_of(message: type[Message]) -> set[str]:
    return {field.name for field in message.DESCRIPTOR.fields}


def activity_fields(dispatcher: Dispatcher, address: Address) -> dict[str, set[str]]:
    """What `/activity` reports, by the script's names."""
    registry = ExchangeRegistry()
    requests = requests_json(dispatcher, registry, [record()], 20.0)
    ended = set(requests["ended"][0])
    feed = EventFeed(dispatcher, lambda: 0)
    feed.advance(1.0)
    return {
        "requests": {*requests},
        "ended": ended,
        "history": set(History(dispatcher, ExchangeRegistry(), lambda: None).as_json(1.0)),
        "learned": set(learned_json(dispatcher, address, 1.0)),
        "event": set(feed.as_json(1.0)[0]) | {"preventDefault"},
        "activity": {"requests", "history", "events", "learned"},
    }


def test_every_word_has_its_meaning() -> None:
    """Each outcome is explained on the page, and each health has a sign beside its colour."""
    meanings = SCRIPT.partition("MEANINGS = {")[2].partition("};")[0]
    explained = set(re.findall(r"^  \"?([\w-]+)\"?:", meanings, flags=re.MULTILINE))
    outcomes = {one.value for one in Outcome if one is not Outcome.REJECTED}
    assert explained == outcomes | {reason.value for reason in Reason}
    waits = SCRIPT.partition("WAITS = {")[2].partition("};")[0]
    explained = set(re.findall(r"^  \"?([\w-]+)\"?:", waits, flags=re.MULTILINE))
    assert explained == {reason.value for reason in WaitReason}
    for health in Health:
        assert f'.state[data-health="{health.value}"]::before' in STYLE
        assert f'"{health.value}"' in SCRIPT.partition("HEALTHS = ")[2].partition(";")[0]
