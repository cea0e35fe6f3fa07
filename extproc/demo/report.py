"""The output of `coxswain up`: plain lines, each printed once."""

import os
import sys
import time
from typing import IO

from extproc.demo.process import ChildError
from extproc.security.foreign_text import escaped

NAME_WIDTH = 34
LOST_LINES = 3


class Report:
    """Counts the time from its making. Once nobody reads any more, the rest goes nowhere."""

    def __init__(self, out: IO[str] | None = None, errors: IO[str] | None = None) -> None:
        self._out = out or sys.stdout
        self._errors = errors or sys.stderr
        self._began = time.monotonic()

    def line(self, text: str = "") -> None:
        try:
            print(text, file=self._out, flush=True)
        except BrokenPipeError:
            with open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), self._out.fileno())  # also for what is in its buffer

    def ready(self, name: str, detail: str) -> None:
        """One part is up."""
        took = time.monotonic() - self._began
        self.line(f"  ready  {name:{NAME_WIDTH}} {detail:24} {took:6.1f} s")

    def waiting(self, name: str, detail: str) -> None:
        """One part is not up, and that is nobody's fault here."""
        self.line(f"  ...    {name:{NAME_WIDTH}} {detail}")

    def lost(self, error: ChildError) -> None:
        """One of our own servers has ended; the others serve on."""
        self.line(f"  lost   {error}. The rest goes on. Its last lines:")
        for line in error.tail.splitlines()[-LOST_LINES:]:
            self.line(f"           {line}")

    def failed(self, error: ChildError) -> None:
        """One of our own parts is lost, and with it the run."""
        lines = [f"coxswain up: {error}. Everything is stopped."]
        if error.tail:
            lines.append("Its last lines:")
            lines += [f"  {line}" for line in error.tail.splitlines()]
        print(escaped("\n".join(lines)), file=self._errors, flush=True)

    def rejected(self, error: Exception) -> None:
        """It cannot even be started."""
        print(f"coxswain up: {error}", file=self._errors, flush=True)
