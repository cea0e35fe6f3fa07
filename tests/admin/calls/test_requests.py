"""Claims about extproc/admin/calls/requests.py and explain.py, through a real client."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable

import grpc
import pytest

from extproc.admin.calls.requests import RequestCalls
from extproc.core.address import Address
from extproc.core.exchange_registry import ExchangeSnapshot
from extproc.core.fleet.resolver import ResolverOptions
from extproc.core.objective import Criticality, Objective, Objectives
from extproc.core.observation import ModelReading
from extproc.pb import external_processor_pb2 as ext_proc
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from tests.fakes.picker import FakePicker, Stream, rest_of, running_picker, until

A, B = "10.0.0.1:8080", "10.0.0.2:8080"
QUEUED = pb.WatchQueueResponse.STATE_QUEUED


async def rejection(call: Awaitable[object]) -> tuple[grpc.StatusCode, str]:
    """How a call was refused."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details() or ""


async def listed(picker: FakePicker, **wanted: object) -> pb.ListRequestsResponse:
    request = pb.ListRequestsRequest(**wanted)  # type: ignore[arg-type]  # the test's keywords
    return await picker.admin.ListRequests(request)


async def answer(call: Stream) -> ext_proc.ProcessingResponse:
    """What Envoy is told in the end."""
    while True:
        message = await call.read()
        assert isinstance(message, ext_proc.ProcessingResponse)
        if not message.HasField("override_message_timeout"):
            return message


async def leave(picker: FakePicker, call: Stream, address: str) -> None:
    """The client goes away, and its server is seen idle."""
    before = len(picker.registry)
    call.cancel()
    await until(lambda: len(picker.registry) < before)
    picker.observe(address)
    account = picker.dispatcher.ledger.endpoint_slots(Address.parse(address))
    await until(lambda: not account.has_draining)


async def test_lists_running_and_waiting(picker: FakePicker) -> None:
    """The running ones first, then the line in its order, each with its place."""
    picker.add_ready(A)
    calls = [await picker.ask(f"r{number}") for number in range(3)]
    answer = await listed(picker)
    assert [request.request_id for request in answer.requests] == ["r0", "r1", "r2"]
    assert [(request.queue_position, request.queued) for request in answer.requests] == [
        (0, 0),
        (1, 2),
        (2, 2),
    ]
    assert (answer.total_running, answer.total_queued, answer.total) == (1, 2, 3)
    assert answer.requests[0].endpoint == A and not answer.requests[1].endpoint
    assert answer.requests[0].state == pb.REQUEST_STATE_RUNNING
    assert answer.requests[1].age_s >= answer.requests[2].age_s >= 0
    waiting = await listed(picker, states=[pb.REQUEST_STATE_QUEUED], limit=1)
    assert [request.request_id for request in waiting.requests] == ["r1"]
    assert waiting.total == 2
    assert (await listed(picker, endpoint=A)).total == 1
    for call in calls:
        call.cancel()


async def test_the_queue_is_listed_by_position() -> None:
    """Who came late and is served first stands first, also in a list of one."""
    gold = Objective(name="gold", criticality=Criticality.CRITICAL)
    objectives = Objectives(by_name={"gold": gold})
    async with running_picker(resolver=ResolverOptions(objectives=objectives)) as picker:
        picker.add_ready(A)
        calls = [await picker.ask(name) for name in ("runs", "first", "second")]
        late = {"x-gateway-inference-objective": "gold"}
        calls.append(await picker.ask("late", headers=late))
        answer = await listed(picker)
        assert [(each.request_id, each.queue_position) for each in answer.requests] == [
            ("runs", 0),
            ("late", 1),
            ("first", 2),
            ("second", 3),
        ]
        waiting = await listed(picker, states=[pb.REQUEST_STATE_QUEUED], limit=1)
        assert [each.request_id for each in waiting.requests] == ["late"]
        for call in calls:
            call.cancel()


