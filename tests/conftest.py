"""What holds for every test: none asserts a time, so hypothesis does not either; and Ctrl-C means
what it means in a terminal, though a shell has those ignore it that it starts in the background."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("coxswain", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("coxswain")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _ctrl_c_is_pytests() -> Iterator[None]:
    """`main` takes the process for the command's own, and ends it at Ctrl-C."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)
