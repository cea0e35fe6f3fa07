"""Run as a file: ask the kernel to kill this process when its parent dies, then become a command.

`python parent_death_signal.py PARENT_PID COMMAND [ARGUMENT ...]`. It replaces itself by the
command, so that the command's process is the one that was started. Where the kernel has no such
request (it is Linux's), the command runs all the same. Only the standard library's built-in parts
are used: it starts in some 20 ms.
"""

import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def tie_to_parent(parent: int) -> bool:
    """Have the kernel send SIGKILL when the parent ends; False when `parent` is gone already."""
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415  # only Linux has what it loads

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    # The parent may have died before the request: then another process has adopted us.
    return os.getppid() == parent


def main() -> None:
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if not tie_to_parent(parent):
        sys.exit(1)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
