"""Settings of the number of servers that each model needs, and of the port for KEDA."""

from typing import Annotated, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from extproc.core.scaling.wanted import ScaleOptions, ServerBounds
from extproc.settings.section import Section
from extproc.settings.security_section import PortTlsSettings
from extproc.settings.values import (
    LIST,
    MAP,
    Bind,
    Reloadable,
    Seconds,
    SlotCount,
    SomeSeconds,
    Whole,
)


class ScaledModelSettings(Section):
    """A model that can be scaled from zero, by a name under which its servers report it."""

    min_servers: Whole = Field(default=0, ge=0, le=10_000)
    """The lowest number of wanted servers, also without requests."""
    max_servers: Whole = Field(default=100, ge=1, le=10_000)
    """The highest number of wanted servers."""
    slots: SlotCount | None = None
    """The slots of one server, until one has reported them."""

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.min_servers > self.max_servers:
            raise PydanticCustomError("order", "min_servers is above max_servers")
        return self


class ScaleSettings(Section):
    """The number of servers that each model needs: `coxswain scale` and the metric
    coxswain_model_wanted_servers show it. See docs/scaling.md."""

    target_wait_s: Reloadable[SomeSeconds] = 5.0
    """The mean time in the queue, in seconds, that the number aims at."""
    idle_s: Reloadable[Seconds] = 300.0
    """Seconds without a request for a model after which it needs no server."""
    down_after_s: Reloadable[Seconds] = 300.0
    """Seconds for which fewer servers would have done, after which fewer are wanted. More are
    wanted at once."""
    models: Annotated[dict[str, ScaledModelSettings], MAP] = Field(default={})
    """The models that can be scaled from zero, by name, each with the keys below: requests for them
    are queued while they have no server."""
    command: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], LIST] = ()
    """The program that starts and stops servers, and its arguments, run without a shell. Added are
    `up` or `down`, a name in models, and the number of servers (docs/scaling.md)."""
    command_timeout_s: SomeSeconds = 60.0
    """Seconds after which a run of the command is ended."""

    @model_validator(mode="after")
    def _check_models(self) -> Self:
        if self.command and not self.models:
            raise PydanticCustomError("together", "command needs models: name those it may start")
        return self

    def for_core(self) -> ScaleOptions:
        """The same for the core."""
        return ScaleOptions(
            target_wait_s=self.target_wait_s,
            idle_s=self.idle_s,
            down_after_s=self.down_after_s,
            models={
                name: ServerBounds(
                    min_servers=one.min_servers, max_servers=one.max_servers, slots=one.slots
                )
                for name, one in self.models.items()
            },
        )


class KedaSettings(PortTlsSettings):
    """KEDA's external scaler: reports how many servers each model needs. See docs/scaling.md."""

    listen: Bind | None = None
    """The address for KEDA, such as 0.0.0.0:9004; closed without it. KEDA sends no token
    (docs/scaling.md)."""
