"""Claims about extproc/app/switchboard.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from extproc.app.switchboard import Switchboard
from extproc.core.address import Address


def test_each_line_reaches_all_that_are_connected_and_no_others() -> None:
    """In the order in which they were connected, with what the core told."""
    board = Switchboard()
    heard: list[tuple[Any, ...]] = []

    def ear(name: str, what: str) -> Callable[..., None]:
        return lambda *told: heard.append((name, what, *told))

    for name in ("first", "second"):
        board.on_settled.append(ear(name, "settled"))
        board.on_wake_at.append(ear(name, "wake"))
        board.on_membership_changed.append(ear(name, "members"))
        board.on_unsure_of.append(ear(name, "unsure"))
    address = Address("10.0.0.1", 8080)
    ticket, settlement = cast("Any", object()), cast("Any", object())
    board.settled(ticket, settlement)
    board.wake_at(3.5)
    board.membership_changed()
    board.unsure_of(address)
    assert heard == [
        (name, *told)
        for told in (
            ("settled", ticket, settlement),
            ("wake", 3.5),
            ("members",),
            ("unsure", address),
        )
        for name in ("first", "second")
    ]


def test_nobody_connected_is_no_error() -> None:
    Switchboard().membership_changed()
