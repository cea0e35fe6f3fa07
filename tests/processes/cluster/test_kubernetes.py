"""Claims about extproc/processes/cluster/kubernetes.py and api_server.py, over an API server of
the test's own; what every engine holds is in test_engine_contract.py."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from extproc.processes.cluster.engine import Beat, EngineError, Member
from extproc.processes.cluster.kubernetes import INTENTS, KubernetesEngine
from tests.fakes.api_server import FakeApiServer

LEASE_S = 4.0
PATIENT_LEASE_S = 240.0
"""For many calls at once: each may take a quarter of it."""
NAMESPACE = "serving"


@pytest_asyncio.fixture
async def api(tmp_path: Path) -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer(tmp_path) as found:
        yield found


@pytest_asyncio.fixture
async def engine(api: FakeApiServer) -> AsyncIterator[KubernetesEngine]:
    found = made(api)
    yield found
    await found.aclose()


def made(api: FakeApiServer, lease_s: float = LEASE_S) -> KubernetesEngine:
    return KubernetesEngine("prod", api.url, NAMESPACE, api.folder, lease_s)


def beat(name: str, *, leads: bool = False, epoch: int = 0, wants: bool = True) -> Beat:
    member = Member(id=f"{name}/1", name=name, address=f"{name}:9", fronts=(f"{name}/front-1",))
    return Beat(member=member, is_candidate=wants, is_leading=leads, has_lease=leads, epoch=epoch)


def writes(api: FakeApiServer) -> int:
    return sum(method != "GET" and code < 300 for method, _, code in api.asked)


async def test_the_lease_says_what_kubectl_shows(
    api: FakeApiServer, engine: KubernetesEngine
) -> None:
    """Holder, duration and transitions, as of any other Lease."""
    await engine.beat(beat("a"))
    first = dict(api.lease("prod")["spec"])
    assert first["holderIdentity"] == "a/1"
    assert first["leaseDurationSeconds"] == 4
    assert first["leaseTransitions"] == 1
    assert first["acquireTime"] == first["renewTime"]
    await engine.beat(beat("a", leads=True, epoch=1))
    second = api.lease("prod")["spec"]
    assert second["acquireTime"] == first["acquireTime"]
    assert second["renewTime"] > first["renewTime"]
    await engine.resign("a/1")
    assert api.lease("prod")["spec"]["holderIdentity"] == ""
    assert (await engine.beat(beat("b", epoch=1))).leader is not None
    assert api.lease("prod")["spec"]["leaseTransitions"] == 2


async def test_of_two_candidates_at_once_one_leads(
    api: FakeApiServer,
) -> None:
    """Both have read that the lock is free; the API server takes one of them."""
    engines = [made(api, PATIENT_LEASE_S) for _ in range(5)]
    views = await asyncio.gather(
        *(engine.beat(beat(f"m{number}")) for number, engine in enumerate(engines))
    )
    assert {view.leader.epoch for view in views if view.leader is not None} == {1}
    last = [
        await engine.beat(beat(f"m{number}", wants=False)) for number, engine in enumerate(engines)
    ]
    assert {view.leader.id for view in last if view.leader is not None} == {
        json.loads(api.lease("prod")["metadata"]["annotations"]["coxswain.dev/leader"])["id"]
    }
    assert {len(view.members) for view in views} <= {1, 2, 3, 4, 5}
    assert len(last[-1].members) == 5, "none has overwritten another"
    assert any(code == 409 for _, _, code in api.asked), "they met"
    for each in engines:
        await each.aclose()


async def test_a_leader_that_was_overtaken_by_another_write_reads_again(
    api: FakeApiServer, engine: KubernetesEngine
) -> None:
    """Also where another leader has been elected meanwhile: it learns that."""
    other = made(api)
    await engine.beat(beat("a"))
    await other.beat(beat("b", wants=False))
    view = await engine.beat(beat("a", leads=True, epoch=1))
    assert len(view.members) == 2

    def usurp() -> None:
        lease = api.lease("prod")
        lease["spec"].update(holderIdentity="b/1", leaseTransitions=2)
        notes = lease["metadata"]["annotations"]
        notes["coxswain.dev/leader"] = json.dumps({"id": "b/1", "name": "b", "address": "b:9"})
        lease["metadata"]["resourceVersion"] = "9999"

    api.before_write.append(usurp)
    view = await engine.beat(beat("a", leads=True, epoch=1))
    assert view.leader is not None
    assert (view.leader.id, view.leader.epoch) == ("b/1", 2)
    await other.aclose()


async def test_a_lease_that_is_deleted_is_an_engine_that_has_forgotten(
    api: FakeApiServer, engine: KubernetesEngine
) -> None:
    """Its leader claims it again, in its epoch."""
    await engine.beat(beat("a"))
    api.objects.clear()
    view = await engine.beat(beat("a", leads=True, epoch=1))
    assert view.leader is not None and view.leader.epoch == 1
    assert api.lease("prod")["spec"]["leaseTransitions"] == 1


async def test_what_others_have_written_into_the_objects_stays(
    api: FakeApiServer, engine: KubernetesEngine
) -> None:
    for kind, name in (("leases", "prod"), ("configmaps", "prod-intents")):
        metadata: dict[str, Any] = {
            "name": name,
            "labels": {"team": "serving"},
            "annotations": {"team": "ours"},
        }
        api.create(kind, NAMESPACE, {"metadata": metadata})
    await engine.beat(beat("a"))
    await engine.set_intents("a/1", {"10.0.0.2:1": "one"})
    for found in (api.lease("prod"), api.config_map("prod-intents")):
        assert found["metadata"]["labels"] == {"team": "serving"}
        assert found["metadata"]["annotations"]["team"] == "ours"
    assert json.loads(api.config_map("prod-intents")["data"][INTENTS]) == {"10.0.0.2:1": "one"}


async def test_a_member_that_stands_by_reads_and_seldom_writes(
    api: FakeApiServer, engine: KubernetesEngine
) -> None:
    other = made(api)
    await other.beat(beat("a"))
    await other.aclose()
    await engine.beat(beat("b", wants=False))
    before = writes(api)
    for _ in range(5):
        view = await engine.beat(beat("b", wants=False, epoch=1))
        assert [each.name for each in view.members] == ["a", "b"]
    assert writes(api) == before


async def test_an_earlier_leader_does_not_overwrite_what_a_later_one_keeps(
    api: FakeApiServer, engine: KubernetesEngine
) -> None:
    """It believed to lead when it began to write."""
    await engine.beat(beat("a"))
    await engine.set_intents("a/1", {"10.0.0.2:1": "one"})
    api.config_map("prod-intents")["metadata"]["annotations"]["coxswain.dev/epoch"] = "2"
    await engine.set_intents("a/1", {"10.0.0.2:1": None})
    assert await engine.intents() == {"10.0.0.2:1": "one"}


async def test_two_writers_of_intents_lose_nothing(api: FakeApiServer) -> None:
    engine = made(api, PATIENT_LEASE_S)
    await engine.beat(beat("a"))
    entries = {f"10.0.0.2:{port}": "one" for port in range(1, 9)}
    await asyncio.gather(
        *(engine.set_intents("a/1", {address: text}) for address, text in entries.items())
    )
    assert await engine.intents() == entries
    await engine.aclose()


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (lambda api: setattr(api, "is_refused", True), "cluster-role.yaml"),
        (lambda api: setattr(api, "token", "another"), "rejects the service account .401."),
        (lambda api: setattr(api, "is_broken", True), "answered 500: etcdserver"),
    ],
)
async def test_what_the_server_says_is_told(
    api: FakeApiServer, engine: KubernetesEngine, break_it: Any, said: str
) -> None:
    break_it(api)
    for call in (
        engine.beat(beat("a")),
        engine.intents(),
        engine.resign("a/1"),
        engine.leave("a/1"),
        engine.set_intents("a/1", {"10.0.0.2:1": None}),
    ):
        with pytest.raises(EngineError, match=said) as caught:
            await call
        assert "a-token" not in str(caught.value)


async def test_a_token_that_is_renewed_is_read_again(
    api: FakeApiServer, engine: KubernetesEngine
) -> None:
    await engine.beat(beat("a"))
    api.token = "renewed"
    with pytest.raises(EngineError):
        await engine.beat(beat("a", leads=True, epoch=1))
    (api.folder / "token").write_text("renewed\n")
    await engine.beat(beat("a", leads=True, epoch=1))


async def test_a_server_with_a_certificate_of_another_ca_is_not_trusted(
    api: FakeApiServer, tmp_path: Path
) -> None:
    folder = tmp_path / "without"
    folder.mkdir()
    (folder / "token").write_text("a-token")
    engine = KubernetesEngine("prod", api.url, NAMESPACE, folder, LEASE_S)
    with pytest.raises(EngineError, match=r"(?i)certificate"):
        await engine.beat(beat("a"))
    assert not api.asked, "it did not see the token"
    await engine.aclose()


async def test_a_server_that_hangs_is_given_up(tmp_path: Path) -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    engine = KubernetesEngine("prod", f"http://127.0.0.1:{port}", NAMESPACE, tmp_path, 0.5)
    with pytest.raises(EngineError, match="no answer"):
        await engine.beat(beat("a"))
    await engine.aclose()
    server.close()
    await server.wait_closed()


async def test_a_connection_that_is_reset_as_it_is_made_is_told(
    engine: KubernetesEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over uvloop it has no socket any more, and anyio fails in its own way."""

    async def request(*_: object, **__: object) -> None:
        raise AttributeError("'NoneType' object has no attribute 'getpeername'")

    monkeypatch.setattr(httpx.AsyncClient, "request", request)
    with pytest.raises(EngineError, match="the connection was reset"):
        await engine.beat(beat("a"))


@pytest.mark.parametrize(
    ("spec", "notes"),
    [
        ({"holderIdentity": "somebody-else"}, {}),
        ({"holderIdentity": "x"}, {"coxswain.dev/members": "no json"}),
        ({"holderIdentity": "x"}, {"coxswain.dev/members": "[1]"}),
    ],
)
async def test_a_lease_of_somebody_else_is_left_alone(
    api: FakeApiServer, engine: KubernetesEngine, spec: dict[str, Any], notes: dict[str, str]
) -> None:
    """A controller's election has the same name."""
    metadata = {"name": "prod", "annotations": notes}
    api.create("leases", NAMESPACE, {"metadata": metadata, "spec": spec})
    with pytest.raises(EngineError, match=r"choose another cluster\.name"):
        await engine.beat(beat("a"))
    assert api.lease("prod")["spec"] == spec


async def test_intents_that_cannot_be_read_are_told(
    api: FakeApiServer, engine: KubernetesEngine
) -> None:
    data = {"metadata": {"name": "prod-intents"}, "data": {INTENTS: "[1]"}}
    api.create("configmaps", NAMESPACE, data)
    with pytest.raises(EngineError, match="delete it"):
        await engine.intents()
