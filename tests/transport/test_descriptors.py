"""Claims about extproc/transport/descriptors.py."""

from __future__ import annotations

import logging
import resource
import subprocess
import sys
from errno import ECONNREFUSED, EHOSTUNREACH

import httpx
import pytest

from extproc.transport import descriptors
from extproc.transport.descriptors import OWN_ERRORS, own_fault

SHARES = (descriptors.PAGES, descriptors.DATA_PLANE, descriptors.ADMIN, descriptors.KEDA)
RAISE = (
    "import logging, resource; logging.basicConfig()\n"
    "from extproc.transport.descriptors import raise_limit\n"
    "raise_limit(); print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
)


def limited(soft: int, hard: int) -> tuple[int, str]:
    """The limit of a process that began with these and has raised it, and what it said."""
    done = subprocess.run(
        ["prlimit", f"--nofile={soft}:{hard}", sys.executable, "-c", RAISE],
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout), done.stderr


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    """And where that is low, it is said."""
    hard = min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], descriptors.FEW + 1)
    raised, said = limited(512, hard)
    assert raised == hard and (not said or hard < descriptors.FEW)
    raised, said = limited(512, 1_024)
    assert raised == 1_024 and "LimitNOFILE" in said


@pytest.mark.parametrize("few", [64, 256, 1_024, 20_000, 1 << 20])
def test_all_ports_together_leave_a_third(monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (few, few))
    taken = [descriptors.connections(share) for share in SHARES]
    assert min(taken) > 0 and sum(taken) < few * 2 / 3


@pytest.mark.parametrize("number", sorted(OWN_ERRORS))
def test_what_we_have_run_out_of_is_found_below_what_libraries_make_of_it(number: int) -> None:
    def wrapped(error: BaseException, *, by_context: bool = False) -> BaseException:
        try:
            try:
                raise error
            except BaseException as cause:
                if by_context:
                    raise httpx.ConnectError("failed")  # noqa: B904 - as some libraries do
                raise httpx.ConnectError("failed") from cause
        except httpx.ConnectError as made:
            return made

    error = OSError(number, "x")
    for made in (error, wrapped(error), wrapped(error, by_context=True)):
        assert own_fault(made)
    assert own_fault(wrapped(ExceptionGroup("two", [OSError(ECONNREFUSED, "x"), error])))


def test_what_others_do_is_none_of_ours() -> None:
    for number in (ECONNREFUSED, EHOSTUNREACH):
        assert own_fault(OSError(number, "x")) == ""
    circle = ValueError("x")
    circle.__context__ = httpx.ConnectError("y")
    circle.__context__.__context__ = circle
    assert own_fault(circle) == ""


def test_a_limit_that_cannot_be_raised_is_no_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)

    def forbidden(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(resource, "getrlimit", lambda _: (1_024, 1 << 20))
    monkeypatch.setattr(resource, "setrlimit", forbidden)
    descriptors.raise_limit()
    assert "may open 1024" in caplog.text
