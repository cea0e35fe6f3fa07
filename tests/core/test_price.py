"""Claims about extproc/core/price.py."""

from __future__ import annotations

from extproc.core.price import FREE, Price


def test_a_price_is_for_a_million_tokens_and_a_slot_second() -> None:
    assert Price(prompt=2.0, generated=8.0).of(500_000, 250_000, 7.0) == 3.0
    assert Price(slot_s=0.5).of(10, 10, 4.0) == 2.0
    assert FREE.of(10**9, 10**9, 10.0**9) == 0.0
