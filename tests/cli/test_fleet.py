"""Claims about extproc/cli/fleet.py."""

from __future__ import annotations

from typing import Any, cast

from extproc.cli.admin_client import AdminClient
from extproc.cli.fleet import all_endpoints
from extproc.pb.coxswain.v1 import admin_pb2 as pb

PAGES = {"": (("a:1", "b:1"), "b"), "b": ((), "c"), "c": (("c:1",), "")}


class Paged:
    """A picker whose fleet takes three pages, the second of them empty."""

    admin: Any = type("Admin", (), {"ListEndpoints": None})

    async def ask(self, _call: object, asked: pb.ListEndpointsRequest) -> pb.ListEndpointsResponse:
        addresses, following = PAGES[asked.page_token]
        endpoints = [pb.Endpoint(address=address) for address in addresses]
        return pb.ListEndpointsResponse(endpoints=endpoints, next_page_token=following)


async def test_every_page_is_asked_for() -> None:
    """In the picker's order; a page without endpoints is not the end unless it says so."""
    found = await all_endpoints(cast("AdminClient", Paged()))
    assert [endpoint.address for endpoint in found] == ["a:1", "b:1", "c:1"]
