"""All endpoints of a picker, however many pages they take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from extproc.pb.coxswain.v1 import admin_pb2 as pb

if TYPE_CHECKING:
    from extproc.cli.admin_client import AdminClient


async def all_endpoints(picker: AdminClient) -> list[pb.Endpoint]:
    """Sorted by address; raises `PickerError`."""
    found: list[pb.Endpoint] = []
    token = ""
    while True:
        page = await picker.ask(
            picker.admin.ListEndpoints, pb.ListEndpointsRequest(page_token=token)
        )
        found.extend(page.endpoints)
        token = page.next_page_token
        if not token:
            return found
