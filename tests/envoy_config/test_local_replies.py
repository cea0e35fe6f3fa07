"""Claims about extproc/envoy_config/local_replies.py; over a real Envoy: tests/e2e."""

from __future__ import annotations

from typing import Any

from extproc.envoy_config.local_replies import local_replies
from extproc.envoy_config.options import EnvoyOptions
from extproc.header_names import READABLE
from tests.envoy_config.parts import plain
from tests.fakes.envoy_text import options_with


def mappers(**choices: Any) -> list[dict[str, Any]]:
    """Without the last, which is for all other replies."""
    found: list[dict[str, Any]] = plain(local_replies(options_with(**choices)))["mappers"]
    assert "body_format_override" not in found[-1]
    return found[:-1]


def error(mapper: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = mapper["body_format_override"]["json_format"]["error"]
    return found


def headers(mapper: dict[str, Any]) -> dict[str, str]:
    """What it adds, except what each adds."""
    added = mapper.get("headers_to_add", [])
    found = {each["header"]["key"]: each["header"]["value"] for each in added}
    return {name: value for name, value in found.items() if name not in READABLE}


def test_pages_of_any_origin_may_read_each() -> None:
    """Also those of routes, and of what Envoy answers without a response flag."""
    found = plain(local_replies(EnvoyOptions(checks_clients=True)))["mappers"]
    for mapper in found:
        added = {each["header"]["key"]: each for each in mapper["headers_to_add"]}
        for name, value in READABLE.items():
            assert added[name]["header"]["value"] == value
            assert added[name]["append_action"] == "OVERWRITE_IF_EXISTS_OR_ADD"
    assert "default_value" not in str(found[-1]["filter"]), "at least 0: every status"
    assert "GE" in str(found[-1]["filter"])


def test_each_is_in_openais_shape_and_each_reason_is_a_header_too() -> None:
    """Clients read `error.code`, scripts the header: they say the same."""
    for mapper in mappers(checks_clients=True):
        assert error(mapper).keys() == {"message", "type", "code"}
        told = headers(mapper).get("x-coxswain-reason")
        assert told in (None, error(mapper)["code"])


def test_a_lost_picker_may_be_asked_again() -> None:
    """503 instead of Envoy's 500, with the time after which; also one that an Envoy which has just
    started has not found yet."""
    _, awaited, lost = (each for each in mappers() if error(each)["code"] == "picker-lost")
    assert awaited["filter"]["response_flag_filter"]["flags"] == ["NC"]
    assert lost["status_code"] == 503
    for each in (awaited, lost):
        assert headers(each) == {"x-coxswain-reason": "picker-lost", "retry-after": "1"}


def test_a_request_that_no_server_has_seen_may_be_sent_again() -> None:
    """No connection, or no server that may be chosen without a pick; before the general words."""
    general = [each for each in mappers() if "response_flag_filter" in each["filter"]]
    _, first, last = general
    assert first["filter"]["response_flag_filter"]["flags"] == ["UF", "UH"]
    assert headers(first) == {"retry-after": "1"} and headers(last) == {}


def test_a_server_that_ends_the_connection_is_502() -> None:
    """Before Envoy's general words, which have the status 503."""
    codes = [error(each)["code"] for each in mappers()]
    assert codes.index("server-lost") < codes.index("%RESPONSE_FLAGS_LONG%")
    (lost,) = (each for each in mappers() if error(each)["code"] == "server-lost")
    assert lost["status_code"] == 502


def test_a_door_to_no_server_accuses_none() -> None:
    """The countdown's, and that of batches where it is: before those of servers, with any flag."""
    codes = [error(each)["code"] for each in mappers()]
    assert codes.index("picker-lost") == codes.index("unsupported-http") - 1
    found = mappers(batches="127.0.0.1:9006")[2:4]
    for mapper, route, code in zip(
        found, ("queue", "batches"), ("picker-lost", "batches-lost"), strict=True
    ):
        names_it, has_flag = mapper["filter"]["and_filter"]["filters"]
        assert f'xds.route_name == "{route}"' in str(names_it)
        assert "flags" not in has_flag["response_flag_filter"]
        assert (error(mapper)["code"], mapper["status_code"]) == (code, 503)
        assert headers(mapper) == {"x-coxswain-reason": code, "retry-after": "1"}


def test_too_many_headers_are_431_who_noticed() -> None:
    """Envoy's own bound answers 431; where ours came on top it would answer 500."""
    crowded = [each for each in mappers() if error(each)["code"] == "too-many-headers"]
    assert [each.get("status_code") for each in crowded] == [None, 431]


def test_where_clients_are_checked_a_late_picker_is_a_lost_one() -> None:
    """Nobody passes without it: 503 instead of Envoy's 504, and it may be asked again."""
    *_, late = mappers(checks_clients=True)
    assert "per-message_timeout" in str(late["filter"])
    assert (error(late)["code"], late["status_code"]) == ("picker-lost", 503)
    assert len(mappers(checks_clients=True)) == len(mappers()) + 1
