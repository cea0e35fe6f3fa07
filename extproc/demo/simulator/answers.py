"""Answers in the formats of the APIs that llama-server speaks, whole and as event streams. Pure.

An answer has one choice for each task. Of a stream, `began`, `part` and `ended` are the bytes for
one choice, and `closed` those after the last one; they may be empty.
"""

import json
import secrets
import time
from abc import ABC, abstractmethod
from typing import ClassVar, Final

from extproc.demo.simulator import responses
from extproc.demo.simulator.body import Json, read_input, read_messages, read_prompt, wants_usage
from extproc.demo.simulator.options import SimulatorOptions
from extproc.demo.simulator.slots import Task

_DONE: Final = b"data: [DONE]\n\n"


def event(value: Json, name: str = "") -> bytes:
    """One event of a stream."""
    line = f"event: {name}\n" if name else ""
    return f"{line}data: {json.dumps(value, separators=(',', ':'))}\n\n".encode()


def error_event(error: Json) -> bytes:
    """The end of a stream that failed."""
    return event({"error": error})


class Answer(ABC):
    """The answer to one request with this body."""

    def __init__(self, body: Json, options: SimulatorOptions) -> None:
        self._options = options
        self._has_usage = wants_usage(body)
        self._id = secrets.token_urlsafe(24)

    @staticmethod
    @abstractmethod
    def prompt(body: Json) -> bytes:
        """The prompt in a body; raises `BadRequestError`."""

    @abstractmethod
    def whole(self, tasks: list[Task]) -> Json:
        """The answer as one object."""

    def task_began(self, index: int, task: Task) -> bytes:
        """The first token of a choice is there."""
        return b""

    @abstractmethod
    def part(self, index: int, text: str) -> bytes:
        """One token of a choice."""

    @abstractmethod
    def task_ended(self, index: int, task: Task) -> bytes:
        """A choice is complete."""

    def closed(self, tasks: list[Task]) -> bytes:
        """All choices are complete."""
        return b""

    def failed(self, error: Json) -> bytes:
        """The last event, if the answer failed after the headers were sent."""
        return error_event(error)


class TextCompletion(Answer):
    """OpenAI's completions."""

    kind: ClassVar[str] = "text_completion"
    streamed_kind: ClassVar[str] = "text_completion"

    @staticmethod
    def prompt(body: Json) -> bytes:
        return read_prompt(body)

    def whole(self, tasks: list[Task]) -> Json:
        choices = [self._choice(index, responses.text_of(task)) for index, task in enumerate(tasks)]
        counts = {"usage": responses.usage(tasks), "timings": responses.timings(tasks[0])}
        return self._frame(self.kind, choices) | counts

    def part(self, index: int, text: str) -> bytes:
        return self._event([_text(index, text, None)])

    def task_ended(self, index: int, task: Task) -> bytes:
        counts = {"usage": responses.usage([task]), "timings": responses.timings(task)}
        return self._event([_text(index, "", "length")], counts)

    def closed(self, tasks: list[Task]) -> bytes:
        return _DONE

    def _choice(self, index: int, text: str) -> Json:
        return _text(index, text, "length")

    def _event(self, choices: list[Json], fields: Json | None = None) -> bytes:
        return event(self._frame(self.streamed_kind, choices) | (fields or {}))

    def _frame(self, kind: str, choices: list[Json]) -> Json:
        return {
            "choices": choices,
            "created": int(time.time()),
            "model": self._options.alias,
            "system_fingerprint": responses.FINGERPRINT,
            "object": kind,
            "id": f"chatcmpl-{self._id}",
        }


def _text(index: int, text: str, reason: str | None) -> Json:
    return {"text": text, "index": index, "logprobs": None, "finish_reason": reason}


class ChatCompletion(TextCompletion):
    """OpenAI's chat completions."""

    kind = "chat.completion"
    streamed_kind = "chat.completion.chunk"

    @staticmethod
    def prompt(body: Json) -> bytes:
        return read_messages(body)

    def task_began(self, index: int, task: Task) -> bytes:
        return self._event([_delta(index, {"role": "assistant", "content": None}, None)])

    def part(self, index: int, text: str) -> bytes:
        return self._event([_delta(index, {"content": text}, None)])

    def task_ended(self, index: int, task: Task) -> bytes:
        timings = {"timings": responses.timings(task)}
        return self._event([_delta(index, {}, "length")], timings)

    def closed(self, tasks: list[Task]) -> bytes:
        counts = self._event([], {"usage": responses.usage(tasks)}) if self._has_usage else b""
        return counts + _DONE

    def _choice(self, index: int, text: str) -> Json:
        message = {"role": "assistant", "content": text}
        return {"finish_reason": "length", "index": index, "message": message}


def _delta(index: int, delta: Json, reason: str | None) -> Json:
    return {"finish_reason": reason, "index": index, "delta": delta}


