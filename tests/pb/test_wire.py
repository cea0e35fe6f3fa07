"""Our messages are Envoy's: held against the full types of `envoy-data-plane`, field by field."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import fields
from datetime import timedelta
from types import ModuleType
from typing import Any, get_args, get_type_hints

import pytest
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Struct

from extproc.pb import (
    base_pb2,
    cluster_discovery_pb2,
    discovery_pb2,
    endpoint_discovery_pb2,
    endpoint_pb2,
    external_processor_pb2,
    http_status_pb2,
    processing_mode_pb2,
)

pytestmark = pytest.mark.filterwarnings("ignore:Using `@model_validator`:DeprecationWarning")

MODULES: tuple[ModuleType, ...] = (
    base_pb2,
    cluster_discovery_pb2,
    discovery_pb2,
    endpoint_discovery_pb2,
    endpoint_pb2,
    external_processor_pb2,
    http_status_pb2,
    processing_mode_pb2,
)
ENCODED = {"envoy.service.ext_proc.v3.ProcessingRequest.attributes"}
"""Maps of messages that are bytes in ours, to be decoded by another type; they hold a `Struct`."""
RENAMED = {"envoy.service.discovery.v3.DiscoveryRequest.ErrorDetail": ("google.rpc", "Status")}
TYPE_NAMES = {
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_ENUM: "enum",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_MESSAGE: "message",
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_UINT32: "uint32",
}


def messages_below(parents: Iterator[Descriptor] | list[Descriptor]) -> Iterator[Descriptor]:
    for descriptor in parents:
        if not descriptor.GetOptions().map_entry:
            yield descriptor
            yield from messages_below(list(descriptor.nested_types))


OUR_MESSAGES = [
    descriptor
    for module in MODULES
    for descriptor in messages_below(list(module.DESCRIPTOR.message_types_by_name.values()))
]
OUR_ENUMS = [
    enum
    for module in MODULES
    for enum in (
        *module.DESCRIPTOR.enum_types_by_name.values(),
        *(
            nested
            for message in messages_below(list(module.DESCRIPTOR.message_types_by_name.values()))
            for nested in message.enum_types
        ),
    )
]


def full_class(descriptor: Descriptor | EnumDescriptor) -> Any:
    """The type of the same name in `envoy-data-plane`, where nested names are joined."""
    package = descriptor.file.package
    name = descriptor.full_name.removeprefix(f"{package}.").replace(".", "")
    package, name = RENAMED.get(descriptor.full_name, (package, name))
    return getattr(importlib.import_module(f"envoy_data_plane.{package}"), name)


def shape_of_ours(field: FieldDescriptor) -> tuple[object, ...]:
    group = field.containing_oneof.name if field.containing_oneof else None
    if entry := map_entry(field):
        value = "message" if field.full_name in ENCODED else TYPE_NAMES[entry["value"].type]
        types = (TYPE_NAMES[entry["key"].type], value)
        return (field.number, "map", False, group, types)
    return (field.number, TYPE_NAMES[field.type], field.is_repeated, group, None)


def shape_of_theirs(full: Any, name: str) -> tuple[object, ...] | None:
    for field in fields(full):
        if field.name == name:
            (told,) = field.metadata.values()
            types = told.map_meta and tuple(part.proto_type for part in told.map_meta)
            is_repeated = bool(told.repeated)
            return (told.number, told.proto_type, is_repeated, told.group, types)
    return None


def map_entry(field: FieldDescriptor) -> Any:
    """The fields `key` and `value` of a map, None for any other field."""
    kind = field.message_type
    return kind.fields_by_name if kind is not None and kind.GetOptions().map_entry else None


def type_below(field: FieldDescriptor) -> Descriptor | EnumDescriptor | None:
    """The message or enum that the field, or the map's value, is made of."""
    entry = map_entry(field)
    made_of: FieldDescriptor = entry["value"] if entry else field
    return made_of.message_type or made_of.enum_type


def types_within(hint: Any) -> set[Any]:
    """`list[X] | None` is made of list, X and None, and so on down."""
    return {hint}.union(*(types_within(part) for part in get_args(hint)))


