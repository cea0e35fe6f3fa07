"""The connection of commands to a running picker: address, token, errors and exit codes."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from extproc.security.secret_file import SecretFileError, is_header_value, read_secret

if TYPE_CHECKING:
    import grpc

    from extproc.pb.coxswain.v1 import admin_pb2 as pb
    from extproc.pb.coxswain.v1.admin_pb2_grpc import AdminStub

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")

MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024


class ExitCode(IntEnum):
    """Exit codes; 0 is success."""

    REJECTED = 1  # the picker's state forbids it
    USAGE = 2  # the command line or the question is wrong
    UNREACHABLE = 3  # no picker answers there
    NOT_FOUND = 4  # no such endpoint or request
    UNAUTHENTICATED = 5  # the token or the certificate is missing or wrong
    NOT_YET = 6  # the deadline passed before it was done
    INTERRUPTED = 130  # Ctrl-C


EXIT_CODES: Final = """Exit codes: 0 done, 1 rejected by the picker, 2 wrong usage, 3 no picker
answers, 4 no such endpoint or request, 5 wrong token or certificate, 6 deadline passed,
130 interrupted."""


class PickerError(Exception):
    """The command failed; `str(error)` is for the user."""

    def __init__(self, exit_: ExitCode, text: str) -> None:
        super().__init__(text)
        self.exit = exit_


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """A picker's address and credentials. `timeout_s` limits each response."""

    address: str
    token: str = field(default="", repr=False)
    token_file: Path | None = None
    is_tls: bool = False
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    server_name: str = ""
    timeout_s: float = 10.0


class AdminClient:
    """A client of one picker's admin port; use it as `async with`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._channel: grpc.aio.Channel | None = None

    async def __aenter__(self) -> AdminClient:
        self._channel = _open(self._connection)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._channel is not None:
            await self._channel.close()

    @property
    def connection(self) -> Connection:
        """Where the picker is and how it is reached."""
        return self._connection

    @property
    def address(self) -> str:
        return self._connection.address

    def new_channel(self, options: tuple[tuple[str, Any], ...] = ()) -> grpc.aio.Channel:
        """A further channel to the same picker, which the caller closes."""
        return _open(self._connection, options)

    @property
    def admin(self) -> AdminStub:
        """The calls, to be handed to `ask` and `follow`."""
        from extproc.pb.coxswain.v1.admin_pb2_grpc import AdminStub

        assert self._channel is not None
        return AdminStub(self._channel)

    async def ask(
        self, call: grpc.aio.UnaryUnaryMultiCallable[RequestT, ResponseT], request: RequestT
    ) -> ResponseT:
        """One answer; raises `PickerError`."""
        import grpc

        try:
            return await call(
                request, metadata=self._metadata(), timeout=self._connection.timeout_s
            )
        except grpc.aio.AioRpcError as error:
            raise self._explained(error) from None

    async def follow(
        self, call: grpc.aio.UnaryStreamMultiCallable[RequestT, ResponseT], request: RequestT
    ) -> AsyncIterator[ResponseT]:
        """Answers until the picker ends them; raises `PickerError`."""
        import grpc

        stream = call(request, metadata=self._metadata())
        try:
            async for answer in stream:
                yield answer
        except grpc.aio.AioRpcError as error:
            raise self._explained(error) from None
        finally:
            stream.cancel()

    async def all_endpoints(self, pool: str = "") -> list[pb.Endpoint]:
        """Those of the fleet, or of one pool, sorted by address, however many pages they take;
        raises `PickerError`."""
        from extproc.pb.coxswain.v1 import admin_pb2 as pb

        found: list[pb.Endpoint] = []
        token = ""
        while True:
            request = pb.ListEndpointsRequest(page_token=token, pool=pool)
            page = await self.ask(self.admin.ListEndpoints, request)
            found.extend(page.endpoints)
            token = page.next_page_token
            if not token:
                return found

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        token = self._connection.token
        return (("authorization", f"Bearer {token}"),) if token else ()

    def _explained(self, error: grpc.aio.AioRpcError) -> PickerError:
        import grpc

        text = " ".join((error.details() or "").split())
        code = grpc.StatusCode
        match error.code():
            case code.UNAVAILABLE:
                return PickerError(ExitCode.UNREACHABLE, self._unreachable(text))
            case code.DEADLINE_EXCEEDED:
                waited = f"{self._connection.timeout_s:g} s"
                return PickerError(
                    ExitCode.UNREACHABLE,
                    f"the picker at {self.address} did not answer within {waited}",
                )
            case code.CANCELLED:  # not by us, who would have no error of it
                return PickerError(
                    ExitCode.UNREACHABLE,
                    f"the picker at {self.address} ended the call; it stops or restarts",
                )
            case code.UNAUTHENTICATED | code.PERMISSION_DENIED:
                return PickerError(ExitCode.UNAUTHENTICATED, text)
            case code.NOT_FOUND:
                return PickerError(ExitCode.NOT_FOUND, text)
            case code.INVALID_ARGUMENT:
                return PickerError(ExitCode.USAGE, text)
            case code.UNIMPLEMENTED:
                return PickerError(
                    ExitCode.UNREACHABLE,
                    f"the service at {self.address} is not Coxswain's admin port, or is an older "
                    "version; give the admin port with --picker (default port 9003)",
                )
            case _:
                return PickerError(ExitCode.REJECTED, text or error.code().name)

    def _unreachable(self, text: str) -> str:
        lowered = text.lower()
        if "hostname verification" in lowered:
            return (
                f"the certificate of {self.address} is for another name; give that name with "
                "--server-name"
            )
        if "ssl" in lowered or "certificate" in lowered or "handshake" in lowered:
            return (
                f"no TLS connection to {self.address}: {text[:200]}. Check --ca, --cert and "
                "--key, and whether the certificates have expired"
            )
        if not self._connection.is_tls and ("closed" in lowered or "reset" in lowered):
            return f"{self.address} closed the connection: if it uses TLS, give --ca FILE or --tls"
        return (
            f"no picker answers at {self.address}: check that `coxswain serve` is running, or "
            "give its address with --picker or COXSWAIN_PICKER"
        )


def _open(connection: Connection, further: tuple[tuple[str, Any], ...] = ()) -> grpc.aio.Channel:
    # What gRPC itself writes to stderr would stand above our one line, and say less.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    import grpc

    options: list[tuple[str, Any]] = [
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        # A watch should reconnect to a restarted picker at once, not in two minutes.
        ("grpc.max_reconnect_backoff_ms", 1_000),
        *further,
    ]
    if not connection.is_tls:
        return grpc.aio.insecure_channel(connection.address, options=options)
    if connection.server_name:
        options.append(("grpc.ssl_target_name_override", connection.server_name))
    credentials = grpc.ssl_channel_credentials(
        root_certificates=_read(connection.ca),
        private_key=_read(connection.key),
        certificate_chain=_read(connection.cert),
    )
    return grpc.aio.secure_channel(connection.address, credentials, options=options)


def _read(file: Path | None) -> bytes | None:
    if file is None:
        return None
    try:
        return file.read_bytes()
    except OSError as error:
        reason = (error.strerror or "cannot be read").lower()
        raise PickerError(ExitCode.USAGE, f"{file}: {reason}") from None


def read_token(file: Path) -> str:
    """The token in a file, without surrounding blanks; raises `PickerError`."""
    try:
        token = read_secret(file)
    except SecretFileError as error:
        raise PickerError(ExitCode.USAGE, str(error)) from None
    if not is_header_value(token):
        raise PickerError(ExitCode.USAGE, f"{file}: the file contains no token")
    return token
