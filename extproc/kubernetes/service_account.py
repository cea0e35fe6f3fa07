"""Where a pod finds its API server, and with which service account it speaks to it."""

import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from extproc.security.secret_file import SecretFileError, read_secret

FOLDER: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where Kubernetes mounts a pod's token, CA and namespace."""


class ServiceAccountError(ValueError):
    """Something is missing; `key` is the setting that says where it is."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAccount:
    """`folder` holds the token and the CA, `namespace` is the pod's own or the one that is set."""

    url: str
    namespace: str
    folder: Path


def find_service_account(url: str | None, namespace: str | None, folder: str) -> ServiceAccount:
    """What the settings leave open is the pod's. Blocks on the disk. Raises `ServiceAccountError`
    with the key `kubernetes_api`, `kubernetes_namespace` or `kubernetes_folder`."""
    found = Path(folder).expanduser()
    server = url or default_api_server()
    if not server:
        raise ServiceAccountError(
            "kubernetes_api",
            "this is no pod of Kubernetes: give the API server's https://host:port",
        )
    if namespace is None:
        file = found / "namespace"
        try:
            namespace = read_secret(file)
        except SecretFileError as error:
            raise ServiceAccountError("kubernetes_namespace", str(error)) from None
        if not namespace:
            raise ServiceAccountError("kubernetes_namespace", f"{file} is empty")
    ca = found / "ca.crt"
    if ca.exists():
        try:
            ssl.create_default_context(cafile=str(ca))
        except (OSError, ssl.SSLError):
            text = f"{ca}: it holds no CA certificates"
            raise ServiceAccountError("kubernetes_folder", text) from None
    return ServiceAccount(url=server, namespace=namespace, folder=found)


def default_api_server() -> str:
    """The API server of the Kubernetes cluster that this pod runs in; empty outside of one."""
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    port = os.environ.get("KUBERNETES_SERVICE_PORT_HTTPS") or os.environ.get(
        "KUBERNETES_SERVICE_PORT", "443"
    )
    if not host:
        return ""
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
