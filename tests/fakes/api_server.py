"""A Kubernetes API server for tests: objects with the manners that matter here.

Each write gives an object a new `resourceVersion`, and must name the one that it replaces, else it
is 409. A missing object is 404, one that exists already 409; a PUT of a Lease creates it, as
`AllowCreateOnUpdate` of its strategy says, unless it names a `uid`; that of a ConfigMap does not. A
ConfigMap without a `resourceVersion` is replaced in any case, a Lease is not (422). Types, names
and sizes are checked, and the token. Pods, InferencePools and EndpointSlices can be listed, page by
page, and watched from a version that is not forgotten.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import uuid
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.fakes.authority import Authority

NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)")
MAX_ANNOTATIONS = 256 * 1024
MAX_DATA = 1024 * 1024
INT32 = 2**31 - 1
COLLECTION = re.compile(
    r"/(?:api/v1|apis/(?:coordination|discovery|inference\.networking)\.k8s\.io/v1"
    r"|apis/llm-d\.ai/v1alpha2)/namespaces/([^/]+)/"
    r"(leases|configmaps|pods|endpointslices|inferencepools|inferenceobjectives"
    r"|inferencemodelrewrites)(?:/([^/]+))?"
)

Key = tuple[str, str, str]
Object = dict[str, Any]


class Problem(Exception):  # noqa: N818 - it is an answer
    """An answer that is no object."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason = code, reason


