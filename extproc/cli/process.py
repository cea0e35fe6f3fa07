"""Run as a module by the supervisor: one of its processes, a core or a front.

`python -m extproc.cli.process OPTIONS SUPERVISOR ROLE NAME DESCRIPTOR`. OPTIONS are those of
`coxswain serve`, as JSON: each process reads the settings itself.
"""

import json
import os
import sys
from functools import partial
from pathlib import Path

from extproc.cli.loading import collector_at_rest

with collector_at_rest():
    import uvloop

    from extproc.app.logs import set_up_logging
    from extproc.app.ports import ListenError
    from extproc.cli.options import settings_from
    from extproc.processes.child import Identity, tie_to_supervisor
    from extproc.settings import CONFIG_VARIABLE, SettingsError


def main(arguments: list[str]) -> int:
    """Run until the supervisor ends it; returns the exit code."""
    text, supervisor, role, name, descriptor = arguments
    identity = Identity(name, int(supervisor), int(descriptor))
    tie_to_supervisor(identity.supervisor)
    options = json.loads(text)
    config = None if options["config"] is None else Path(options["config"])

    load = partial(settings_from, config, options["endpoints"], options["assignments"])
    try:
        settings = load()
        set_up_logging(settings.log)
        if role == "front":
            with collector_at_rest():
                from extproc.processes.front import run_front
            uvloop.run(run_front(settings, identity))
            return 0
        with collector_at_rest():
            from extproc.processes.core import run_core
        file = str(config or os.environ.get(CONFIG_VARIABLE, ""))
        return uvloop.run(run_core(settings, load, file, identity))
    except SettingsError as error:
        print(f"coxswain: {error}", file=sys.stderr)
        return 2
    except ListenError as error:
        print(f"coxswain: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