def filled(descriptor: Descriptor, turn: int, seed: int = 1) -> Message:
    """A message with every field set; of each oneof, the member whose turn it is."""
    message: Any = message_factory.GetMessageClass(descriptor)()
    if descriptor.full_name == "google.protobuf.Struct":
        message.update({"text": f"t{seed}", "number": 0.5, "list": [True, None, {"deep": "x"}]})
        return message  # type: ignore[no-any-return]
    if descriptor.full_name == "google.protobuf.Duration":
        message.seconds, message.nanos = seed, 5_000_000
        return message  # type: ignore[no-any-return]
    for field in descriptor.fields:
        oneof = field.containing_oneof
        if oneof and oneof.fields[turn % len(oneof.fields)] is not field:
            continue
        seed = seed * 7 % 997 + field.number
        if field.full_name in ENCODED:
            struct = Struct()
            struct["text"] = f"t{seed}"  # one entry alone: a map's entries have no order
            getattr(message, field.name)[f"k{seed}"] = struct.SerializeToString()
        elif entry := map_entry(field):
            value = filled(entry["value"].message_type, turn, seed)
            getattr(message, field.name)[f"k{seed}"].CopyFrom(value)
        elif field.message_type and field.is_repeated:
            parts = [filled(field.message_type, turn, seed + i) for i in (0, 1)]
            getattr(message, field.name).extend(parts)
        elif field.message_type:
            getattr(message, field.name).CopyFrom(filled(field.message_type, turn, seed))
        elif field.is_repeated:
            getattr(message, field.name).extend([scalar(field, seed), scalar(field, seed + 1)])
        else:
            setattr(message, field.name, scalar(field, seed))
    return message  # type: ignore[no-any-return]


def scalar(field: FieldDescriptor, seed: int) -> object:
    """A value of the field that is not its default."""
    if field.enum_type is not None:
        return field.enum_type.values[-1].number
    if field.type == FieldDescriptor.TYPE_BOOL:
        return True
    if field.type == FieldDescriptor.TYPE_BYTES:
        return b"\xff\xfe" + str(seed).encode()
    if field.type == FieldDescriptor.TYPE_STRING:
        return f"text-{seed}"
    return seed + 1


def as_full(message: Any) -> Any:
    """The same facts in `envoy-data-plane`'s type, carried over by name and not by number."""
    descriptor = message.DESCRIPTOR
    if descriptor.full_name == "google.protobuf.Duration":
        return timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)
    if descriptor.full_name == "google.protobuf.UInt32Value":
        return message.value
    if descriptor.file.package == "google.protobuf":
        return full_class(descriptor).parse(message.SerializeToString())
    values: dict[str, object] = {}
    for field, value in message.ListFields():
        if field.full_name in ENCODED:
            structs = {key: Struct.FromString(part) for key, part in value.items()}
            values[field.name] = {key: as_full(part) for key, part in structs.items()}
        elif map_entry(field):
            values[field.name] = {key: as_full(part) for key, part in value.items()}
        elif field.is_repeated:
            values[field.name] = [one_as_full(field, part) for part in value]
        else:
            values[field.name] = one_as_full(field, value)
    return full_class(descriptor)(**values)


def one_as_full(field: FieldDescriptor, value: Any) -> Any:
    if field.message_type:
        return as_full(value)
    return full_class(field.enum_type)(value) if field.enum_type else value


def faults(descriptor: Descriptor) -> list[str]:
    """What tells this message of ours from Envoy's; empty when nothing does."""
    full = full_class(descriptor)
    hints = get_type_hints(full)
    found = []
    for field in descriptor.fields:
        ours, theirs = shape_of_ours(field), shape_of_theirs(full, field.name)
        if ours != theirs:
            found.append(f"{field.full_name}: ours is {ours}, Envoy's {theirs}")
            continue
        kind = type_below(field)
        if kind is None or kind.file.package == "google.protobuf":
            continue  # a scalar, or a type that both sides take from protobuf itself
        if full_class(kind) not in types_within(hints[field.name]):
            found.append(f"{field.full_name}: ours is a {kind.full_name}, Envoy's is not")
    if found:
        return found
    turns = max([len(oneof.fields) for oneof in descriptor.oneofs], default=1)
    for turn in range(turns):
        message = filled(descriptor, turn)
        expected = as_full(message)
        if full.parse(message.SerializeToString()) != expected:
            found.append(f"{descriptor.full_name}: Envoy reads our bytes otherwise (turn {turn})")
        if type(message).FromString(bytes(expected)) != message:
            found.append(f"{descriptor.full_name}: we read Envoy's bytes otherwise (turn {turn})")
    return found


