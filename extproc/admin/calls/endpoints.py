"""The calls about endpoints that answer at once."""

import asyncio
import logging
from typing import Final

from extproc.admin import arguments
from extproc.admin.auth.peer import peer_host
from extproc.admin.call_errors import Context, already, forbidden, invalid, maps_errors, not_now
from extproc.admin.dependencies import (
    ADDED,
    AdminCalls,
    AdminDependencies,
    NewEndpoint,
    NewEndpointError,
)
from extproc.admin.messages import endpoint_message
from extproc.core.address import Address, AddressError
from extproc.core.fleet.endpoint import Intent
from extproc.core.observation import MAX_SLOTS
from extproc.pb.coxswain.v1 import admin_pb2 as pb

MAX_ADDED: Final = 10_000
PAGE: Final = 1000
MAX_PAGE: Final = 10_000
MAX_PATH_CHARS: Final = 4096
HTTPS: Final = "https://"

log = logging.getLogger("coxswain.admin")


class EndpointCalls(AdminCalls):
    """List, add and remove endpoints, and set their intents."""

    def __init__(self, dependencies: AdminDependencies) -> None:
        super().__init__(dependencies)
        self._adding = asyncio.Lock()
        """One after the other: each is checked against all before it, also while keys are read."""

    @maps_errors
    async def ListEndpoints(  # noqa: N802  # gRPC names it
        self, request: pb.ListEndpointsRequest, _: Context
    ) -> pb.ListEndpointsResponse:
        fleet = self._dispatcher.fleet
        size = arguments.read_limit(request.page_size, "page_size", PAGE, MAX_PAGE)
        pool = arguments.find_pool(self._dispatcher.view.pools, request.pool)
        members = (one for one in fleet if pool in ("", one.spec.pool))
        endpoints = sorted(members, key=lambda endpoint: endpoint.address)
        total = len(endpoints)
        if request.page_token:
            try:
                after = Address.parse(request.page_token)
            except AddressError:
                raise invalid("page_token: give the next_page_token of the previous page") from None
            endpoints = [endpoint for endpoint in endpoints if endpoint.address > after]
        page, rest = endpoints[:size], endpoints[size:]
        now = self._dependencies.clock()
        return pb.ListEndpointsResponse(
            endpoints=[endpoint_message(self._dispatcher, endpoint, now) for endpoint in page],
            next_page_token=str(page[-1].address) if rest else "",
            total=total,
        )

    @maps_errors
    async def AddEndpoint(  # noqa: N802
        self, request: pb.AddEndpointRequest, context: Context
    ) -> pb.AddEndpointResponse:
        if request.slots > MAX_SLOTS:
            raise invalid(f"slots: at most {MAX_SLOTS}; 0 uses the number that the server reports")
        plain = request.address.strip()
        address, hostname = await arguments.read_new_address(plain.removeprefix(HTTPS))
        if rejection := self._dependencies.address_rejection(address, peer_host(context.peer())):
            log.warning("an operator was not allowed to add %s: %s", address, rejection)
            raise forbidden(rejection)
        arrival = NewEndpoint(
            address=address,
            host=hostname or address.host,
            is_tls=plain.startswith(HTTPS),
            name=request.name,
            slots=request.slots,
            ca_file=arguments.at_most(request.ca_file, "ca_file", MAX_PATH_CHARS),
            server_name=arguments.at_most(
                request.server_name, "server_name", arguments.MAX_NAME_CHARS
            ),
            api_key_env=arguments.at_most(
                request.api_key_env, "api_key_env", arguments.MAX_NAME_CHARS
            ),
            api_key_file=arguments.at_most(request.api_key_file, "api_key_file", MAX_PATH_CHARS),
            inject_key=request.inject_key,
            may_sleep=request.may_sleep if request.HasField("may_sleep") else None,
            kind=arguments.at_most(request.kind, "kind", arguments.MAX_NAME_CHARS),
            pool=arguments.find_pool(self._dispatcher.view.pools, request.pool),
        )
        async with self._adding:
            await self._add(arrival)
        log.info("an operator added %s", self._dispatcher.fleet.full_name_of(address))
        return pb.AddEndpointResponse(endpoint=self._message(address))

    async def _add(self, arrival: NewEndpoint) -> None:
        fleet, address = self._dispatcher.fleet, arrival.address
        arguments.check_new_name(fleet, arrival.name)
        known = fleet.get(address)
        if known is not None and not known.is_removed:
            sources = ", ".join(fleet.sources_of(address))
            raise already(f"{address} is in the fleet already, from: {sources}")
        if len(fleet.specs_of(ADDED)) >= MAX_ADDED:
            raise not_now(
                f"{MAX_ADDED} endpoints have been added this way, which is the limit; use a "
                "discovery file"
            )
        try:
            await self._dependencies.added.add(arrival)
        except NewEndpointError as error:
            raise invalid(str(error)) from None

    @maps_errors
    async def RemoveEndpoint(  # noqa: N802
        self, request: pb.RemoveEndpointRequest, _: Context
    ) -> pb.RemoveEndpointResponse:
        fleet = self._dispatcher.fleet
        address = arguments.find_endpoint(fleet, request.address).address
        added = fleet.specs_of(ADDED)
        others = [source for source in fleet.sources_of(address) if source != ADDED]
        if address not in added:
            if not others:
                raise not_now(f"{address} is already removed; its last requests are ending")
            raise not_now(
                f"{address} is also in {', '.join(others)}: remove it there, or drain or disable it"
            )
        running = len(self._dispatcher.view.slots_at(address).leases)
        self._dependencies.added.remove(address)
        log.info("an operator removed %s", address)
        return pb.RemoveEndpointResponse(running=running, remaining_sources=others)

    @maps_errors
    async def Activate(  # noqa: N802
        self, request: pb.ActivateRequest, _: Context
    ) -> pb.ActivateResponse:
        return pb.ActivateResponse(endpoint=self._intend(request.address, Intent.ACTIVE))

    @maps_errors
    async def Disable(  # noqa: N802
        self, request: pb.DisableRequest, _: Context
    ) -> pb.DisableResponse:
        return pb.DisableResponse(endpoint=self._intend(request.address, Intent.DISABLED))

    def _intend(self, text: str, intent: Intent) -> pb.Endpoint:
        endpoint = arguments.find_endpoint(self._dispatcher.fleet, text)
        if endpoint.is_removed:
            raise not_now(f"{endpoint.address} left the fleet; add it again with AddEndpoint")
        self._dispatcher.set_intent(endpoint.address, intent, self._dependencies.clock())
        name = self._dispatcher.fleet.full_name_of(endpoint.address)
        log.info("an operator set %s to %s", name, intent.value)
        return self._message(endpoint.address)

    def _message(self, address: Address) -> pb.Endpoint:
        endpoint = self._dispatcher.fleet.get(address)
        assert endpoint is not None
        return endpoint_message(self._dispatcher, endpoint, self._dependencies.clock())
