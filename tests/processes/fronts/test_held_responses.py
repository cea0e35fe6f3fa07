"""Claims about extproc/processes/fronts/held_responses.py: counts are kept until they are taken."""

from __future__ import annotations

from pathlib import Path

from extproc.processes.fronts.held_responses import MAX_KEPT, HeldResponses
from extproc.usage.meter import ReadResponse

LLAMACPP = Path(__file__).parents[2] / "data" / "llamacpp"


def read(responses: HeldResponses, exchange_id: str, *, is_whole: bool = True) -> None:
    response = responses.open(exchange_id)
    response.tail.add(b'data: {"usage":{"input_tokens":3,"output_tokens":4}}')
    responses.close(response, is_whole=is_whole)


def test_counts_are_said_at_once_and_again_until_they_are_taken() -> None:
    said: list[ReadResponse] = []
    responses = HeldResponses(said.append)
    read(responses, "a")
    read(responses, "b", is_whole=False)
    assert said == [
        ("a", True, 1, False, 3, 4, None, None, None),
        ("b", False, 1, False, 3, 4, None, None, None),
    ]
    responses.taken("a")
    responses.taken("unknown")
    responses.say_again()
    assert said[2:] == [("b", False, 1, False, 3, 4, None, None, None)]


def test_an_overflow_at_the_end_of_a_stream_is_said() -> None:
    """Its bytes stay at the front."""
    said: list[ReadResponse] = []
    responses = HeldResponses(said.append)
    response = responses.open("a")
    response.tail.add((LLAMACPP / "overflow_stream_chat.txt").read_bytes())
    responses.close(response, is_whole=True)
    assert [is_overflow for _, _, _, is_overflow, *_ in said] == [True]


def test_a_bounded_number_is_kept() -> None:
    responses = HeldResponses(lambda _: None)
    for number in range(MAX_KEPT + 3):
        read(responses, str(number))
    assert len(responses) == MAX_KEPT
