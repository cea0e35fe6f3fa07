"""`coxswain status`: the picker in one table; `coxswain version`: its version and ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import typer

from extproc.cli.admin_client import AdminClient
from extproc.cli.output import Format, OutputOption, plain, print_json, seconds
from extproc.cli.rpc_command import talks
from extproc.security.foreign_text import printable

if TYPE_CHECKING:
    from extproc.pb.coxswain.v1 import admin_pb2 as pb

HEALTHS: Final = ("ready", "degraded", "loading", "asleep", "off", "down")


@talks
async def status(picker: AdminClient, output: OutputOption = Format.TABLE) -> None:
    """Show whether the picker is ready, its endpoints, slots and queue, and what is wrong.

    \b
    Examples:
      coxswain status
      coxswain status -o json | jq .is_ready
    """
    from extproc.pb.coxswain.v1 import admin_pb2 as pb

    answer = await picker.ask(picker.admin.GetStatus, pb.GetStatusRequest())
    if output is Format.JSON:
        print_json(plain(answer))
        return
    slots, healths = answer.slots, answer.endpoints_by_health
    ready = "ready" if answer.is_ready else f"not ready: {'; '.join(answer.not_ready)}"
    known = [f"{healths[health]} {health}" for health in HEALTHS if healths.get(health)]
    queued = f"{answer.queue.queued} (at most {answer.queue.max_requests})"
    if answer.queue.HasField("expected_s"):
        queued += f", all served in {seconds(answer.queue.expected_s)}"
    rows = {
        "Picker": f"{answer.version}, up {seconds(answer.uptime_s)}, {ready}",
        "Endpoints": ", ".join(known) or "none",
        "Slots": f"{slots.total}: {slots.leased} leased, {slots.foreign} foreign, "
        f"{slots.idle} idle, {slots.unusable} unusable",
        "Running": str(answer.running),
        "Queued": queued,
        "Envoys": str(len(answer.envoys)),
    }
    if answer.pools:
        rows["Pools"] = "; ".join(map(_pool, answer.pools))
    if answer.queue.bounds:
        rows["Bounds"] = "; ".join(map(_bound, answer.queue.bounds))
    if answer.HasField("processes"):
        rows |= _processes(answer.processes)
    for name, text in rows.items():
        typer.echo(f"{name:<10} {printable(text)}")
    for note in (*filter(None, [answer.queue.idle_note]), *answer.problems):
        typer.echo(f"! {printable(note)}")


def _pool(pool: pb.GetStatusResponse.Pool) -> str:
    default = " (default)" if pool.is_default else ""
    slots = f"{pool.slots.idle} of {pool.slots.total} slots idle"
    return f"{pool.name}{default}: {slots}, {pool.running} running, {pool.queued} queued"


def _bound(bound: pb.GetStatusResponse.Bound) -> str:
    running, queued = f"{bound.running}", f"{bound.queued}"
    if bound.HasField("max_running"):
        running += f" of {bound.max_running}"
    if bound.HasField("max_queued"):
        queued += f" of {bound.max_queued}"
    return f"{bound.kind} {bound.name}: {running} running, {queued} queued"


def _processes(processes: pb.GetStatusResponse.Processes) -> dict[str, str]:
    members = [
        f"{each.role} {each.pid} ({each.connections} connections, {each.calls} calls)"
        if each.number
        else f"{each.role} {each.pid}"
        for each in processes.members
    ]
    takeovers = str(processes.takeovers)
    reasons = [f"{many} {why}" for why, many in processes.takeovers_by_reason.items() if many]
    if reasons:
        takeovers += f" ({', '.join(sorted(reasons))})"
    if processes.HasField("last_takeover"):
        last = processes.last_takeover
        takeovers += (
            f"; the last took {last.seconds:.2f} s and found {last.running} running and "
            f"{last.queued} queued requests at {last.fronts} fronts"
        )
    rows = {"Processes": ", ".join(members) or "not known yet", "Takeovers": takeovers}
    if processes.HasField("cluster"):
        rows["Cluster"] = _cluster(processes.cluster)
    return rows


def _cluster(cluster: pb.GetStatusResponse.Cluster) -> str:
    names = [
        f"{each.name} leads" if each.is_leading else f"{each.name} stands by"
        for each in cluster.members
    ]
    text = f"{', '.join(names) or 'no members known'}; epoch {cluster.epoch}"
    return text if cluster.is_in_touch else f"{text}; Valkey or the Kubernetes API does not answer"


@talks
async def version(picker: AdminClient, output: OutputOption = Format.TABLE) -> None:
    """Show the version of this command and that of the picker.

    `coxswain --version` shows only the first, without a picker.

    \b
    Example:
      coxswain version
    """
    from extproc.app.version import own_version
    from extproc.pb.coxswain.v1 import admin_pb2 as pb

    answer = await picker.ask(picker.admin.GetStatus, pb.GetStatusRequest())
    if output is Format.JSON:
        print_json({"command": own_version(), "picker": answer.version})
    else:
        typer.echo(f"command {own_version()}")
        typer.echo(f"picker  {printable(answer.version)}")
