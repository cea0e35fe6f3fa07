"""`python -m extproc.cli` is `coxswain`."""

from __future__ import annotations

from extproc.cli import main

main()
