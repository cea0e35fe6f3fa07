"""Claims about extproc/batches/picker_news.py, over real gRPC."""

from __future__ import annotations

import asyncio

import grpc

from extproc.batches.gate import Capacity
from extproc.batches.picker_news import ALL, PickerNews
from extproc.core.observation import ModelReading
from tests.fakes.picker import running_picker, until

A, B = "10.0.0.1:8080", "10.0.0.2:8080"


async def test_what_the_picker_reports() -> None:
    """The slots of the fleet, and of a model where they are its own; nothing without a picker."""
    async with running_picker() as picker:
        changed = asyncio.Event()
        news = PickerNews(
            "the picker",
            lambda: grpc.aio.insecure_channel(f"127.0.0.1:{picker.port}"),
            tuple,
            "batch",
        )
        news.on_news = changed.set
        assert news.capacity(ALL) is None
        news.start()
        try:
            picker.add_ready(A, name="one", slots=2)
            await until(lambda: news.capacity(ALL) == Capacity(slots=2, busy=0))
            assert changed.is_set()
            assert news.pool_of("tiny") == news.pool_of("unknown") == ALL
            picker.add_ready(B, name="two")
            loaded = ModelReading(name="tiny", aliases=("small",))
            picker.observe(A, slots=2, models=(loaded,))
            picker.observe(B, slots=4, models=(ModelReading(name="large", is_loaded=False),))
            await until(lambda: news.pool_of("small") == "tiny")
            assert news.capacity("tiny") == Capacity(slots=2, busy=0)
            assert news.capacity("large") is None, "no line is a reason to load a model"
        finally:
            await news.aclose()