class Message(Answer):
    """Anthropic's messages."""

    @staticmethod
    def prompt(body: Json) -> bytes:
        return read_messages(body)

    def whole(self, tasks: list[Task]) -> Json:
        content = [{"type": "text", "text": responses.text_of(tasks[0])}]
        return self._message(tasks[0], content, "max_tokens")

    def task_began(self, index: int, task: Task) -> bytes:
        return _named("message_start", message=self._message(task, [], None)) + _named(
            "content_block_start", index=0, content_block={"type": "text", "text": ""}
        )

    def part(self, index: int, text: str) -> bytes:
        delta = {"type": "text_delta", "text": text}
        return _named("content_block_delta", index=0, delta=delta)

    def task_ended(self, index: int, task: Task) -> bytes:
        delta = {"stop_reason": "max_tokens", "stop_sequence": None}
        return (
            _named("content_block_stop", index=0)
            + _named("message_delta", delta=delta, usage={"output_tokens": task.decoded})
            + _named("message_stop")
        )

    def failed(self, error: Json) -> bytes:
        return event(error, "error")

    def _message(self, task: Task, content: list[Json], stop_reason: str | None) -> Json:
        usage = {
            "cache_read_input_tokens": task.cached_tokens,
            "input_tokens": task.prompt_tokens - task.cached_tokens,
            "output_tokens": task.decoded if content else 0,
        }
        return {
            "id": f"chatcmpl-{self._id}",
            "type": "message",
            "role": "assistant",
            "content": content,
            "model": self._options.alias,
            "stop_reason": stop_reason,
            "stop_sequence": None,
            "usage": usage,
        }


class Response(Answer):
    """OpenAI's responses."""

    @staticmethod
    def prompt(body: Json) -> bytes:
        return read_input(body)

    def whole(self, tasks: list[Task]) -> Json:
        return self._completed(tasks[0]) | {"completed_at": int(time.time())}

    def task_began(self, index: int, task: Task) -> bytes:
        response = {"id": self._response_id, "object": "response", "status": "in_progress"}
        return (
            _named("response.created", response=response)
            + _named("response.in_progress", response=response)
            + _named("response.output_item.added", item=self._item([], "in_progress"))
            + self._item_event("response.content_part.added", part=_output_text(""))
        )

    def part(self, index: int, text: str) -> bytes:
        return self._item_event("response.output_text.delta", delta=text)

    def task_ended(self, index: int, task: Task) -> bytes:
        text = responses.text_of(task)
        item = self._item([_output_text(text)], "completed")
        return (
            self._item_event("response.output_text.done", text=text)
            + self._item_event("response.content_part.done", part=_output_text(text))
            + _named("response.output_item.done", item=item)
            + _named(
                "response.completed",
                response=self._completed(task),
                timings=responses.timings(task),
            )
        )

    @property
    def _response_id(self) -> str:
        return f"resp_{self._id}"

    def _item_event(self, name: str, **fields: object) -> bytes:
        return _named(name, item_id=f"msg_{self._id}", content_index=0, output_index=0, **fields)

    def _item(self, content: list[Json], status: str) -> Json:
        return {
            "type": "message",
            "id": f"msg_{self._id}",
            "role": "assistant",
            "status": status,
            "content": content,
        }

    def _completed(self, task: Task) -> Json:
        usage = {
            "input_tokens": task.prompt_tokens,
            "output_tokens": task.decoded,
            "total_tokens": task.prompt_tokens + task.decoded,
            "input_tokens_details": {"cached_tokens": task.cached_tokens},
        }
        return {
            "id": self._response_id,
            "object": "response",
            "created_at": int(time.time()),
            "status": "completed",
            "model": self._options.alias,
            "output": [self._item([_output_text(responses.text_of(task))], "completed")],
            "usage": usage,
        }


def _output_text(text: str) -> Json:
    return {"type": "output_text", "annotations": [], "logprobs": [], "text": text}


class Transcription(Answer):
    """OpenAI's transcriptions of audio, which has no text to read here."""

    @staticmethod
    def prompt(body: Json) -> bytes:
        return str(body["file"]).encode()

    def whole(self, tasks: list[Task]) -> Json:
        return {"text": responses.text_of(tasks[0]), "usage": self._usage(tasks[0])}

    def part(self, index: int, text: str) -> bytes:
        return event({"type": "transcript.text.delta", "delta": text})

    def task_ended(self, index: int, task: Task) -> bytes:
        text, usage = responses.text_of(task), self._usage(task)
        return event({"type": "transcript.text.done", "text": text, "usage": usage})

    def closed(self, tasks: list[Task]) -> bytes:
        return _DONE

    @staticmethod
    def _usage(task: Task) -> Json:
        return {
            "type": "tokens",
            "input_tokens": task.prompt_tokens,
            "output_tokens": task.decoded,
            "total_tokens": task.prompt_tokens + task.decoded,
        }


def _named(name: str, **fields: object) -> bytes:
    return event({"type": name, **fields}, name)
