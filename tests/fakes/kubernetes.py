"""A real Kubernetes API server and its etcd on loopback, with RBAC; `make kubernetes` builds them.

There are no nodes and no controllers: a test writes the status of pods as a kubelet would.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from extproc.demo.port import free_ports
from tests.fakes.authority import Authority
from tools.kubernetes_build import CACHE, MISSING, is_built, program

CRDS: Final = Path(__file__).parents[1] / "data/kubernetes"
ADMIN: Final = "the-administrator"
NAMESPACE: Final = "serving"
NEEDS_KUBERNETES: Final = pytest.mark.skipif(not is_built(), reason=MISSING)

Object = dict[str, Any]


class Kubernetes:
    """One API server; use it as `async with`. The namespace `serving` and the CRDs are there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "kubernetes"
        self._etcd_port, self._peer_port, self.port = free_ports(3)
        self.url = f"https://127.0.0.1:{self.port}"
        self._etcd: asyncio.subprocess.Process | None = None
        self._server: asyncio.subprocess.Process | None = None
        self._kinds: dict[tuple[str, str], str] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Kubernetes:
        try:
            await self._boot()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def _boot(self) -> None:
        self._folder.mkdir()
        self._write_files()
        client = httpx.AsyncClient(
            base_url=self.url,
            verify=False,
            headers={"authorization": f"Bearer {ADMIN}"},
            timeout=60,
            trust_env=False,
        )
        self._stack.push_async_callback(self._kill)
        self._admin = await self._stack.enter_async_context(client)
        self._etcd = await self._run("etcd", *self._etcd_arguments())
        await self.start()
        await self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        for file in (*sorted(CRDS.glob("*.yaml")), *sorted((CACHE / "crds").glob("*.yaml"))):
            await self.apply(*yaml.safe_load_all(file.read_text(encoding="utf-8")))

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def start(self) -> None:
        """Start the API server, and wait until it is ready; it has forgotten nothing."""
        self._server = await self._run("kube-apiserver", *self._server_arguments())
        async with asyncio.timeout(120):
            while not await self._is_ready():
                assert self._server.returncode is None, self.log()
                await asyncio.sleep(0.1)

    async def stop(self) -> None:
        """End the API server as kill -9 does; etcd stays."""
        if self._server is not None and self._server.returncode is None:
            self._server.kill()
            await self._server.wait()

    def log(self) -> str:
        """The last lines of the API server."""
        return (self._folder / "kube-apiserver.log").read_text(errors="replace")[-3000:]

    # Objects

    async def ask(self, method: str, path: str, body: object = None, **parameters: str) -> Object:
        """One call as the administrator; fails the test where the server does not like it."""
        content = None if body is None else json.dumps(body).encode()
        kind = "application/apply-patch+yaml" if method == "PATCH" else "application/json"
        headers = {"content-type": kind}
        answer = await self._admin.request(
            method, path, content=content, headers=headers, params=parameters
        )
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text[:2000]}"
        found: Object = answer.json()
        return found

    async def apply(self, *objects: Object, is_dry_run: bool = False) -> None:
        """Server-side apply, as `kubectl apply --server-side` does."""
        for each in objects:
            if each:
                path = await self._path_of(each)
                parameters = {"fieldManager": "tests", "force": "true", "fieldValidation": "Strict"}
                if is_dry_run:
                    parameters["dryRun"] = "All"
                await self.ask("PATCH", path, each, **parameters)
                if each["kind"] == "CustomResourceDefinition" and not is_dry_run:
                    await self._until_established(path)

    async def put_pod(self, name: str, ip: str, *, is_ready: bool = True, **metadata: Any) -> None:
        """A pod on a node, as the scheduler and the kubelet leave it."""
        named = {"name": name, "labels": {"app": "llama"}, **metadata}
        container = {"name": "llama-server", "image": "llama-server"}
        await self.apply(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": named,
                "spec": {"nodeName": "node-1", "containers": [container]},
            }
        )
        await self.set_status(name, ip, is_ready=is_ready)

    async def set_status(self, name: str, ip: str, *, is_ready: bool) -> None:
        """As the kubelet says it."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/status"
        ready = {"type": "Ready", "status": str(is_ready)}
        status = {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": [ready]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "status": status}
        await self.ask("PATCH", path, pod, fieldManager="kubelet", force="true")

    async def terminate(self, name: str, grace_s: int = 600) -> None:
        """As `kubectl delete pod`: it is there, and ready, until its kubelet says that it ended."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}"
        await self.ask("DELETE", path, gracePeriodSeconds=str(grace_s))

    def kubeconfig(self) -> Path:
        """The administrator's, for kubectl and helm."""
        file = self._folder / "kubeconfig.yaml"
        cluster = {"server": self.url, "certificate-authority": str(self._ca)}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "c", "user": {"token": ADMIN}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        }
        file.write_text(yaml.safe_dump(content))
        return file

    async def service_account(self, name: str = "coxswain") -> Path:
        """The folder of a pod that runs as this account: its token, CA and namespace."""
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
        await self.apply(account)
        path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{name}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token = (await self.ask("POST", path, body))["status"]["token"]
        folder = self._folder / f"account-{name}"
        folder.mkdir(exist_ok=True)
        (folder / "token").write_text(token)
        (folder / "namespace").write_text(NAMESPACE)
        shutil.copyfile(self._ca, folder / "ca.crt")
        return folder

    # Its processes

    def _write_files(self) -> None:
        authority = Authority(self._folder)
        self._ca = authority.ca
        self._pair = authority.issue("api")
        key = ec.generate_private_key(ec.SECP256R1())
        (self._folder / "accounts.pem").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            )
        )
        (self._folder / "tokens.csv").write_text(f'{ADMIN},admin,admin,"system:masters"\n')

    def _etcd_arguments(self) -> Iterable[str]:
        client, peer = (f"http://127.0.0.1:{port}" for port in (self._etcd_port, self._peer_port))
        yield f"--data-dir={self._folder}/etcd"
        yield from (f"--listen-client-urls={client}", f"--advertise-client-urls={client}")
        yield from (f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}")
        yield f"--initial-cluster=default={peer}"
        yield "--unsafe-no-fsync"

    def _server_arguments(self) -> Iterable[str]:
        keys = self._folder / "accounts.pem"
        yield f"--etcd-servers=http://127.0.0.1:{self._etcd_port}"
        yield from ("--bind-address=127.0.0.1", f"--secure-port={self.port}")
        yield f"--tls-cert-file={self._pair.cert}"
        yield f"--tls-private-key-file={self._pair.key}"
        yield f"--token-auth-file={self._folder}/tokens.csv"
        yield "--service-account-issuer=https://kubernetes.default.svc"
        yield from (
            f"--service-account-key-file={keys}",
            f"--service-account-signing-key-file={keys}",
        )
        yield "--authorization-mode=RBAC"
        yield "--service-cluster-ip-range=10.96.0.0/16"
        # Where there is no network it finds no address of its own, and nobody asks it for one.
        yield from ("--advertise-address=192.0.2.1", "--endpoint-reconciler-type=none")
        # A controller that does not run here makes each namespace's default account.
        yield "--disable-admission-plugins=ServiceAccount"

    async def _run(self, name: str, *arguments: str) -> asyncio.subprocess.Process:
        path = program(name)
        assert path is not None, MISSING
        with (self._folder / f"{name}.log").open("ab") as log:
            return await asyncio.create_subprocess_exec(
                path, *arguments, stdout=log, stderr=subprocess.STDOUT, cwd=self._folder
            )

    async def _kill(self) -> None:
        for process in (self._server, self._etcd):
            if process is not None and process.returncode is None:
                process.send_signal(signal.SIGKILL)
                await process.wait()

    async def _is_ready(self) -> bool:
        try:
            answer = await self._admin.get("/readyz", timeout=5)
        except httpx.HTTPError:
            return False
        return answer.is_success

    async def _path_of(self, thing: Object) -> str:
        version, kind = str(thing["apiVersion"]), str(thing["kind"])
        if (version, kind) not in self._kinds:
            base = f"/apis/{version}" if "/" in version else f"/api/{version}"
            for each in (await self.ask("GET", base))["resources"]:
                if "/" not in each["name"]:
                    namespace = "/namespaces/{}" if each["namespaced"] else ""
                    path = f"{base}{namespace}/{each['name']}/{{}}"
                    self._kinds[version, each["kind"]] = path
        path, name = self._kinds[version, kind], thing["metadata"]["name"]
        if "/namespaces/{}" not in path:
            return path.format(name)
        return path.format(thing["metadata"].get("namespace") or NAMESPACE, name)

    async def _until_established(self, path: str) -> None:
        async with asyncio.timeout(60):
            while True:
                status = (await self.ask("GET", path)).get("status") or {}
                conditions = status.get("conditions") or ()
                if any((c["type"], c["status"]) == ("Established", "True") for c in conditions):
                    return
                await asyncio.sleep(0.05)
