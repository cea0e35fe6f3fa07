"""The base of every group of settings."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A group of settings: immutable, with no keys except those it declares."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        hide_input_in_errors=True,
        defer_build=True,
    )
