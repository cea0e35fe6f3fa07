"""The dependencies of the agents' service."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from extproc.core.address import Address
from extproc.core.fleet.endpoint import EndpointSpec
from extproc.core.observation import Observation
from extproc.core.scheduler.dispatcher import Dispatcher


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentsDependencies:
    """The callbacks of the service. All are called from the event loop.

    `publish` receives the endpoints of all agents, `observe` each observation.
    `reporting_changed` is called when an agent becomes silent or sends messages again: the
    picker may have to scrape its server itself.
    """

    dispatcher: Dispatcher
    clock: Callable[[], float]
    publish: Callable[[list[EndpointSpec]], None]
    observe: Callable[[Observation], None]
    reporting_changed: Callable[[], None] = lambda: None
    address_rejection: Callable[[Address, str], str] = lambda _address, _peer: ""
    """Why an agent at this IP address may not report this address; empty if it may."""
    others_naming: Callable[[Address], Sequence[str]] = lambda _: ()
    """The other sources of this endpoint, besides agents."""
    is_scraped_by_picker: Callable[[Address], bool] = lambda _: False
    """Whether the picker itself can scrape it if its agent does not."""
