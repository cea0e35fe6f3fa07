"""The compiler of `proto/`: what it writes, and what its check notices."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.compile_proto import compile_into, report


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, bytes]:
    return compile_into(tmp_path_factory.mktemp("scratch"))


def write(fresh: dict[Path, bytes], target: Path) -> None:
    for path, content in fresh.items():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        (target / path).write_bytes(content)


def test_what_was_just_written_is_unchanged(fresh: dict[Path, bytes], tmp_path: Path) -> None:
    write(fresh, tmp_path)
    assert report(fresh, tmp_path) == 0


def test_an_edited_a_missing_and_a_left_over_file_are_named(
    fresh: dict[Path, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each in its own line, with what to do about it."""
    write(fresh, tmp_path)
    (tmp_path / "base_pb2.py").write_text("edited = True\n")
    (tmp_path / "discovery_pb2.pyi").unlink()
    (tmp_path / "gone_pb2.py").touch()
    assert report(fresh, tmp_path) == 1
    lines = capsys.readouterr().out.splitlines()
    names = ("base_pb2.py", "discovery_pb2.pyi", "gone_pb2.py")
    assert lines == [
        f"extproc/pb/{name} is not what proto/ compiles to; run `make proto`" for name in names
    ]


def test_a_service_gets_typed_servicers_and_stubs(fresh: dict[Path, bytes]) -> None:
    """protoc writes no types for its gRPC modules; a file without a service gets no such module."""
    stub = fresh[Path("external_processor_pb2_grpc.pyi")].decode()
    compile(stub, "stub", "exec")
    module = "extproc.pb.external_processor_pb2"
    types = f"[{module}.ProcessingRequest, {module}.ProcessingResponse]"
    assert f"Process: grpc.aio.StreamStreamMultiCallable{types}" in stub
    assert "def add_ExternalProcessorServicer_to_server(" in stub
    assert Path("base_pb2_grpc.py") not in fresh
