"""The agents' service on the admin port."""

from extproc.admin.agents.dependencies import AgentsDependencies, AgentsOptions
from extproc.admin.agents.service import SERVICE, AgentsService
