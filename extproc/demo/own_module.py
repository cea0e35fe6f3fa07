"""How to start a module as a process of its own, whatever lies in the current folder."""

import sys


def own_module(name: str) -> list[str]:
    """The beginning of a command line that runs module `name`; its arguments come behind.

    `python -m` looks for modules in the current folder first: a stray `h2.py` or `grpc.py` there
    would be run as a part of us. With `-P` it looks only where packages are installed; a checkout
    is, too, since `.venv` has a link to it.
    """
    return [sys.executable, "-P", "-m", name]
