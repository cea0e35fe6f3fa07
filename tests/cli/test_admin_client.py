"""Claims about extproc/cli/admin_client.py: the name of each failure, and what to do about it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import grpc
import pytest

from extproc.cli.admin_client import AdminClient, Connection, ExitCode, PickerError, read_token
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from tests.fakes.authority import Authority
from tests.fakes.picker import running_picker

PAGES = {"": (("a:1", "b:1"), "b"), "b": ((), "c"), "c": (("c:1",), "")}


async def failure(code: grpc.StatusCode, text: str, *, is_tls: bool = False) -> PickerError:
    """What is made of a picker that answers so."""

    async def reject(_request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        await context.abort(code, text)

    class Refusing(grpc.GenericRpcHandler):
        def service(self, _details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
            return grpc.unary_unary_rpc_method_handler(reject)

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Refusing(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with AdminClient(Connection(address=f"127.0.0.1:{port}")) as picker:
            with pytest.raises(PickerError) as caught:
                await picker.ask(picker.admin.GetStatus, pb.GetStatusRequest())
    finally:
        await server.stop(None)
    return caught.value


@pytest.mark.parametrize(
    ("code", "exit_"),
    [
        (grpc.StatusCode.UNAUTHENTICATED, ExitCode.UNAUTHENTICATED),
        (grpc.StatusCode.PERMISSION_DENIED, ExitCode.UNAUTHENTICATED),
        (grpc.StatusCode.NOT_FOUND, ExitCode.NOT_FOUND),
        (grpc.StatusCode.INVALID_ARGUMENT, ExitCode.USAGE),
        (grpc.StatusCode.FAILED_PRECONDITION, ExitCode.REJECTED),
        (grpc.StatusCode.INTERNAL, ExitCode.REJECTED),
    ],
)
async def test_the_pickers_own_words_with_a_code_for_scripts(
    code: grpc.StatusCode, exit_: ExitCode
) -> None:
    """In one line, however many it wrote."""
    error = await failure(code, "say\n  what to do")
    assert (error.exit, str(error)) == (exit_, "say what to do")


async def test_a_failure_without_words_has_the_codes_name() -> None:
    assert str(await failure(grpc.StatusCode.DATA_LOSS, "")) == "DATA_LOSS"


async def test_a_picker_that_ends_the_call_is_gone() -> None:
    """As one does that stops: a script's loop begins again."""
    error = await failure(grpc.StatusCode.CANCELLED, "")
    assert error.exit is ExitCode.UNREACHABLE and "ended the call" in str(error)


async def test_another_service_is_no_picker() -> None:
    """It speaks gRPC, and does not know the call."""
    error = await failure(grpc.StatusCode.UNIMPLEMENTED, "")
    assert error.exit is ExitCode.UNREACHABLE and "is not Coxswain's admin port" in str(error)


async def test_a_picker_that_is_silent_is_not_waited_for() -> None:
    """For longer than the options say."""

    async def listen(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await gone.wait()
        writer.close()

    gone = asyncio.Event()
    async with await asyncio.start_server(listen, "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with AdminClient(Connection(address=address, timeout_s=0.1)) as picker:
            with pytest.raises(PickerError, match=r"did not answer within 0.1 s") as caught:
                await picker.ask(picker.admin.GetStatus, pb.GetStatusRequest())
        gone.set()
    assert caught.value.exit is ExitCode.UNREACHABLE


async def test_tls_without_and_with_a_picker_that_speaks_it(tmp_path: Path) -> None:
    """Each way round it says which option is missing or wrong."""
    authority = Authority(tmp_path)
    ours = authority.issue("picker")
    credentials = grpc.ssl_server_credentials([(ours.key.read_bytes(), ours.cert.read_bytes())])
    ca = authority.ca
    async with running_picker(credentials=credentials) as picker:
        address = f"localhost:{picker.tls_port}"
        for connection, word in (
            (Connection(address=address), "--ca FILE or --tls"),
            (Connection(address=address, is_tls=True), "Check --ca"),
            (Connection(address=address, is_tls=True, ca=ca, server_name="other"), "--server-name"),
        ):
            async with AdminClient(connection) as client:
                with pytest.raises(PickerError) as caught:
                    await client.ask(client.admin.GetStatus, pb.GetStatusRequest())
            assert caught.value.exit is ExitCode.UNREACHABLE and word in str(caught.value)
        async with AdminClient(Connection(address=address, is_tls=True, ca=ca)) as client:
            await client.ask(client.admin.GetStatus, pb.GetStatusRequest())


def test_a_tokens_file(tmp_path: Path) -> None:
    """Blanks around it do not count; one without a token is told, and never quoted."""
    file = tmp_path / "token"
    file.write_text("  s3cret\n")
    assert read_token(file) == "s3cret"
    for content in (b"", b" \n", b"two\x00parts", "t\N{LATIN SMALL LETTER E WITH ACUTE}".encode()):
        file.write_bytes(content)
        with pytest.raises(PickerError, match="the file contains no token") as caught:
            read_token(file)
        assert caught.value.exit is ExitCode.USAGE and "parts" not in str(caught.value)
    with pytest.raises(PickerError, match="no such file"):
        read_token(tmp_path / "missing")


def test_a_token_is_in_no_traceback() -> None:
    assert "s3cret" not in repr(Connection(address="127.0.0.1:9003", token="s3cret"))


class Paged:
    """A picker whose fleet takes three pages, the second of them empty."""

    admin: Any = type("Admin", (), {"ListEndpoints": None})

    async def ask(self, _call: object, asked: pb.ListEndpointsRequest) -> pb.ListEndpointsResponse:
        addresses, following = PAGES[asked.page_token]
        endpoints = [pb.Endpoint(address=address) for address in addresses]
        return pb.ListEndpointsResponse(endpoints=endpoints, next_page_token=following)


async def test_every_page_is_asked_for() -> None:
    """In the picker's order; a page without endpoints is not the end unless it says so."""
    found = await AdminClient.all_endpoints(cast("AdminClient", Paged()))
    assert [endpoint.address for endpoint in found] == ["a:1", "b:1", "c:1"]
