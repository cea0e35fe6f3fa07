"""Claims about extproc/processes/fronts/frames.py."""

from __future__ import annotations

from random import Random

from extproc.processes.fronts.frames import MESSAGE, Codec


def test_batches_arrive_whole_however_the_bytes_are_cut() -> None:
    random = Random(1)
    batches = [
        [(MESSAGE, number, random.randbytes(random.randrange(5000))) for number in range(count)]
        for count in (1, 3, 0, 7)
    ]
    data = b"".join(map(Codec().encode, batches))
    for most in (1, 2, 3, 1000, len(data)):
        reader, found, start = Codec(), [], 0
        while start < len(data):
            step = random.randint(1, most)
            found += reader.feed(data[start : start + step])
            start += step
        assert found == batches


def test_a_batch_that_is_cut_off_is_never_read() -> None:
    """A core that dies while it writes has said nothing, or all of it."""
    data = Codec().encode([(MESSAGE, 1, b"x" * 100)])
    reader = Codec()
    assert reader.feed(data[:-1]) == []
