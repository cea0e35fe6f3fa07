"""Compile `proto/` into `extproc/pb/`, or with `--check` say whether that would change anything.

The sources import each other as `extproc/pb/<name>.proto`, which protoc maps onto `proto/`:
so the generated modules import each other from `extproc.pb`, and their file names in the
process-wide descriptor pool are ours alone. For each service a typed stub of its gRPC module
is written too, since protoc writes none.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

from google.protobuf.descriptor_pb2 import (
    FileDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
)
from grpc_tools import protoc  # type: ignore[import-untyped]  # it ships no types

ROOT = Path(__file__).resolve().parent.parent
SOURCES = "proto"
PACKAGE = "extproc/pb"
GENERATED = ("__init__.py", "*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py", "*_pb2_grpc.pyi")
PYI_HEAD = "# mypy: disable-error-code=type-arg\n"  # protoc leaves `Mapping` bare
DOCSTRING = '"""Generated from `proto/` by `make proto`; edit nothing here."""\n'


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--check", action="store_true", help="compare only, change nothing")
    is_check = arguments.parse_args().check
    target = ROOT / PACKAGE
    with tempfile.TemporaryDirectory() as scratch:
        fresh = compile_into(Path(scratch))
        if is_check:
            return report(fresh, target)
        for stale in generated_files(target):
            stale.unlink()
        for path, content in fresh.items():
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            (target / path).write_bytes(content)
    print(f"wrote {len(fresh)} files to {PACKAGE}")
    return 0


def compile_into(scratch: Path) -> dict[Path, bytes]:
    """Run protoc over every source; the generated files by their path below `extproc/pb`."""
    sources = sorted((ROOT / SOURCES).rglob("*.proto"))
    names = [f"{PACKAGE}/{source.relative_to(ROOT / SOURCES).as_posix()}" for source in sources]
    well_known = resources.files("grpc_tools") / "_proto"
    descriptors = scratch / "descriptors.bin"
    code = protoc.main(
        [
            "protoc",
            f"-I{PACKAGE}={ROOT / SOURCES}",
            f"-I{well_known}",
            f"--python_out={scratch}",
            f"--pyi_out={scratch}",
            f"--grpc_python_out={scratch}",
            f"--descriptor_set_out={descriptors}",
            "--include_imports",
            *names,
        ]
    )
    if code:
        raise SystemExit(f"protoc failed with status {code}")
    root = scratch / PACKAGE
    files = FileDescriptorSet.FromString(descriptors.read_bytes()).file
    homes = {
        f".{file.package}.{message.name}": (_module(file), message.name)
        for file in files
        for message in file.message_type
    }
    for file in files:
        if file.name not in names:
            continue
        grpc_module = scratch / f"{file.name.removesuffix('.proto')}_pb2_grpc.py"
        if file.service:
            grpc_module.with_suffix(".pyi").write_text(grpc_stub(file, homes))
        else:
            grpc_module.unlink()
    found = {path.relative_to(root): path.read_bytes() for path in generated_files(root)}
    for path, content in found.items():
        if path.suffix == ".pyi":
            found[path] = PYI_HEAD.encode() + content
    packages = {folder for path in found for folder in path.parents}
    return found | {folder / "__init__.py": DOCSTRING.encode() for folder in packages}


def generated_files(root: Path) -> Iterator[Path]:
    for pattern in GENERATED:
        yield from sorted(root.rglob(pattern))


def report(fresh: dict[Path, bytes], target: Path) -> int:
    """Name each file of `extproc/pb` that is not what the sources compile to; 1 if there is one."""
    kept = {path.relative_to(target): path.read_bytes() for path in generated_files(target)}
    differing = sorted(path for path in kept | fresh if kept.get(path) != fresh.get(path))
    for path in differing:
        print(f"{PACKAGE}/{path} is not what {SOURCES}/ compiles to; run `make proto`")
    return 1 if differing else 0


def grpc_stub(file: FileDescriptorProto, homes: dict[str, tuple[str, str]]) -> str:
    """The types of one gRPC module, for servers and clients of grpc.aio.

    `homes` maps each message's full name to its module and its name there.
    """
    methods = [method for service in file.service for method in service.method]
    modules = {
        homes[name][0] for method in methods for name in (method.input_type, method.output_type)
    }
    lines = [
        "from collections.abc import AsyncIterator, Awaitable",
        "",
        "import grpc.aio",
        *(f"import {module}" for module in sorted(modules)),
    ]
    for service in file.service:
        stub, servicer = [], []
        for method in service.method:
            types = ", ".join(
                ".".join(homes[name]) for name in (method.input_type, method.output_type)
            )
            stub.append(f"    {method.name}: grpc.aio.{_call_kind(method)}[{types}]")
            servicer += _servicer_method(method, *types.split(", "))
        lines += [
            "",
            f"class {service.name}Stub:",
            "    def __init__(self, channel: grpc.aio.Channel) -> None: ...",
            *stub,
            "",
            f"class {service.name}Servicer:",
            *servicer,
            "",
            f"def add_{service.name}Servicer_to_server(",
            f"    servicer: {service.name}Servicer, server: grpc.aio.Server",
            ") -> None: ...",
        ]
    return "\n".join(lines) + "\n"


def _servicer_method(method: MethodDescriptorProto, question: str, answer: str) -> list[str]:
    argument = f"request: {question}"
    if method.client_streaming:
        argument = f"request_iterator: AsyncIterator[{question}]"
    result = f"Awaitable[{answer}]"
    if method.server_streaming:
        result = f"AsyncIterator[{answer}] | Awaitable[None]"
    return [
        f"    def {method.name}(",
        f"        self, {argument}, context: grpc.aio.ServicerContext[{question}, {answer}]",
        f"    ) -> {result}: ...",
    ]


def _call_kind(method: MethodDescriptorProto) -> str:
    asked = "Stream" if method.client_streaming else "Unary"
    answered = "Stream" if method.server_streaming else "Unary"
    return f"{asked}{answered}MultiCallable"


def _module(file: FileDescriptorProto) -> str:
    return file.name.removesuffix(".proto").replace("/", ".") + "_pb2"


if __name__ == "__main__":
    sys.exit(main())
