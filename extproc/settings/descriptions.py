"""What the docstrings below settings say.

Pydantic can keep them with the fields, and parses the source of each section for it whenever a
process starts. Only the reference needs them.
"""

import ast
import inspect
import textwrap
from functools import cache
from itertools import pairwise

from pydantic import BaseModel


@cache
def descriptions_of(section: type[BaseModel]) -> dict[str, str]:
    """The docstring of each setting that has one, in one line, by the setting's name.

    Raises `OSError` where the source of the section is not there.
    """
    found: dict[str, str] = {}
    for base in reversed(section.__mro__):
        if issubclass(base, BaseModel) and base.__module__.startswith("extproc."):
            found |= _of_class(base)
    return found


def _of_class(section: type[BaseModel]) -> dict[str, str]:
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(section))).body
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for setting, below in pairwise(tree.body):
        if (
            isinstance(setting, ast.AnnAssign)
            and isinstance(setting.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
            and isinstance(below.value.value, str)
        ):
            found[setting.target.id] = " ".join(below.value.value.split())
    return found
