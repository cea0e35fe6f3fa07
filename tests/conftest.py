"""What holds for every test: none asserts a time, so hypothesis does not either."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("coxswain", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("coxswain")
