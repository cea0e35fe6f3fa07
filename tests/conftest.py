"""What holds for every test: none asserts a time, so hypothesis does not either; and Ctrl-C means
what it means in a terminal, though a shell has those ignore it that it starts in the background."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

settings.register_profile("coxswain", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("coxswain")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
