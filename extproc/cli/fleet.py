"""All endpoints of a picker, however many pages they take."""

from extproc.cli.admin_client import AdminClient
from extproc.pb.coxswain.v1 import admin_pb2 as pb


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
