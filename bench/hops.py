"""Where the time of one request goes: what Envoy's access log says of each hop, one request at a
time, without a picker, with ours, and with one in Go that decides nothing.
"""

import asyncio
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Final

from bench import load
from bench.envoy_tree import Tree, manager, pass_over_picker
from bench.result import Row, Say, Section
from bench.rig import WITHOUT_BODIES, Rig
from extproc.envoy_config import names

ROUNDS = 10
ROUND_S = 1.5
BODY_BYTES = 1_000
FLUSH_S = 11.0
"""Longer than Envoy keeps lines of its access log."""
OURS = "Coxswain, bodies are read"
_OF_MESSAGE: Final = {
    "request headers": "request_header_latency_us",
    "request body": "request_body_total_latency_us",
    "response headers": "response_header_latency_us",
}
_FROM_TO: Final = {
    "the request, until it is with the server": "DS_RX_BEG:US_TX_BEG",
    "the server": "US_TX_BEG:US_RX_BEG",
    "the response, until it is with the client": "US_RX_BEG:DS_TX_BEG",
    "all, in Envoy": "DS_RX_BEG:DS_TX_END",
}
LOGGED: Final = {
    **{
        f"the picker's reply, {what}": f"%FILTER_STATE({names.EXT_PROC_FILTER}:FIELD:{field})%"
        for what, field in _OF_MESSAGE.items()
    },
    **{what: f"%COMMON_DURATION({points}:us)%" for what, points in _FROM_TO.items()},
}


async def measure(say: Say) -> Section:
    """The contenders take turns, with one connection each."""
    async with Rig() as rig:
        (server,) = await rig.start_stand_ins(1, 256)
        _, picker = await rig.start_picker([server])
        _, quick = await rig.start_picker([server], WITHOUT_BODIES)
        ports: dict[str, int] = {}
        logs: dict[str, Path] = {}

        async def start(name: str, picker: int, processor: int | None = None) -> None:
            logs[name] = rig.folder / f"hops-{len(logs)}.log"
            has_picker = name != "no picker"
            edit = _log_to(logs[name], has_picker=has_picker)
            _, ports[name] = await rig.start_envoy(picker, processor_port=processor, edit=edit)

        await start("no picker", picker)
        await start(OURS, picker)
        await start("Coxswain, no bodies", quick)
        if shutil.which("go") is not None:
            _, floor = await rig.start_go_picker(server)
            await start("Go no-op, no bodies", picker, floor)
        for number in range(ROUNDS):
            for name, port in ports.items():
                say(f"hops: round {number + 1} of {ROUNDS}, {name}")
                await load.run(port, 1, ROUND_S, BODY_BYTES)
        await asyncio.sleep(FLUSH_S)
        rows = [
            Row(what=f"{name}: {what}", value=f"{us:.0f} us")
            for name, path in logs.items()
            for what, us in medians(path.read_text()).items()
        ]
    return Section(
        title="Hops",
        method=f"one connection, bodies of {BODY_BYTES:,} bytes, a server that answers at once; "
        f"medians of all requests in {ROUNDS} rounds of {ROUND_S:g} s for each in turn, as Envoy's "
        "access log has them",
        rows=tuple(rows),
    )


def _log_to(path: Path, *, has_picker: bool) -> Callable[[Tree], None]:
    def edit(tree: Tree) -> None:
        if not has_picker:
            pass_over_picker(tree)
        log = "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog"
        config = {"@type": log, "path": str(path), "log_format": {"json_format": LOGGED}}
        manager(tree)["access_log"] = [{"name": "hops", "typed_config": config}]

    return edit


def medians(log: str) -> dict[str, float]:
    """Of each column of the log's lines in which there is a number, in microseconds."""
    lines: list[Mapping[str, object]] = [json.loads(line) for line in log.splitlines()]
    found = {}
    for what in LOGGED:
        values = [float(str(line[what])) for line in lines if line[what] not in (None, "-")]
        if values:
            found[what] = median(values)
    return found
