"""Under which address the picker and Envoy reach the server: said, or found out.

    10.0.0.5:8080   said
    auto            the address of this machine on its route to the picker
    aws             the private address from EC2's metadata service (IMDSv2)

`auto:8080` and `aws:8080` say the port; without it, it is the one that the agent itself asks. So
is whether it speaks TLS: `https://` or `http://` before any of them says otherwise.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass

import httpx

from extproc.core.address import Address, AddressError

METADATA = "http://169.254.169.254"
METADATA_VARIABLE = "AWS_EC2_METADATA_SERVICE_ENDPOINT"
"""The name that AWS's own programs use."""
TIMEOUT_S = 2.0
MAX_ANSWER_BYTES = 1024


class AdvertiseError(RuntimeError):
    """The address cannot be found now; `str(error)` says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advertise:
    """What to advertise: `address` if given, else the way to find it, and the port."""

    address: Address | None
    way: str
    port: int
    is_tls: bool = False

    @classmethod
    def parse(cls, text: str, default_port: int, is_tls: bool = False) -> Advertise:
        """Read `auto`, `aws:8080` or `https://10.0.0.5:8080`; raises `AddressError`."""
        scheme, slashes, text = text.strip().rpartition("://")
        if slashes:
            if scheme not in ("http", "https"):
                raise AddressError(f"{scheme!r} is not http or https")
            is_tls = scheme == "https"
        way, colon, port = text.partition(":")
        if way in ("auto", "aws"):
            address = Address.of("127.0.0.1", port if colon else default_port)
            return cls(address=None, way=way, port=address.port, is_tls=is_tls)
        address = Address.parse(text)
        return cls(address=address, way="said", port=address.port, is_tls=is_tls)

    async def find(self, picker: str, environ: Mapping[str, str] | None = None) -> Address:
        """The address; raises `AdvertiseError`. May wait some seconds for the network."""
        if self.address is not None:
            return self.address
        environ = os.environ if environ is None else environ
        try:
            if self.way == "aws":
                endpoint = environ.get(METADATA_VARIABLE, METADATA)
                return Address.of(await ask_ec2(endpoint), self.port)
            return Address.of(await own_address(picker), self.port)
        except AddressError as error:
            raise AdvertiseError(f"--advertise {self.way}: {error}") from None


async def own_address(picker: str) -> str:
    """This machine's address on its route to `picker` (host:port); nothing is sent."""
    host, _, port = picker.rpartition(":")
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)
        family, kind, protocol, _, target = found[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(target)
            return str(probe.getsockname()[0])
    except (OSError, ValueError) as error:
        raise AdvertiseError(
            f"--advertise auto: there is no route to {picker} ({error}); give the address"
        ) from None


async def ask_ec2(endpoint: str) -> str:
    """`local-ipv4` of this EC2 instance, from version 2 of its metadata service."""
    try:
        async with httpx.AsyncClient(
            base_url=endpoint.rstrip("/"), timeout=TIMEOUT_S, trust_env=False
        ) as client:
            token = await client.put(
                "/latest/api/token", headers={"X-aws-ec2-metadata-token-ttl-seconds": "60"}
            )
            token.raise_for_status()
            answer = await client.get(
                "/latest/meta-data/local-ipv4",
                headers={"X-aws-ec2-metadata-token": token.text[:MAX_ANSWER_BYTES].strip()},
            )
            answer.raise_for_status()
            return answer.text[:MAX_ANSWER_BYTES].strip()
    except httpx.HTTPStatusError as error:
        problem = f"answered {error.response.status_code}"
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        problem = f"does not answer ({type(error).__name__})"
    raise AdvertiseError(
        f"--advertise aws: the metadata service {problem}; check that this is an EC2 instance "
        "and that its hop limit allows containers, or give the address"
    )
