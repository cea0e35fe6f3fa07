"""The engine in Kubernetes: a Lease says who leads, a ConfigMap keeps what operators asked for.

The Lease is one `SharedRecord`: holder and epoch in its fields (`leaseTransitions` is the epoch),
the rest in annotations. It is replaced with the `resourceVersion` that was read, so each call is
one step: who was second reads again.
"""

import asyncio
import json
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

from extproc.kubernetes.api_server import ApiServer, ApiServerError, ConflictError, Object
from extproc.processes.cluster.engine import Beat, EngineError, View, apply_changes, member_of
from extproc.processes.cluster.shared_record import Observer, SharedRecord

LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
ROLE: Final = "deploy/kubernetes/cluster-role.yaml"
CONFIG_MAPS: Final = "/api/v1/namespaces/{}/configmaps"
PREFIX: Final = "coxswain.dev/"
MEMBERS, LEADER, RENEWALS = PREFIX + "members", PREFIX + "leader", PREFIX + "renewals"
CLEAN, RESIGNED = PREFIX + "is-clean", PREFIX + "has-resigned"
EPOCH: Final = PREFIX + "epoch"
"""Of the leader that has written the ConfigMap."""
INTENTS: Final = "endpoints.json"
QUIET_PART: Final = 4
"""A member that stands by, and has nothing new to say, says so this often in a lease."""
EAGER_S: Final = 0.25
NOT_OURS: Final = "the Lease {} holds something else: choose another cluster.name"

Result = TypeVar("Result")