async def test_replies_name_the_endpoint(picker: FakePicker) -> None:
    """By its name, with its address beside it: in lists, at the end of a watch, explained."""
    picker.add_ready(A, name="gpu-1")
    explained = await picker.admin.Explain(pb.ExplainRequest())
    assert (explained.chosen, explained.chosen_name) == (A, "gpu-1")
    call = await picker.ask("r1")
    (request,) = (await listed(picker)).requests
    assert (request.endpoint, request.endpoint_name) == (A, "gpu-1")
    (last,) = await rest_of(picker.admin.WatchQueue(pb.WatchQueueRequest(id="r1")))
    assert (last.endpoint, last.endpoint_name) == (A, "gpu-1")
    call.cancel()


async def test_a_request_is_listed_with_what_it_asks_for() -> None:
    """Its model, its class and objective, and how many slots it takes; also while it waits."""
    gold = Objective(name="gold", criticality=Criticality.CRITICAL)
    objectives = Objectives(by_name={"gold": gold}, by_model={"small": "gold"})
    resolver_options = ResolverOptions(objectives=objectives)
    async with running_picker(resolver=resolver_options) as picker:
        picker.add_ready(A)
        told = {"x-gateway-inference-objective": "gold", "x-gateway-model-name": "big"}
        calls = [await picker.ask(name, headers=told) for name in ("runs", "waits")]
        calls.append(await picker.ask("plain"))
        mistyped = {"x-gateway-inference-objective": "gould", "x-gateway-model-name": "small"}
        calls.append(await picker.ask("mistyped", headers=mistyped))
        runs, waits, implied, plain = (await listed(picker)).requests
        for request in (runs, waits):
            assert (request.model, request.criticality) == ("big", "critical")
            assert (request.objective, request.weight_slots) == ("gold", 1)
        assert (plain.model, plain.criticality, plain.objective) == ("", "standard", "")
        assert (implied.criticality, implied.objective) == ("critical", "gold")
        for call in calls:
            call.cancel()


async def test_passing_requests_are_listed_when_asked_for(picker: FakePicker) -> None:
    """They hold no slot, and are not in the way otherwise."""
    picker.add_ready(A)
    call = await picker.ask("r1", path="/tokenize")
    assert not (await listed(picker)).requests
    (request,) = (await listed(picker, states=[pb.REQUEST_STATE_PASSING])).requests
    assert (request.request_id, request.criticality) == ("r1", "")
    call.cancel()


async def test_watch_through_the_queue(picker: FakePicker) -> None:
    """From the place in the queue to the server, and then the watch ends."""
    picker.add_ready(A)
    calls = [await picker.ask(f"r{number}") for number in range(3)]
    watch = picker.admin.WatchQueue(pb.WatchQueueRequest(id="r2"))
    first = await watch.read()
    assert isinstance(first, pb.WatchQueueResponse)
    assert (first.state, first.queue_position, first.queued) == (QUEUED, 2, 2)
    await leave(picker, calls[0], A)
    await leave(picker, calls[1], A)
    last = (await rest_of(watch))[-1]
    assert (last.state, last.endpoint) == (pb.WatchQueueResponse.STATE_SERVED, A)
    calls[2].cancel()


