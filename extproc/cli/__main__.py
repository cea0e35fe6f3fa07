"""`python -m extproc.cli` is `coxswain`."""

from extproc.cli import main

main()
