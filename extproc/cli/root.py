"""Puts the commands together. A new one is named in `COMMANDS`, a new group in `GROUPS`.

What a command needs is imported when it runs, so that `coxswain --help` answers at once.
"""

from extproc.cli.application import application
from extproc.cli.commands import batch, config, endpoints, keeper, keys, models, queue, requests
from extproc.cli.commands.agent import agent
from extproc.cli.commands.events import events
from extproc.cli.commands.explain import explain
from extproc.cli.commands.members import members
from extproc.cli.commands.models import load, logs, pin, unload
from extproc.cli.commands.scale import scale
from extproc.cli.commands.serve import serve
from extproc.cli.commands.status import status, version
from extproc.cli.commands.top import top
from extproc.cli.commands.up import up
from extproc.cli.commands.usage import usage

COMMANDS = (
    *(up, serve, agent, status, version, top, load, unload, pin, logs),
    *(scale, usage, members, explain, events),
)
GROUPS = {
    "keeper": keeper.group,
    "endpoints": endpoints.group,
    "models": models.group,
    "queue": queue.group,
    "requests": requests.group,
    "batch": batch.group,
    "keys": keys.group,
    "config": config.group,
}

root = application(COMMANDS, GROUPS)