@pytest.mark.parametrize("descriptor", OUR_MESSAGES, ids=lambda d: d.full_name)
def test_message_is_envoys(descriptor: Descriptor) -> None:
    """Same fields, numbers, types and oneofs; the same facts from bytes in both directions."""
    assert faults(descriptor) == []


@pytest.mark.parametrize("enum", OUR_ENUMS, ids=lambda e: e.full_name)
def test_enum_is_envoys(enum: EnumDescriptor) -> None:
    """Every name of ours means Envoy's number, and we know all of Envoy's."""
    theirs = {member.name: member.value for member in full_class(enum)}
    assert {value.name: value.number for value in enum.values} == theirs


def test_services_have_envoys_paths() -> None:
    """The gRPC paths that Envoy calls."""
    paths = {
        f"/{service.full_name}/{method.name}"
        for module in MODULES
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    assert paths == {
        "/envoy.service.ext_proc.v3.ExternalProcessor/Process",
        "/envoy.service.cluster.v3.ClusterDiscoveryService/StreamClusters",
        "/envoy.service.endpoint.v3.EndpointDiscoveryService/StreamEndpoints",
    }


def test_file_names_are_ours_alone() -> None:
    """No other package registers its files below `extproc/pb/`, so none can clash with ours."""
    assert all(module.DESCRIPTOR.name.startswith("extproc/pb/") for module in MODULES)


def spoilt(module: ModuleType, message: str, **changes: object) -> Descriptor:
    """One message of a copy of the module's descriptors, with one field changed."""
    copy = FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(copy)
    (found,) = (part for part in copy.message_type if part.name == message)
    spoil_field(found, changes)
    pool = descriptor_pool.DescriptorPool()
    add_with_imports(pool, module.DESCRIPTOR, copy)
    return pool.FindMessageTypeByName(f"{copy.package}.{message}")


def spoil_field(message: DescriptorProto, changes: dict[str, object]) -> None:
    (field,) = (part for part in message.field if part.name == changes["field"])
    for name, value in changes.items():
        if name == "oneof_index" and value is None:
            field.ClearField("oneof_index")
            del message.oneof_decl[:]
        elif name != "field":
            setattr(field, name, value)


def add_with_imports(pool: Any, file: Any, copy: FileDescriptorProto) -> None:
    for imported in file.dependencies:
        unchanged = FileDescriptorProto()
        imported.CopyToProto(unchanged)
        add_with_imports(pool, imported, unchanged)
    pool.Add(copy)


@pytest.mark.parametrize(
    ("module", "message", "changes"),
    [
        (base_pb2, "HeaderValue", {"field": "raw_value", "number": 4}),
        (base_pb2, "HeaderValue", {"field": "raw_value", "type": FieldDescriptorProto.TYPE_STRING}),
        (base_pb2, "HeaderValue", {"field": "raw_value", "name": "value_raw"}),
        (base_pb2, "HeaderMap", {"field": "headers", "label": FieldDescriptorProto.LABEL_OPTIONAL}),
        (base_pb2, "Address", {"field": "socket_address", "oneof_index": None}),
        (external_processor_pb2, "HttpBody", {"field": "end_of_stream", "number": 5}),
        (
            external_processor_pb2,
            "HttpHeaders",
            {"field": "headers", "type_name": ".envoy.config.core.v3.Metadata"},
        ),
        (
            endpoint_pb2,
            "LbEndpoint",
            {"field": "health_status", "type_name": ".envoy.config.core.v3.SocketAddress.Protocol"},
        ),
    ],
    ids=["number", "type", "name", "repeated", "oneof", "free-number", "message", "enum"],
)
def test_wrong_copy_is_caught(module: ModuleType, message: str, changes: dict[str, Any]) -> None:
    """The comparison itself works: one wrong number, type, name or label, and it says so."""
    assert faults(spoilt(module, message, **changes))
