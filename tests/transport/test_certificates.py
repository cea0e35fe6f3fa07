"""Claims about extproc/transport/certificates.py, by real handshakes on loopback."""

from __future__ import annotations

import os
from pathlib import Path

import grpc
import pytest

from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.pb.coxswain.v1.admin_pb2_grpc import AdminStub
from extproc.transport.certificates import CertificateError, CertificateFiles, Certificates
from tests.fakes.authority import Authority, Pair
from tests.fakes.picker import FakePicker, running_picker


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def files(authority: Authority, pair: Pair, *, is_mutual: bool = False) -> CertificateFiles:
    return CertificateFiles(
        cert=pair.cert, key=pair.key, client_ca=authority.ca if is_mutual else None
    )


async def status(picker: FakePicker, authority: Authority, shown: Pair | None = None) -> object:
    """The status of a call that trusts `authority` and shows a certificate, on a new connection."""
    credentials = grpc.ssl_channel_credentials(
        authority.ca.read_bytes(),
        shown.key.read_bytes() if shown is not None else None,
        shown.cert.read_bytes() if shown is not None else None,
    )
    options = [("grpc.use_local_subchannel_pool", 1)]
    target = f"127.0.0.1:{picker.tls_port}"
    async with grpc.aio.secure_channel(target, credentials, options=options) as channel:
        try:
            await AdminStub(channel).GetStatus(pb.GetStatusRequest(), timeout=10)
        except grpc.aio.AioRpcError as error:
            return error.code()
    return grpc.StatusCode.OK


async def test_tls(authority: Authority, tmp_path: Path) -> None:
    """Who trusts the authority gets in; who trusts another one does not."""
    certificates = Certificates(files(authority, authority.issue("server")))
    async with running_picker(credentials=certificates.credentials()) as picker:
        assert await status(picker, authority) is grpc.StatusCode.OK
        stranger = Authority(tmp_path, "other authority")
        assert await status(picker, stranger) is grpc.StatusCode.UNAVAILABLE


async def test_mutual_tls(authority: Authority, tmp_path: Path) -> None:
    """A certificate of the authority opens; none, another's and an expired one do not."""
    certificates = Certificates(files(authority, authority.issue("server"), is_mutual=True))
    stranger = Authority(tmp_path, "other authority")
    async with running_picker(credentials=certificates.credentials()) as picker:
        assert await status(picker, authority, authority.issue("me")) is grpc.StatusCode.OK
        assert await status(picker, authority) is grpc.StatusCode.UNAVAILABLE
        wrong = stranger.issue("them")
        assert await status(picker, authority, wrong) is grpc.StatusCode.UNAVAILABLE
        expired = authority.issue("late", is_expired=True)
        assert await status(picker, authority, expired) is grpc.StatusCode.UNAVAILABLE


async def test_renewed_on_disk(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    """An expired certificate that is replaced is served at the next handshake; half a renewal
    is logged and changes nothing."""
    pair = authority.issue("server", is_expired=True)
    certificates = Certificates(files(authority, pair))
    async with running_picker(credentials=certificates.credentials()) as picker:
        assert await status(picker, authority) is grpc.StatusCode.UNAVAILABLE
        authority.issue("server")
        assert await status(picker, authority) is grpc.StatusCode.OK
        other = authority.issue("other")
        os.replace(other.key, pair.key)
        assert await status(picker, authority) is grpc.StatusCode.OK
        assert "keeping the previous certificate" in caplog.text and "mismatch" in caplog.text
        os.replace(other.cert, pair.cert)
        assert await status(picker, authority) is grpc.StatusCode.OK
        pair.cert.unlink()
        assert await status(picker, authority) is grpc.StatusCode.OK


async def test_other_callers_may_be_let_in_without_a_restart(
    authority: Authority, tmp_path: Path
) -> None:
    """Whose authority is taken out of the file is out with the next connection."""
    pair = authority.issue("server")
    clients = tmp_path / "clients.pem"
    clients.write_bytes(authority.ca.read_bytes())
    files = CertificateFiles(cert=pair.cert, key=pair.key, client_ca=clients)
    mine = authority.issue("me")
    stranger = Authority(tmp_path, "other authority")
    theirs = stranger.issue("them")
    async with running_picker(credentials=Certificates(files).credentials()) as picker:
        assert await status(picker, authority, mine) is grpc.StatusCode.OK
        assert await status(picker, authority, theirs) is grpc.StatusCode.UNAVAILABLE
        clients.write_bytes(stranger.ca.read_bytes())
        assert await status(picker, authority, theirs) is grpc.StatusCode.OK
        assert await status(picker, authority, mine) is grpc.StatusCode.UNAVAILABLE


def test_what_cannot_be_used(authority: Authority, tmp_path: Path) -> None:
    """Missing files, a key of another certificate and garbage are told by their names."""
    one, two = authority.issue("one"), authority.issue("two")
    with pytest.raises(CertificateError, match=r"one\.pem, .*two\.key: .*mismatch"):
        Certificates(CertificateFiles(cert=one.cert, key=two.key))
    with pytest.raises(CertificateError):
        Certificates(CertificateFiles(cert=tmp_path / "no-such", key=one.key))
    garbage = tmp_path / "garbage"
    garbage.write_text("nothing", encoding="ascii")
    with pytest.raises(CertificateError, match="garbage"):
        Certificates(CertificateFiles(cert=garbage, key=one.key))
    with pytest.raises(CertificateError, match="garbage"):
        Certificates(CertificateFiles(cert=one.cert, key=one.key, client_ca=garbage))
    os.mkfifo(tmp_path / "pipe")  # reading it would block
    with pytest.raises(CertificateError, match="pipe: not a file"):
        Certificates(CertificateFiles(cert=tmp_path / "pipe", key=one.key))
