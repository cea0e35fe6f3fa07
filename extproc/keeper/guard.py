"""Run as a file between the keeper and one server: no process of the server outlives the keeper.

    python guard.py KEEPER_PID COMMAND [ARGUMENT ...]

The kernel sends this process SIGUSR1 when the keeper dies, however it dies; then it kills the
server and every process that the server started. If this process itself is killed, the kernel
kills the server. SIGTERM goes on to the server, and SIGUSR1 kills it at once. It ends as the
server ended: with its exit status, or by the same signal.

The kernel ties this process to the thread that started it: start it from a thread that stays.
Only the standard library's built-in parts are used.
"""

import ctypes
import os
import signal
import sys
import time
from contextlib import suppress

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
NOT_RUN = 127
REAP_S = 5.0
REAP_POLL_S = 0.02


def request(option: int, value: int) -> None:
    """Ask the kernel for something about this process; ignored where it is not Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def kill_group(group: int, number: int) -> None:
    """Send a signal to every process of a group; none is no error."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def reap_rest() -> None:
    """Kill the processes that the server left behind: the kernel made them our children."""
    until = time.monotonic() + REAP_S
    while time.monotonic() < until:
        try:
            with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as listed:
                for pid in listed.read().split():
                    os.kill(int(pid), signal.SIGKILL)
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(REAP_POLL_S)
        except (OSError, ValueError):
            return  # none is left


def run_server(command: list[str], parent: int) -> None:
    """In the new process: become the server, unless `parent`, which has forked it, is gone."""
    request(PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != parent:
        os._exit(NOT_RUN)
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        sys.stderr.flush()
    os._exit(NOT_RUN)


def main() -> None:
    keeper, command = int(sys.argv[1]), sys.argv[2:]
    handled = (signal.SIGTERM, signal.SIGUSR1)
    signal.pthread_sigmask(signal.SIG_BLOCK, handled)  # until there is a server to pass them to
    request(PR_SET_PDEATHSIG, int(signal.SIGUSR1))
    request(PR_SET_CHILD_SUBREAPER, 1)
    if os.getppid() != keeper:
        sys.exit(1)
    own = os.getpid()
    server = os.fork()
    if server == 0:
        os.setpgid(0, 0)
        run_server(command, own)
    with suppress(OSError):
        os.setpgid(server, server)  # whichever of the two comes first
    signal.signal(signal.SIGTERM, lambda *_: kill_group(server, signal.SIGTERM))
    signal.signal(signal.SIGUSR1, lambda *_: kill_group(server, signal.SIGKILL))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, handled)
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == server:
            break
    kill_group(server, signal.SIGKILL)
    reap_rest()
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main()
