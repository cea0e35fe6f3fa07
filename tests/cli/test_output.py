"""Claims about extproc/cli/output.py: every answer can be had as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st

from extproc.cli.output import counted, plain, word
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from tests.cli.typed_command import Command
from tools.commands_page import commands_below

NO_ANSWER = {
    "coxswain up",
    "coxswain serve",
    "coxswain batch results",
    "coxswain batch run",
    "coxswain agent",
    "coxswain keeper",
    "coxswain config schema",  # is JSON always
    "coxswain config reference",  # is a page
}
"""What runs until it is stopped, or says one thing in its own format."""


def test_every_answer_can_be_json() -> None:
    """Each command has `-o`, but for those that answer nothing, or in a format of their own."""
    commands = dict(commands_below())
    assert NO_ANSWER <= commands.keys()
    for name, command in commands.items():
        options = {option for parameter in command.params for option in parameter.opts}
        assert ({"-o", "--output"} <= options) != (name in NO_ANSWER), name


@pytest.mark.parametrize("words", [("show",), ("envoy",), ("envoy", "--snippet")])
def test_documents_are_the_same_in_json(coxswain: Command, words: tuple[str, ...]) -> None:
    """What is YAML for people is the same as JSON, without the comments."""
    assert json.loads(coxswain("config", *words, "-o", "json").out) == yaml.safe_load(
        coxswain("config", *words).out
    )


def test_mistakes_as_json(coxswain: Command, tmp_path: Path) -> None:
    """Scripts get each mistake with its place and key on stdout, and the same exit code."""
    file = tmp_path / "coxswain.yaml"
    file.write_text("queue:\n  max_request: 1\n", encoding="utf-8")
    ended = coxswain("config", "check", "--config", str(file), "-o", "json")
    assert (ended.code, ended.err) == (2, "")
    assert json.loads(ended.out)["problems"] == [
        {
            "where": f"{file}:2",
            "key": "queue.max_request",
            "message": "unknown key; did you mean queue.max_requests?",
        }
    ]
    ended = coxswain("config", "check", "-e", "10.0.0.5:1", "-o", "json")
    assert (ended.code, json.loads(ended.out)) == (0, {"problems": [], "envoy_problems": []})


def test_one_request_is_one() -> None:
    shown = [counted(many, "request") for many in (0, 1, 2)]
    assert shown == ["0 requests", "1 request", "2 requests"]


ANSWERS = [method.output_type for method in pb.DESCRIPTOR.services_by_name["Admin"].methods]
NUMBERS = {
    FieldDescriptor.CPPTYPE_INT64: st.integers(-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: st.integers(0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: st.integers(0, 2**64 - 1),
    FieldDescriptor.CPPTYPE_DOUBLE: st.floats(allow_nan=False, allow_infinity=False),
    FieldDescriptor.CPPTYPE_BOOL: st.booleans(),
    FieldDescriptor.CPPTYPE_STRING: st.text(max_size=5),
}
LONG = (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64)


def map_entry(field: FieldDescriptor) -> Descriptor | None:
    """The type of the entries of a field that is a map."""
    entry = field.message_type
    return entry if entry is not None and entry.GetOptions().map_entry else None


def values(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    """Values of one field that is not repeated."""
    if field.message_type is not None:
        return messages(field.message_type)
    if field.enum_type is not None:
        return st.sampled_from([value.number for value in field.enum_type.values])
    return NUMBERS[field.cpp_type]


def many(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    """Values of one field."""
    if (entry := map_entry(field)) is not None:
        key, value = entry.fields_by_name["key"], entry.fields_by_name["value"]
        return st.dictionaries(values(key), values(value), max_size=2)
    return st.lists(values(field), max_size=2) if field.is_repeated else values(field)


def messages(descriptor: Descriptor) -> st.SearchStrategy[Message]:
    """Messages of that type, each with any of its fields."""
    fields = {field.name: many(field) for field in descriptor.fields}
    some = st.fixed_dictionaries({}, optional=fields)
    return some.map(lambda chosen: GetMessageClass(descriptor)(**chosen))


def in_json_format(tree: dict[str, Any], descriptor: Any) -> dict[str, Any]:
    """The same in protobuf's JSON: no null, enums by name, numbers of 64 bits as texts."""

    def single(value: Any, field: FieldDescriptor) -> Any:
        if field.message_type is not None:
            return in_json_format(value, field.message_type)
        if (enum := field.enum_type) is not None:
            return next(one.name for one in enum.values if word(enum.name, one.name) == value)
        return str(value) if field.cpp_type in LONG else value

    found: dict[str, Any] = {}
    for field in descriptor.fields:
        value = tree[field.name]
        if (entry := map_entry(field)) is not None:
            of_value = entry.fields_by_name["value"]
            found[field.name] = {key: single(each, of_value) for key, each in value.items()}
        elif field.is_repeated:
            found[field.name] = [single(each, field) for each in value]
        elif value is not None:
            found[field.name] = single(value, field)
    return found


@given(message=st.sampled_from(ANSWERS).flatmap(messages))
def test_a_message_is_printed_as_protobuf_prints_it(message: Message) -> None:
    """Every field by its name; but enums are words, unset fields null, and numbers are numbers."""
    assert in_json_format(plain(message), message.DESCRIPTOR) == MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


def test_a_state_that_only_a_newer_picker_knows_is_printed_as_its_number() -> None:
    assert plain(pb.Endpoint(health=99))["health"] == 99  # type: ignore[arg-type]
