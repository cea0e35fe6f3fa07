"""Claims about extproc/core/exchange_record.py."""

from __future__ import annotations

from inspect import signature

from extproc.core.exchange_record import ExchangeRecord


def test_each_value_is_kept_under_its_own_name() -> None:
    names = [name for name in signature(ExchangeRecord.__init__).parameters if name != "self"]
    values = {name: object() for name in names}
    record = ExchangeRecord(**values)  # type: ignore[arg-type]
    assert {name: getattr(record, name) for name in names} == values
