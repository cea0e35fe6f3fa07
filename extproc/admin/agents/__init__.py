"""The agents' side of the admin port: servers that are reported instead of looked at."""

from __future__ import annotations

from extproc.admin.agents.service import (
    SERVICE,
    AgentsOptions,
    AgentsService,
    AgentsSurroundings,
)

__all__ = ["SERVICE", "AgentsOptions", "AgentsService", "AgentsSurroundings"]
