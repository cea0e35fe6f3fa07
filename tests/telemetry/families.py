"""All metrics, and those that are there only in some settings."""

from extproc.telemetry import definitions
from extproc.telemetry.definitions import Family

FAMILIES = tuple(each for each in vars(definitions).values() if isinstance(each, Family))
USAGE_FAMILIES = (
    definitions.USAGE_REQUESTS,
    definitions.USAGE_TOKENS,
    definitions.USAGE_SLOT_SECONDS,
    definitions.USAGE_COST,
)
"""Only there where usage is counted."""
PROCESS_FAMILIES = (definitions.PROCESSES, definitions.TAKEOVERS, definitions.FRONT_CALLS)
"""Only there with fronts."""
CLUSTER_FAMILIES = (
    definitions.LEADER,
    definitions.CLUSTER_MEMBERS,
    definitions.CLUSTER_EPOCH,
    definitions.ENGINE_UP,
)
"""Only there in a cluster."""
