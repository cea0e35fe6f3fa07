"""Reads what the supervisor reports of its processes."""

from extproc.core.processes import ClusterReport, Process, Processes, Takeover
from extproc.processes.control import Message


def read_report(message: Message, last_takeover: Takeover | None) -> Processes:
    """The processes of a message of the supervisor. It may be older than this core, if the program
    was replaced while it ran: what it does not say is left out."""
    return Processes(
        fronts=message.get("fronts", 0),
        takeovers=message.get("takeovers", {}),
        restarts=message.get("restarts", {}),
        members=tuple(Process(**each) for each in message.get("members", [])),
        last_takeover=last_takeover,
        cluster=ClusterReport.from_json(message["cluster"]) if message.get("cluster") else None,
    )
