"""The agents' service on the admin port."""

from __future__ import annotations

from extproc.admin.agents.dependencies import AgentsDependencies, AgentsOptions
from extproc.admin.agents.service import SERVICE, AgentsService

__all__ = ["SERVICE", "AgentsDependencies", "AgentsOptions", "AgentsService"]