class FakeApiServer:
    """One server on loopback; use it as `async with`. `folder` becomes a pod's service account:
    token, CA and namespace. With an authority it speaks TLS."""

    def __init__(self, folder: Path, *, token: str = "a-token", is_tls: bool = True) -> None:
        self.folder = folder / "serviceaccount"
        self.token = token
        self.url = ""
        self.objects: dict[Key, Object] = {}
        self.asked: list[tuple[str, str, int]] = []
        """Method, path and status of each request."""
        self.is_refused = False
        """Whether the service account has no role."""
        self.is_broken = False
        self.before_write: list[Any] = []
        """Called once each, before the next write: another client comes first."""
        self.missing_kinds: set[str] = set()
        """Kinds whose CRD is not installed."""
        self.forgotten = 0
        """The version up to which no watch can begin."""
        self.watches: list[dict[str, str]] = []
        """The parameters of each watch that was begun."""
        self._events: list[tuple[int, str, str, str, Object]] = []
        """Version, kind, namespace, type and object of each change."""
        self._changed = asyncio.Event()
        self._cuts = 0
        self._is_clean_cut = False
        self._is_stopping = False
        self._version = 0
        self._is_tls = is_tls
        self._context: ssl.SSLContext | None = None
        self._runner: web.AppRunner | None = None
        self._port = 0

    async def __aenter__(self) -> FakeApiServer:
        self.folder.mkdir(exist_ok=True)
        (self.folder / "token").write_text(self.token)
        (self.folder / "namespace").write_text("serving")
        if self._is_tls:
            authority = Authority(self.folder)
            pair = authority.issue("api")
            (self.folder / "ca.crt").write_bytes(authority.ca.read_bytes())
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(pair.cert, pair.key)
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Serve; on the same port after `stop`."""
        self._is_stopping = False
        app = web.Application(client_max_size=3 << 20)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, ssl_context=self._context)
        await site.start()
        self._port = self._runner.addresses[0][1]
        self.url = f"http{'s' if self._is_tls else ''}://127.0.0.1:{self._port}"

    async def stop(self) -> None:
        self._is_stopping = True
        self.cut_watches()
        if self._runner is not None:
            await self._runner.cleanup()

    def lease(self, name: str, namespace: str = "serving") -> Object:
        return self.objects["leases", namespace, name]

    def config_map(self, name: str, namespace: str = "serving") -> Object:
        return self.objects["configmaps", namespace, name]

    # What others do with objects

    def put(self, kind: str, body: Object, namespace: str = "serving") -> None:
        """Create or replace it, as its controller or a person does."""
        key = (kind, namespace, str(body["metadata"]["name"]))
        is_new = key not in self.objects
        uid = str(uuid.uuid4()) if is_new else self.objects[key]["metadata"]["uid"]
        stored = self._store(key, body, uid=uid)
        self._happened("ADDED" if is_new else "MODIFIED", key, stored)

    def remove(self, kind: str, name: str, namespace: str = "serving") -> None:
        key = (kind, namespace, name)
        gone = deepcopy(self.objects.pop(key))
        self._version += 1
        gone["metadata"]["resourceVersion"] = str(self._version)
        self._happened("DELETED", key, gone)

    def cut_watches(self, *, is_clean: bool = False) -> None:
        """All connections with a watch break, or their watches end in good order."""
        self._cuts += 1
        self._is_clean_cut = is_clean
        self._happens()

    def forget(self) -> None:
        """Nothing that has happened by now can be watched any more."""
        self._version += 1
        self.forgotten = self._version

    def _happened(self, what: str, key: Key, thing: Object) -> None:
        self._events.append((self._version, key[0], key[1], what, deepcopy(thing)))
        self._happens()

    def _happens(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # Requests

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        try:
            kind, namespace, name = self._allow(request)
            if request.method == "GET" and request.query.get("watch"):
                return await self._watch(request, kind, namespace)
            code, found = await self._answer(request, (kind, namespace, name))
        except Problem as problem:
            code, found = problem.code, _status(problem)
        self.asked.append((request.method, request.path, code))
        return web.json_response(found, status=code)

    def _allow(self, request: web.Request) -> Key:
        if request.headers.get("authorization") != f"Bearer {self.token}":
            raise Problem(401, "Unauthorized", "Unauthorized")
        kind, namespace, name = self._place(request.path)
        if self.is_refused:
            raise Problem(403, "Forbidden", f"{kind} is forbidden: the account has no role")
        if self.is_broken:
            raise Problem(500, "InternalError", "etcdserver: request timed out")
        return kind, namespace, name

    async def _answer(self, request: web.Request, key: Key) -> tuple[int, Object]:
        kind, namespace, name = key
        if request.method == "GET" and not name:
            return 200, self._listed(request, kind, namespace)
        if request.method == "GET":
            if (kind, namespace, name) not in self.objects:
                raise Problem(404, "NotFound", f'{kind} "{name}" not found')
            return 200, self.objects[kind, namespace, name]
        try:
            body = json.loads(await request.text())
        except ValueError:
            raise Problem(400, "BadRequest", "the body is no JSON") from None
        if self.before_write:
            self.before_write.pop(0)()
        if request.method == "POST" and not name:
            return 201, self.create(kind, namespace, body)
        if request.method == "PUT" and name:
            return self._replace((kind, namespace, name), body)
        raise Problem(405, "MethodNotAllowed", request.method)

    def _place(self, path: str) -> Key:
        found = COLLECTION.fullmatch(path)
        if found is None or found[2] in self.missing_kinds:
            raise Problem(404, "NotFound", "the server could not find the requested resource")
        return found[2], found[1], found[3] or ""

    def _listed(self, request: web.Request, kind: str, namespace: str) -> Object:
        items = [
            thing
            for (one, place, _), thing in sorted(self.objects.items())
            if (one, place) == (kind, namespace) and _matches(thing, request.query)
        ]
        begin = int(request.query.get("continue", "0"))
        end = begin + int(request.query.get("limit", len(items) + 1))
        metadata = {"resourceVersion": str(self._version)}
        if end < len(items):
            metadata["continue"] = str(end)
        return {"kind": "List", "metadata": metadata, "items": items[begin:end]}

    async def _watch(self, request: web.Request, kind: str, namespace: str) -> web.StreamResponse:
        """An object that no longer matches is deleted for this watch, as one that is gone."""
        self.watches.append(dict(request.query))
        seen, cuts = int(request.query["resourceVersion"]), self._cuts
        answer = web.StreamResponse()
        await answer.prepare(request)

        async def send(what: str, thing: Object) -> None:
            await answer.write(json.dumps({"type": what, "object": thing}).encode() + b"\n")

        if seen < self.forgotten:
            await send("ERROR", _status(Problem(410, "Expired", "too old resource version")))
            return answer
        known = self._matching_before(seen, kind, namespace, request.query)
        while True:
            changed = self._changed
            for version, one, place, what, thing in list(self._events):
                if version <= seen or (one, place) != (kind, namespace):
                    continue
                name, matches = thing["metadata"]["name"], _matches(thing, request.query)
                if what != "DELETED" and matches:
                    await send("MODIFIED" if name in known else "ADDED", thing)
                    known.add(name)
                elif name in known:
                    await send("DELETED", thing)
                    known.discard(name)
            seen = self._version
            if self._cuts != cuts or self._is_stopping:
                if not self._is_clean_cut and request.transport is not None:
                    request.transport.abort()
                return answer
            bookmark = {"kind": "Pod", "metadata": {"resourceVersion": str(seen)}}
            await send("BOOKMARK", bookmark)
            await changed.wait()

    def _matching_before(
        self, version: int, kind: str, namespace: str, query: Mapping[str, str]
    ) -> set[str]:
        known: set[str] = set()
        for at, one, place, what, thing in self._events:
            if at <= version and (one, place) == (kind, namespace):
                name = thing["metadata"]["name"]
                matches = what != "DELETED" and _matches(thing, query)
                known = known | {name} if matches else known - {name}
        return known

    def create(self, kind: str, namespace: str, body: Object) -> Object:
        metadata = body.get("metadata") or {}
        key = (kind, namespace, str(metadata.get("name", "")))
        if metadata.get("resourceVersion"):
            raise Problem(
                500, "InternalError", "resourceVersion should not be set on objects to be created"
            )
        if key in self.objects:
            raise Problem(409, "AlreadyExists", f'{kind} "{key[2]}" already exists')
        return self._store(key, body, uid=str(uuid.uuid4()))

    def _replace(self, key: Key, body: Object) -> tuple[int, Object]:
        kind, _, name = key
        metadata = body.get("metadata") or {}
        if metadata.get("name") != name:
            raise Problem(400, "BadRequest", "the name of the object does not match the URL")
        before = self.objects.get(key)
        uid, version = metadata.get("uid"), metadata.get("resourceVersion")
        if before is None:
            if uid:
                raise Problem(409, "Conflict", "Precondition failed: UID in precondition")
            if kind == "leases":
                return 201, self._store(key, body, uid=str(uuid.uuid4()))
            raise Problem(404, "NotFound", f'{kind} "{name}" not found')
        if uid and uid != before["metadata"]["uid"]:
            raise Problem(409, "Conflict", "Precondition failed: UID in precondition")
        if not version and kind == "leases":
            raise Problem(
                422, "Invalid", "metadata.resourceVersion: must be specified for an update"
            )
        if version and version != before["metadata"]["resourceVersion"]:
            raise Problem(
                409, "Conflict", "the object has been modified; please apply your changes"
            )
        return 200, self._store(key, body, uid=before["metadata"]["uid"])

    def _store(self, key: Key, body: Object, *, uid: str) -> Object:
        kind, namespace, name = key
        if not NAME.fullmatch(name) or len(name) > 253:
            raise Problem(422, "Invalid", f"metadata.name: {name} is no DNS name")
        metadata = body["metadata"]
        notes = metadata.get("annotations") or {}
        if not all(isinstance(text, str) for each in notes.items() for text in each):
            raise Problem(400, "BadRequest", "annotations are strings")
        if sum(len(one) + len(other) for one, other in notes.items()) > MAX_ANNOTATIONS:
            raise Problem(422, "Invalid", "metadata.annotations: Too long")
        if kind == "leases":
            _check_lease(body.get("spec") or {})
        elif kind == "configmaps":
            data = body.get("data") or {}
            if not all(isinstance(text, str) for each in data.items() for text in each):
                raise Problem(400, "BadRequest", "data are strings")
            if sum(len(text) for text in data.values()) > MAX_DATA:
                raise Problem(422, "Invalid", "data: Too long")
        self._version += 1
        stored = deepcopy(body)
        stored["metadata"] = {
            **deepcopy(metadata),
            "namespace": namespace,
            "uid": uid,
            "resourceVersion": str(self._version),
        }
        self.objects[key] = stored
        return stored


def _status(problem: Problem) -> Object:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": str(problem),
        "reason": problem.reason,
        "code": problem.code,
    }


def _matches(thing: Object, query: Mapping[str, str]) -> bool:
    """Whether its labels and its name are those of the selectors, which are equations here."""
    metadata = thing["metadata"]
    labels = metadata.get("labels") or {}
    fields = {"metadata.name": metadata["name"]}
    asked = [(labels, query.get("labelSelector")), (fields, query.get("fieldSelector"))]
    return all(
        known.get(key) == value
        for known, text in asked
        for key, _, value in (part.partition("=") for part in (text or "").split(",") if part)
    )


def _check_lease(spec: Object) -> None:
    for key, least in (("leaseDurationSeconds", 1), ("leaseTransitions", 0)):
        value = spec.get(key)
        if value is None:
            continue
        if type(value) is not int or value > INT32:
            raise Problem(400, "BadRequest", f"spec.{key} is no int32")
        if value < least:
            raise Problem(422, "Invalid", f"spec.{key}: must be at least {least}")
    for key in ("acquireTime", "renewTime"):
        value = spec.get(key)
        if value is not None and not (isinstance(value, str) and MICRO_TIME.fullmatch(value)):
            raise Problem(400, "BadRequest", f"spec.{key} is no MicroTime")
    if not isinstance(spec.get("holderIdentity", ""), str):
        raise Problem(400, "BadRequest", "spec.holderIdentity is no string")
