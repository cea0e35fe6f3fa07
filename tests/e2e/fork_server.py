"""Run as a module: starts modules of ours in processes that have imported them already.

`python -m tests.e2e.fork_server DESCRIPTOR`. Importing what a picker needs takes seconds of
processor time, most of it Envoy's types and their first use, and the suite starts hundreds. This
process does it once, and forks for each request that comes by the socket DESCRIPTOR. The forked
process runs `python -m MODULE` from there on: the same main function, arguments, environment and
files.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import select
import signal
import socket
import struct
import sys
from contextlib import suppress

from extproc.envoy_config.clusters import served_llama
from extproc.keeper import parent_death_signal
from extproc.settings import Settings

NUMBER = struct.Struct("i")
MAX_REQUEST_BYTES = 200_000
PRELOADED = (
    *("extproc.cli.root", "extproc.cli.options", "extproc.app.serve"),
    *("extproc.demo.simulator.options", "extproc.demo.simulator.server"),
)


def main() -> None:
    """Fork until the other end of the socket is closed."""
    gc.disable()
    for name in PRELOADED:
        __import__(name)
    served_llama(Settings(), (), injects_keys=False, reuses=False)
    gc.collect()
    gc.freeze()
    module, *arguments = _serve(socket.socket(fileno=int(sys.argv[1])))
    sys.argv = ["", *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _serve(requests: socket.socket) -> list[str]:
    """Fork for each request; returns in each forked process, with its module and arguments.

    A request is that, a folder and the environment, with two descriptors: of the log, and of a pipe
    that gets the exit status. Its answer is the process's id.
    """
    waking, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken)
    statuses: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([requests.fileno(), waking], [], [])
        if waking in ready:
            os.read(waking, 1)
            _tell_ends(statuses)
        if requests.fileno() not in ready:
            continue
        request, descriptors, _, _ = socket.recv_fds(requests, MAX_REQUEST_BYTES, 2)
        if not request:
            sys.exit(0)
        *command, folder, environment = json.loads(request)
        log, status = descriptors
        parent = os.getpid()
        if pid := os.fork():
            statuses[pid] = status
            os.close(log)
            continue
        os.setsid()
        requests.send(NUMBER.pack(os.getpid()))
        requests.detach()
        _become_ordinary(parent, log, folder, environment)
        return [str(word) for word in command]


def _tell_ends(statuses: dict[int, int]) -> None:
    """Write the exit status of each forked process that has ended into its pipe."""
    while statuses:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        pipe = statuses.pop(pid)
        with suppress(BrokenPipeError):  # nobody waits for it any more
            os.write(pipe, NUMBER.pack(os.waitstatus_to_exitcode(status)))
        os.close(pipe)


def _become_ordinary(parent: int, log: int, folder: str, environment: dict[str, str]) -> None:
    """Have what a process has that was started by a command, and nothing of its parent's."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if not parent_death_signal.tie_to_parent(parent):
        os._exit(1)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    gc.enable()


if __name__ == "__main__":
    main()
