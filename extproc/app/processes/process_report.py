"""Reads what the supervisor reports of its processes."""

from extproc.app.processes.control import Message
from extproc.core.processes import ClusterReport, Process, Processes, Takeover


def read_report(message: Message, last_takeover: Takeover | None) -> Processes:
    """The processes of a message of the supervisor. It may be older than this core, if the program
    was replaced while it ran: what it does not say is left out."""
    return Processes(
        fronts=int(message.get("fronts", 0)),
        takeovers={str(key): int(count) for key, count in message.get("takeovers", {}).items()},
        restarts={str(key): int(count) for key, count in message.get("restarts", {}).items()},
        members=tuple(
            Process(
                name=str(each["name"]),
                role=str(each["role"]),
                pid=int(each["pid"]),
                age_s=float(each["age_s"]),
                connections=int(each.get("connections", 0)),
                calls=int(each.get("calls", 0)),
                number=int(each.get("number", 0)),
            )
            for each in message.get("members", [])
        ),
        last_takeover=last_takeover,
        cluster=ClusterReport.from_json(message["cluster"]) if message.get("cluster") else None,
    )
