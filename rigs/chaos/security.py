"""Keys and certificates of a run: mutual TLS to the picker, keys of clients, operators and agents,
and servers that speak TLS and want a key that Envoy adds."""

import ssl
from pathlib import Path
from typing import Any

import grpc

from tests.fakes.authority import Authority

CLIENT_KEY = "sk-of-the-clients"
SERVER_KEY = "sk-of-the-servers"
OPERATORS = "token-of-the-operators"
AGENTS = "token-of-the-agents"
MEMBERS = "token-of-the-members"


class Security:
    """Files for all of it in one folder; `has_tls_servers` is left out where Envoy cannot."""

    def __init__(self, folder: Path, *, has_tls_servers: bool) -> None:
        folder.mkdir()
        self.has_tls_servers = has_tls_servers
        authority = Authority(folder)
        self.ca = authority.ca
        self._picker = authority.issue("picker")
        self._envoy = authority.issue("envoy")
        self._server = authority.issue("server")
        self._member = authority.issue("member")
        self._members_token = self._write(folder / "members", MEMBERS)
        self.operators = self._write(folder / "operators", OPERATORS)
        self.agents = self._write(folder / "agents", AGENTS)
        self.server_key = self._write(folder / "server-key", SERVER_KEY)
        self._clients = self._write(folder / "clients", f"chaos {CLIENT_KEY}\n")

    def settings(self) -> dict[str, Any]:
        """What of the picker's settings turns it on."""
        pair = {"cert_file": str(self._picker.cert), "key_file": str(self._picker.key)}
        return {
            "grpc_tls": {**pair, "client_ca_file": str(self.ca)},
            "admin_tls": pair,
            "admin": {"token_file": str(self.operators)},
            "agents": {"token_file": str(self.agents)},
            "clients": {"keys_file": str(self._clients)},
            "envoy": {
                "picker_ca_file": str(self.ca),
                "picker_cert_file": str(self._envoy.cert),
                "picker_key_file": str(self._envoy.key),
            },
        }

    def member_settings(self) -> dict[str, Any]:
        """How members of a cluster know each other."""
        return {
            "token_file": str(self._members_token),
            "cert_file": str(self._member.cert),
            "key_file": str(self._member.key),
            "ca_file": str(self.ca),
        }

    def endpoint(self, address: str) -> dict[str, Any]:
        """How an endpoints file names a server."""
        if not self.has_tls_servers:
            return {"address": address}
        return {
            "address": f"https://{address}",
            "ca_file": str(self.ca),
            "server_name": "localhost",
            "api_key_file": str(self.server_key),
            "inject_key": True,
        }

    def server_flags(self) -> list[str]:
        """What a server that wants a key is started with."""
        return ["--api-key", SERVER_KEY] if self.has_tls_servers else []

    def server_context(self) -> ssl.SSLContext | None:
        """With what its front ends TLS."""
        if not self.has_tls_servers:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self._server.cert, self._server.key)
        return context

    def agent_flags(self, address: str) -> list[str]:
        """How an agent reaches the picker and its server."""
        flags = ["--ca", str(self.ca), "--token-file", str(self.agents)]
        if not self.has_tls_servers:
            return [*flags, "--llama", f"http://{address}", "--advertise", address]
        return [
            *flags,
            *("--llama", f"https://{address}", "--advertise", f"https://{address}"),
            *("--server-ca", str(self.ca), "--certificate-name", "localhost"),
            *("--api-key-file", str(self.server_key), "--inject-key"),
        ]

    def channel(self, address: str) -> grpc.aio.Channel:
        """An operator's."""
        return grpc.aio.secure_channel(
            address,
            grpc.composite_channel_credentials(
                grpc.ssl_channel_credentials(self.ca.read_bytes()),
                grpc.access_token_call_credentials(OPERATORS),
            ),
        )

    @staticmethod
    def _write(file: Path, text: str) -> Path:
        file.write_text(text)
        file.chmod(0o600)
        return file