async def test_a_stall_while_scraping_delays_no_later_scrape(
    picker: FakePicker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the work of a scrape counts for when the next one is, not how long it took."""
    scrapes = 0
    place = RequestCalls._position

    def stalled(calls: RequestCalls, status: ExchangeSnapshot) -> pb.WatchQueueResponse:
        nonlocal scrapes
        scrapes += 1
        time.sleep(1.2 * (scrapes == 1))
        return place(calls, status)

    monkeypatch.setattr(RequestCalls, "_position", stalled)
    call = await picker.ask("r1")
    watch = picker.admin.WatchQueue(pb.WatchQueueRequest(id="r1"))
    await until(lambda: scrapes == 3)
    watch.cancel()
    call.cancel()


async def test_watch_of_one_who_leaves(picker: FakePicker) -> None:
    """The watch ends with `gone`, and no slot was taken."""
    call = await picker.ask("r1")
    watch = picker.admin.WatchQueue(pb.WatchQueueRequest(id="r1"))
    await watch.read()
    call.cancel()
    last = (await rest_of(watch))[-1]
    assert last.state == pb.WatchQueueResponse.STATE_GONE


async def test_cancels_a_waiting_request(picker: FakePicker) -> None:
    """Its client reads 503 `cancelled`, and those behind it move up."""
    picker.add_ready(A)
    calls = [await picker.ask(f"r{number}") for number in range(3)]
    answered = await picker.admin.CancelRequest(pb.CancelRequestRequest(id="r1"))
    assert answered.request.queue_position == 1
    immediate = (await answer(calls[1])).immediate_response
    assert immediate.status.code == 503
    assert json.loads(immediate.body)["error"]["code"] == "cancelled"
    assert [request.request_id for request in (await listed(picker)).requests] == ["r0", "r2"]
    for call in calls:
        call.cancel()


async def test_cancels_a_running_request(picker: FakePicker) -> None:
    """Envoy is told to end it; its slot stays taken until the server is seen to let go."""
    picker.add_ready(A)
    call = await picker.ask("r1")
    assert (await answer(call)).HasField("request_headers")
    await picker.admin.CancelRequest(pb.CancelRequestRequest(id="r1"))
    assert (await answer(call)).immediate_response.status.code == 503
    await leave(picker, call, A)
    endpoint = (await picker.admin.ListEndpoints(pb.ListEndpointsRequest())).endpoints[0]
    assert endpoint.slots.idle == 1


async def test_a_request_whose_body_still_comes(picker: FakePicker) -> None:
    """It is listed as what it is, has no place to watch, and can be refused."""
    picker.add_ready(A)
    call = await picker.ask("r1", has_body=True)
    assert isinstance(await call.read(), ext_proc.ProcessingResponse), "the body is asked for"
    found = await listed(picker)
    assert (found.total_running, found.total_queued, found.total) == (0, 0, 1)
    assert found.requests[0].state == pb.REQUEST_STATE_READING
    code, text = await rejection(picker.admin.WatchQueue(pb.WatchQueueRequest(id="r1")).read())
    assert code is grpc.StatusCode.FAILED_PRECONDITION and "its body is still arriving" in text
    cancelled = await picker.admin.CancelRequest(pb.CancelRequestRequest(id="r1"))
    assert cancelled.request.state == pb.REQUEST_STATE_READING
    assert (await answer(call)).immediate_response.status.code == 503
    call.cancel()


@pytest.mark.parametrize(
    ("id_", "code"),
    [
        ("", grpc.StatusCode.INVALID_ARGUMENT),
        ("  ", grpc.StatusCode.INVALID_ARGUMENT),
        ("x" * 100_000, grpc.StatusCode.INVALID_ARGUMENT),
        ("nobody's", grpc.StatusCode.NOT_FOUND),
        ("\n\x00", grpc.StatusCode.NOT_FOUND),
        ("twice", grpc.StatusCode.FAILED_PRECONDITION),
    ],
)
async def test_rejects_ids_that_mean_nobody(
    picker: FakePicker, id_: str, code: grpc.StatusCode
) -> None:
    """Nobody is cancelled by an id that is wrong or that two requests have."""
    calls = [await picker.ask("twice"), await picker.ask("twice")]
    cancelling = picker.admin.CancelRequest(pb.CancelRequestRequest(id=id_))
    assert (await rejection(cancelling))[0] is code
    watching = picker.admin.WatchQueue(pb.WatchQueueRequest(id=id_)).read()
    assert (await rejection(watching))[0] is code
    assert len(picker.dispatcher.queue) == 2
    for call in calls:
        call.cancel()


async def test_the_text_names_those_who_are_meant(picker: FakePicker) -> None:
    """Of two requests with one id, the rejection tells their exchange ids, and those work."""
    calls = [await picker.ask("twice"), await picker.ask("twice")]
    _, text = await rejection(picker.admin.CancelRequest(pb.CancelRequestRequest(id="twice")))
    ids = [exchange.id for exchange in picker.registry]
    assert all(id_ in text for id_ in ids)
    await picker.admin.CancelRequest(pb.CancelRequestRequest(id=ids[0]))
    assert len(picker.dispatcher.queue) == 1
    for call in calls:
        call.cancel()


async def test_rejects_odd_lists(picker: FakePicker) -> None:
    """Beyond the bound, or of an endpoint that is none."""
    assert (await rejection(listed(picker, limit=10_001)))[0] is grpc.StatusCode.INVALID_ARGUMENT
    assert (await rejection(listed(picker, endpoint="x:1")))[0] is grpc.StatusCode.NOT_FOUND


async def explained(picker: FakePicker, **inquiry: object) -> pb.ExplainResponse:
    request = pb.ExplainRequest(**inquiry)  # type: ignore[arg-type]  # the test's keywords
    return await picker.admin.Explain(request)


async def test_explains_a_pick(picker: FakePicker) -> None:
    """Who would serve, and why the others would not; and nothing is leased by asking."""
    picker.add_ready(A, slots=2)
    picker.add_ready(B, slots=2)
    picker.observe(B, slots=2, busy_slots=2)
    answer = await explained(picker, body=b'{"messages": []}')
    assert (answer.decision, answer.chosen) == (pb.ExplainResponse.DECISION_PICKED, A)
    best, other = answer.candidates
    assert (best.address, best.rank) == (A, 1) and not best.filtered
    assert {score.name: score.value for score in best.scores}["free_share"] == 1.0
    assert other.rank == 0 and "0 of its 2 slots are free" in other.filtered[0]
    assert not len(picker.registry) and not picker.dispatcher.queue
    accounts = [
        picker.dispatcher.ledger.endpoint_slots(one.address) for one in picker.dispatcher.fleet
    ]
    assert [account.leased_slots for account in accounts] == [0, 0]


async def test_explains_waiting_and_rejection(picker: FakePicker) -> None:
    """With every slot taken it would wait; not willing to wait, it would be refused."""
    picker.add_ready(A)
    call = await picker.ask("r1")
    answer = await explained(picker)
    assert (answer.decision, answer.queue_position) == (pb.ExplainResponse.DECISION_QUEUED, 1)
    answer = await explained(picker, headers={"X-Coxswain-Queue-Timeout-Ms": "0"})
    assert (answer.decision, answer.reason) == (
        pb.ExplainResponse.DECISION_REJECTED,
        "queue-timeout",
    )
    answer = await explained(picker, headers={"x-coxswain-queue-timeout-ms": "soon"})
    assert answer.reason == "bad-request" and "milliseconds" in answer.resolved["problem"]
    answer = await explained(picker, method="get", path="/v1/models")
    assert (answer.decision, answer.chosen) == (pb.ExplainResponse.DECISION_PASSED, A)
    call.cancel()


async def test_explains_who_answers_the_question_for_models(picker: FakePicker) -> None:
    """The picker itself, for the whole fleet, once any server has told a model."""
    picker.add_ready(A)
    answer = await explained(picker, method="GET", path="/models?x=1")
    assert answer.chosen == A, "nobody told a model: a server is asked"
    picker.observe(A, models=(ModelReading(name="tiny"),))
    answer = await explained(picker, method="GET", path="/models?x=1")
    assert (answer.decision, answer.chosen) == (pb.ExplainResponse.DECISION_PASSED, "")
    assert dict(answer.resolved) == {"answered_by": "coxswain"} and not answer.candidates
    answer = await explained(picker, method="POST", path="/tokenize")
    assert answer.chosen == A and not answer.resolved


async def test_explains_that_a_path_is_closed(picker: FakePicker) -> None:
    picker.add_ready(A)
    for method, path in (("POST", "/models"), ("GET", "/tools")):
        answer = await explained(picker, method=method, path=path)
        assert (answer.decision, answer.reason) == (
            pb.ExplainResponse.DECISION_REJECTED,
            "blocked-path",
        )


async def test_explains_that_a_body_could_not_be_read(picker: FakePicker) -> None:
    """It is routed by what stands before the fault, as a real one; but the slip is told."""
    picker.add_ready(A)
    answer = await explained(picker, body=b'{"model": "tiny", "n": 2,, "messages": []}')
    assert (answer.decision, answer.resolved["weight_slots"]) == (
        pb.ExplainResponse.DECISION_PICKED,
        "2",
    )
    assert answer.resolved["body"].startswith("it is not JSON: ")
    assert (await explained(picker, body=b"[]")).resolved["body"] == "it is not a JSON object"
    assert "body" not in (await explained(picker, body=b'{"messages": []}')).resolved
    assert "body" not in (await explained(picker)).resolved


async def test_explains_a_body_that_is_no_form(picker: FakePicker) -> None:
    """A sound file to be transcribed comes in a form; nothing counts of what is none."""
    picker.add_ready(A)
    answer = await explained(
        picker,
        path="/v1/audio/transcriptions",
        headers={"content-type": "multipart/form-data; boundary=x"},
        body=b'{"model": "tiny", "n": 2}',
    )
    assert answer.resolved["weight_slots"] == "1"
    assert answer.resolved["body"] == "it is not a form"
    assert "model" not in answer.resolved


async def test_explains_what_an_operator_did(picker: FakePicker) -> None:
    """A drained endpoint and a dead one are told apart."""
    picker.add_ready(A)
    await picker.admin.Disable(pb.DisableRequest(address=A))
    answer = await explained(picker)
    assert answer.candidates[0].filtered[0] == "an operator made it disabled"


@pytest.mark.parametrize(
    "inquiry",
    [
        {"path": "no-slash"},
        {"path": "/" + "x" * 10_000},
        {"headers": {str(number): "" for number in range(201)}},
        {"body": b"x" * (1024 * 1024 + 1)},
    ],
)
async def test_explain_rejects_what_is_too_much(
    picker: FakePicker, inquiry: dict[str, object]
) -> None:
    """Bounds, told in words."""
    code, text = await rejection(explained(picker, **inquiry))
    assert code is grpc.StatusCode.INVALID_ARGUMENT and text


async def test_settings_and_reload(picker: FakePicker) -> None:
    """Settings come as JSON; a reload tells what changed, a dry run changes nothing."""
    settings = await picker.admin.GetSettings(pb.GetSettingsRequest())
    assert json.loads(settings.json) == {"queue": {"timeout_s": 60.0}}
    assert settings.file == "coxswain.yaml"
    await picker.admin.ReloadSettings(pb.ReloadSettingsRequest(dry_run=True))
    assert picker.settings.reloads == 0
    answer = await picker.admin.ReloadSettings(pb.ReloadSettingsRequest())
    assert list(answer.applied) == ["queue.timeout_s"]
    assert list(answer.needs_restart) == ["listen.grpc"] and picker.settings.reloads == 1
    picker.settings.problem = "coxswain.yaml:3: queue.timeot_s: unknown key"
    code, text = await rejection(picker.admin.ReloadSettings(pb.ReloadSettingsRequest()))
    assert code is grpc.StatusCode.FAILED_PRECONDITION and "coxswain.yaml:3" in text


async def test_status(picker: FakePicker) -> None:
    """The sums of the fleet, the line, what became of requests, and who is connected."""
    picker.outcomes["served"] = 5
    picker.add_ready(A, slots=2)
    picker.add_ready(B, slots=1)
    picker.observe(B, slots=1, busy_slots=1)
    calls = [await picker.ask(f"r{number}") for number in range(3)]
    calls.append(await picker.ask("passes", path="/v1/models"))
    calls.append(await picker.ask("is-read", has_body=True))
    status = await picker.admin.GetStatus(pb.GetStatusRequest())
    assert (status.version, status.is_ready) == ("1.2.3", True)
    assert status.slots == pb.Slots(total=3, leased=2, foreign=1)
    assert dict(status.endpoints_by_health) == {"ready": 2}
    assert (status.running, status.queue.queued, status.queue.max_requests) == (2, 1, 10)
    assert status.exchanges == 5
    assert dict(status.queue.by_criticality) == {"critical": 0, "standard": 1, "sheddable": 0}
    assert status.queue.HasField("longest_wait_s") and not status.queue.HasField("expected_s")
    assert dict(status.outcomes) == {"served": 5}
    assert [envoy.node_id for envoy in status.envoys] == ["envoy-1"]
    picker.not_ready.append("it is shutting down")
    status = await picker.admin.GetStatus(pb.GetStatusRequest())
    assert not status.is_ready and status.not_ready == ["it is shutting down"]
    for call in calls:
        call.cancel()
