"""`python tools/census.py [COMMIT]`: figures of the product's code, now and of a commit before.

Circles are sets of modules that import each other, also for types alone.
"""

import ast
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Final

PACKAGES: Final = ("extproc", "scraper")
GENERATED: Final = "extproc/pb/"
CRUMB_LINES: Final = 40


class Module:
    """What one file says of itself."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.lines = text.count("\n")
        tree = ast.parse(text)
        self.imports = list(_imported(tree))
        """Each with the module that it is part of if it is none itself."""
        self.late_imports = sum(
            isinstance(node, (ast.Import, ast.ImportFrom))
            for function in ast.walk(tree)
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
            for node in ast.walk(function)
        )
        names = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]
        self.anys = names.count("Any")
        self.state_reads = sum(
            isinstance(node, ast.Attribute) and _is_state(node.value) for node in ast.walk(tree)
        )
        self.takes_state = any(
            isinstance(node, ast.arg)
            and isinstance(node.annotation, ast.Name)
            and node.annotation.id == "State"
            for node in ast.walk(tree)
        )


def _is_state(node: ast.expr) -> bool:
    """Whether it is the core's state, as its modules name it."""
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return name in ("state", "_state")


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((f"{node.module}.{alias.name}", node.module) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, alias.name) for alias in node.names)


def read(root: Path) -> list[Module]:
    """The modules below `root` that people write."""
    found = []
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            below = path.relative_to(root)
            if not below.as_posix().startswith(GENERATED):
                name = ".".join(below.with_suffix("").parts).removesuffix(".__init__")
                found.append(Module(name, path.read_text(encoding="utf-8")))
    return found


def circles(modules: list[Module]) -> list[list[str]]:
    """The strongly connected components of more than one module (Tarjan 1972)."""
    names = {module.name for module in modules}
    graph = {
        module.name: {name if name in names else whole for name, whole in module.imports} & names
        for module in modules
    }
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(graph[name] - {name}):
            if other not in index:
                visit(other)
            if other in stack:
                low[name] = min(low[name], low[other])
        if low[name] == index[name]:
            at = stack.index(name)
            members = sorted(stack[at:])
            del stack[at:]
            if len(members) > 1:
                found.append(members)

    for name in graph:
        if name not in index:
            visit(name)
    return found


def figures(modules: list[Module]) -> dict[str, int]:
    """The figures by what they count."""
    lines = sum(module.lines for module in modules)
    core = [each for each in modules if each.name.startswith("extproc.core")]
    return {
        "files": len(modules),
        "lines": lines,
        "lines per file": lines // len(modules),
        f"files under {CRUMB_LINES} lines": sum(each.lines < CRUMB_LINES for each in modules),
        "circles": len(circles(modules)),
        "modules that take the whole State": sum(each.takes_state for each in modules),
        "calls to State": sum(each.state_reads for each in core),
        "late imports": sum(each.late_imports for each in modules),
        "late imports outside the command line": sum(
            each.late_imports for each in modules if not each.name.startswith("extproc.cli")
        ),
        "Any": sum(each.anys for each in modules),
    }


def report(now: list[Module], before: list[Module] | None = None) -> Iterator[str]:
    """The figures, a line each, with those of before in front; then the circles of now."""
    old = {} if before is None else figures(before)
    for what, number in figures(now).items():
        earlier = f"{old[what]:>9,}" if old else ""
        yield f"{earlier}{number:>9,}  {what}"
    yield from (" - ".join(members) for members in circles(now))


def _exported(commit: str, folder: Path) -> None:
    command = ["git", "archive", commit, *PACKAGES]
    archive = subprocess.run(command, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as files:
        files.extractall(folder, filter="data")


def main() -> None:
    before = None
    if len(sys.argv) > 1:
        with tempfile.TemporaryDirectory() as folder:
            _exported(sys.argv[1], Path(folder))
            before = read(Path(folder))
    print("\n".join(report(read(Path(__file__).parents[1]), before)))


if __name__ == "__main__":
    main()