class KubernetesEngine:
    """See `Engine`. The Lease is `name` in `namespace`, the ConfigMap `name`-intents. Each call
    ends within a quarter of a lease. Belongs to one event loop."""

    def __init__(self, name: str, url: str, namespace: str, folder: Path, lease_s: float) -> None:
        """`folder` is where the service account's files are. Raises `OSError` and `ssl.SSLError`
        for a CA that cannot be used."""
        self._name = name
        self._timeout_s = lease_s / 4
        self._lease_s = lease_s
        self._api = ApiServer(url, folder, self._timeout_s, ROLE)
        self._leases = LEASES.format(namespace)
        self._lease = f"{self._leases}/{name}"
        self._maps = CONFIG_MAPS.format(namespace)
        self._map_name = f"{name}-intents"
        self.eager_s = EAGER_S
        self._observer = Observer(lease_s)
        self._last: Object | None = None
        """The Lease as it was written last, for a holder that writes again."""
        self._written_at: dict[str, float] = {}

    async def beat(self, beat: Beat) -> View:
        return await self._bounded(self._beat(beat))

    async def intents(self) -> Mapping[str, str]:
        found = await self._bounded(self._api.read(f"{self._maps}/{self._map_name}"))
        return {} if found is None else _entries(found)

    async def set_intents(self, member_id: str, changes: Mapping[str, str | None]) -> None:
        await self._bounded(self._set_intents(member_id, changes))

    async def resign(self, member_id: str) -> None:
        await self._bounded(self._change(lambda record: record.resigned(member_id)))

    async def leave(self, member_id: str) -> None:
        self._written_at.pop(member_id, None)
        await self._bounded(self._change(lambda record: record.left(member_id)))

    async def aclose(self) -> None:
        await self._api.aclose()

    # The Lease

    async def _beat(self, beat: Beat) -> View:
        observer, me = self._observer, beat.member
        lease = self._last
        self._last = None
        while True:
            if lease is None:
                lease = await self._api.read(self._lease)
            record = self._record(lease)
            now = time.monotonic()
            observer.see(record, now)
            is_held, gone = observer.is_held(now), observer.gone(now)
            after = record.beaten(beat, is_held=is_held, gone=gone)
            if not self._is_due(record, after, me.id, now):
                return record.view(is_held=is_held, gone=gone)
            try:
                written = await self._write(lease, after)
            except ConflictError:
                lease = None
                continue
            now = time.monotonic()
            observer.see(after, now)
            self._written_at[me.id] = now
            if after.holder == me.id:
                self._last = written
            return after.view(is_held=observer.is_held(now), gone=observer.gone(now))

    def _is_due(self, record: SharedRecord, after: SharedRecord, me: str, now: float) -> bool:
        """Whether the record must be written: a member that stands by need not say each time that
        it lives."""
        same = (record.holder, record.epoch, record.renewals, record.leader)
        if same != (after.holder, after.epoch, after.renewals, after.leader):
            return True
        before = record.members.get(me)
        if before is None or before[1] != after.members[me][1]:
            return True
        return now - self._written_at.get(me, -math.inf) >= self._lease_s / QUIET_PART

    async def _change(self, change: Callable[[SharedRecord], SharedRecord]) -> None:
        self._last = None
        while True:
            lease = await self._api.read(self._lease)
            record = self._record(lease)
            after = change(record)
            if after is record:
                return
            try:
                await self._write(lease, after)
            except ConflictError:
                continue
            return

    async def _write(self, lease: Object | None, record: SharedRecord) -> Object:
        body = self._lease_of(lease, record)
        if lease is None:
            return await self._api.create(self._leases, body)
        return await self._api.replace(self._lease, body)

    def _lease_of(self, before: Object | None, record: SharedRecord) -> Object:
        """What others have put into its metadata stays."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        metadata = _metadata(before, self._name)
        spec: dict[str, Any] = dict(before.get("spec") or {}) if before else {}
        if spec.get("holderIdentity") != record.holder:
            spec["acquireTime"] = now
        members = {key: [number, asdict(one)] for key, (number, one) in record.members.items()}
        metadata["annotations"] = {
            **(metadata.get("annotations") or {}),
            MEMBERS: json.dumps(members),
            LEADER: json.dumps(None if record.leader is None else asdict(record.leader)),
            RENEWALS: str(record.renewals),
            CLEAN: json.dumps(record.is_clean),
            RESIGNED: json.dumps(record.has_resigned),
        }
        spec.update(
            holderIdentity=record.holder,
            leaseDurationSeconds=max(1, math.ceil(self._lease_s)),
            leaseTransitions=record.epoch,
            renewTime=now,
        )
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": spec,
        }

    def _record(self, lease: Object | None) -> SharedRecord:
        if lease is None:
            return SharedRecord()
        spec = lease.get("spec") or {}
        notes = lease["metadata"].get("annotations") or {}
        try:
            if MEMBERS not in notes:
                if spec.get("holderIdentity"):
                    raise EngineError(NOT_OURS.format(self._name))
                return SharedRecord(epoch=int(spec.get("leaseTransitions") or 0))
            leader = json.loads(notes[LEADER])
            members = json.loads(notes[MEMBERS])
            return SharedRecord(
                epoch=int(spec.get("leaseTransitions") or 0),
                holder=str(spec.get("holderIdentity") or ""),
                renewals=int(notes[RENEWALS]),
                leader=None if leader is None else member_of(leader),
                is_clean=json.loads(notes[CLEAN]) is True,
                has_resigned=json.loads(notes[RESIGNED]) is True,
                members={
                    str(key): (int(number), member_of(one))
                    for key, (number, one) in members.items()
                },
            )
        except (AttributeError, KeyError, TypeError, ValueError):
            raise EngineError(NOT_OURS.format(self._name)) from None

    # The ConfigMap

    async def _set_intents(self, member_id: str, changes: Mapping[str, str | None]) -> None:
        path = f"{self._maps}/{self._map_name}"
        while True:
            record = self._record(await self._api.read(self._lease))
            if record.holder != member_id:
                return
            found = await self._api.read(path)
            if found is not None and _epoch(found) > record.epoch:
                return  # a later leader has written it
            entries = {} if found is None else _entries(found)
            apply_changes(entries, changes)
            metadata = _metadata(found, self._map_name)
            notes = {**(metadata.get("annotations") or {}), EPOCH: str(record.epoch)}
            body = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {**metadata, "annotations": notes},
                "data": {
                    **((found or {}).get("data") or {}),
                    INTENTS: json.dumps(entries, sort_keys=True),
                },
            }
            try:
                if found is None:
                    await self._api.create(self._maps, body)
                else:
                    await self._api.replace(path, body)
            except ConflictError:
                continue
            return

    async def _bounded(self, work: Awaitable[Result]) -> Result:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await work
        except ApiServerError as error:
            raise EngineError(str(error)) from None
        except TimeoutError:
            raise EngineError(f"no answer within {self._timeout_s:g} s") from None


def _metadata(before: Object | None, name: str) -> dict[str, Any]:
    """Of the object that replaces `before`; who set which field is the server's to say."""
    metadata = {"name": name} if before is None else dict(before["metadata"])
    metadata.pop("managedFields", None)
    return metadata


def _entries(found: Object) -> dict[str, str]:
    try:
        entries = json.loads((found.get("data") or {}).get(INTENTS) or "{}")
        return {str(address): str(text) for address, text in entries.items()}
    except (AttributeError, TypeError, ValueError):
        raise EngineError(f"the ConfigMap's {INTENTS} cannot be read: delete it") from None


def _epoch(found: Object) -> int:
    try:
        return int((found["metadata"].get("annotations") or {}).get(EPOCH, "0"))
    except ValueError:
        return 0
