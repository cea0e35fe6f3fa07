"""The exit codes of commands that talk to a picker."""

from enum import IntEnum
from typing import Final


class ExitCode(IntEnum):
    """Exit codes; 0 is success."""

    REJECTED = 1  # the picker's state forbids it
    USAGE = 2  # the command line or the question is wrong
    UNREACHABLE = 3  # no picker answers there
    NOT_FOUND = 4  # no such endpoint or request
    UNAUTHENTICATED = 5  # the token or the certificate is missing or wrong
    NOT_YET = 6  # the deadline passed before it was done
    INTERRUPTED = 130  # Ctrl-C


EXIT_CODES: Final = """Exit codes: 0 done, 1 rejected by the picker, 2 wrong usage, 3 no picker
answers, 4 no such endpoint or request, 5 wrong token or certificate, 6 deadline passed,
130 interrupted."""
