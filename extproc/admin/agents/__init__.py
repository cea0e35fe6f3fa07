"""The agents' service on the admin port."""

from extproc.admin.agents.dependencies import AgentsDependencies
from extproc.admin.agents.service import SERVICE, AgentsService
