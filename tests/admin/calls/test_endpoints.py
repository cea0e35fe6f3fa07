"""Claims about extproc/admin/calls/endpoints.py and arguments.py, through a real client."""

from __future__ import annotations

from collections.abc import Awaitable

import grpc
import pytest

from extproc.admin.arguments import find_endpoint
from extproc.core.address import Address
from extproc.core.fleet.endpoint import EndpointSpec
from extproc.core.observation import Issue, ModelReading, ScrapeStatus
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.security.address_policy import PRIVATE, AddressPolicy
from tests.fakes.picker import FakePicker, until

A, B, C = "10.0.0.1:8080", "10.0.0.2:8080", "10.0.0.3:8080"


async def rejection(call: Awaitable[object]) -> tuple[grpc.StatusCode, str]:
    """How a call was refused."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details() or ""


async def listed(picker: FakePicker) -> dict[str, pb.Endpoint]:
    answer = await picker.admin.ListEndpoints(pb.ListEndpointsRequest())
    return {endpoint.address: endpoint for endpoint in answer.endpoints}


async def test_lists_all_that_is_known(picker: FakePicker) -> None:
    """State, books, models and issues of every endpoint, sorted by address."""
    picker.add_ready(B, slots=4, name="gpu-2")
    issue = Issue(code="slots-slow", message="slow", remedy="wait")
    model = ModelReading(name="tiny", aliases=("t",))
    picker.name(*picker.dispatcher.fleet.specs_of("settings").values(), spec(A))
    picker.observe(A, slots=2, busy_slots=1, models=(model,), issues=(issue,))
    await picker.ask("r1")
    answer = await picker.admin.ListEndpoints(pb.ListEndpointsRequest())
    first, second = answer.endpoints
    assert (answer.total, answer.next_page_token) == (2, "")
    assert (first.address, first.health, first.intent) == (
        A,
        pb.HEALTH_DEGRADED,
        pb.INTENT_ACTIVE,
    )
    assert first.slots == pb.Slots(total=2, foreign=1, idle=1)
    assert first.models == [pb.Model(name="tiny", aliases=["t"], is_loaded=True)]
    assert [issue.remedy for issue in first.issues] == ["wait"]
    assert (second.address, second.name) == (B, "gpu-2")
    assert (second.slots.leased, second.slots.idle, second.leases) == (1, 3, 1)
    assert second.sources == ["settings"] and second.is_pickable
    assert second.HasField("observed_age_s")


async def test_pages(picker: FakePicker) -> None:
    """Pages follow each other by their token, and none is asked for twice."""
    for address in (C, A, B):
        picker.add_ready(address)
    seen = []
    token = ""
    while True:
        page = await picker.admin.ListEndpoints(
            pb.ListEndpointsRequest(page_size=2, page_token=token)
        )
        seen += [endpoint.address for endpoint in page.endpoints]
        token = page.next_page_token
        if not token:
            break
    assert seen == [A, B, C] and page.total == 3


async def test_adds_and_removes(picker: FakePicker) -> None:
    """An added endpoint is in the fleet under the source `admin`, until it is removed."""
    added = await picker.admin.AddEndpoint(pb.AddEndpointRequest(address=A, name="one", slots=3))
    assert added.endpoint.address == A and list(added.endpoint.sources) == ["admin"]
    await picker.admin.AddEndpoint(pb.AddEndpointRequest(address=B))
    await picker.admin.RemoveEndpoint(pb.RemoveEndpointRequest(address="one"))
    assert list(await listed(picker)) == [B]


async def test_how_a_server_is_reached_is_passed_on(picker: FakePicker) -> None:
    """TLS by the address, the certificate, and where the key is; of the key itself nothing."""
    request = pb.AddEndpointRequest(
        address=f"https://{A}",
        ca_file="/ca.pem",
        server_name="gpu.example",
        api_key_file="/keys/gpu",
        inject_key=True,
    )
    added = await picker.admin.AddEndpoint(request)
    assert added.endpoint.address == A
    (arrival,) = picker.added.arrivals.values()
    assert (arrival.is_tls, arrival.ca_file, arrival.server_name) == (
        True,
        "/ca.pem",
        "gpu.example",
    )
    assert (arrival.api_key_file, arrival.api_key_env, arrival.inject_key) == (
        "/keys/gpu",
        "",
        True,
    )
    assert arrival.may_sleep is None
    await picker.admin.AddEndpoint(pb.AddEndpointRequest(address=B, may_sleep=False))
    assert [one.may_sleep for one in picker.added.arrivals.values()] == [None, False]
    fields = {field.name for field in pb.Endpoint.DESCRIPTOR.fields}
    assert not any("key" in name or "authorization" in name for name in fields)


async def test_an_arrival_that_cannot_be_had_is_rejected(picker: FakePicker) -> None:
    picker.added.problem = "api_key_env: name it in admin.api_key_envs"
    code, text = await rejection(picker.admin.AddEndpoint(pb.AddEndpointRequest(address=A)))
    assert (code, text) == (grpc.StatusCode.INVALID_ARGUMENT, picker.added.problem)
    for field in ("ca_file", "server_name", "api_key_env", "api_key_file"):
        for wrong in ("x" * 5000, "a\nb"):
            request = pb.AddEndpointRequest(address=A)
            setattr(request, field, wrong)
            code, text = await rejection(picker.admin.AddEndpoint(request))
            assert code is grpc.StatusCode.INVALID_ARGUMENT and text.startswith(field)


async def test_removed_endpoint_ends_its_requests(picker: FakePicker) -> None:
    """A removed endpoint stays, without new requests, while one still runs there."""
    await picker.admin.AddEndpoint(pb.AddEndpointRequest(address=A))
    picker.observe(A)
    call = await picker.ask("r1")
    answer = await picker.admin.RemoveEndpoint(pb.RemoveEndpointRequest(address=A))
    assert answer.running == 1
    endpoint = (await listed(picker))[A]
    assert endpoint.is_removed and not endpoint.is_pickable
    again = picker.admin.RemoveEndpoint(pb.RemoveEndpointRequest(address=A))
    code, text = await rejection(again)
    assert code is grpc.StatusCode.FAILED_PRECONDITION and "already removed" in text
    call.cancel()


async def test_resolves_a_name(picker: FakePicker) -> None:
    """A host name is resolved once, and kept for people to see."""
    answer = await picker.admin.AddEndpoint(pb.AddEndpointRequest(address="localhost:8080"))
    assert Address.parse(answer.endpoint.address).port == 8080
    assert answer.endpoint.hostname == "localhost"


@pytest.mark.parametrize(
    "text", ["localhost:8080", "LOCALHOST:8080", "localhost", "https://localhost:8080", "{address}"]
)
async def test_what_was_added_by_its_host_name_is_removed_by_it(
    picker: FakePicker, text: str
) -> None:
    """With its port or without, and as its URL; its address says it too."""
    answer = await picker.admin.AddEndpoint(pb.AddEndpointRequest(address="localhost:8080"))
    text = text.format(address=f"http://{answer.endpoint.address}")
    await picker.admin.RemoveEndpoint(pb.RemoveEndpointRequest(address=text))
    assert not await listed(picker)


async def test_a_host_name_that_many_have(picker: FakePicker) -> None:
    """The port tells them apart, or else the address, which the text names. One that left the
    fleet is not meant where another is there; a name goes before every host name."""
    hosted = [
        EndpointSpec(address=Address.parse(text), hostname="gpus")
        for text in ("10.0.0.1:8080", "10.0.0.2:8080", "10.0.0.2:8081")
    ]
    picker.name(*hosted)
    fleet = picker.dispatcher.fleet
    assert find_endpoint(fleet, "gpus:8081").address == hosted[2].address
    for text in ("gpus", "gpus:8080"):
        code, told = await rejection(picker.admin.Disable(pb.DisableRequest(address=text)))
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert "10.0.0.1:8080, 10.0.0.2:8080" in told
    picker.observe("10.0.0.1:8080")
    call = await picker.ask("r1")
    picker.name(hosted[1])
    assert find_endpoint(fleet, "gpus").address == hosted[1].address
    picker.name(hosted[1], spec(C, "gpus"))
    assert find_endpoint(fleet, "gpus").address == Address.parse(C)
    call.cancel()


async def test_what_others_name_is_not_removed_here(picker: FakePicker) -> None:
    """The text says who names it, and what can be done instead."""
    picker.add_ready(A)
    code, text = await rejection(picker.admin.RemoveEndpoint(pb.RemoveEndpointRequest(address=A)))
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert "settings" in text and "disable" in text


async def test_one_address_is_one_endpoint(picker: FakePicker) -> None:
    """However it is spelt."""
    picker.add_ready(A)
    request = pb.AddEndpointRequest(address="[::ffff:10.0.0.1]:8080")
    code, text = await rejection(picker.admin.AddEndpoint(request))
    assert code is grpc.StatusCode.ALREADY_EXISTS and "settings" in text


async def test_of_two_at_once_the_first_is_added(picker: FakePicker) -> None:
    """Also while its key is still being read: the other one hears that it is there."""
    picker.added.may_read.clear()
    request = pb.AddEndpointRequest(address=A, name="one")
    first = picker.admin.AddEndpoint(request)
    await until(lambda: picker.added.is_asked)
    second = picker.admin.AddEndpoint(request)
    await picker.admin.ListEndpoints(pb.ListEndpointsRequest())
    picker.added.may_read.set()
    assert (await first).endpoint.address == A
    code, _ = await rejection(second)
    assert code is grpc.StatusCode.ALREADY_EXISTS


async def test_disables_and_activates(picker: FakePicker) -> None:
    """A disabled endpoint gets nothing; activated it serves who waited meanwhile."""
    picker.add_ready(A)
    disabled = await picker.admin.Disable(pb.DisableRequest(address=A))
    slots = disabled.endpoint.slots
    assert slots.idle == 0 and slots.unusable == slots.total
    assert (await picker.admin.GetStatus(pb.GetStatusRequest())).slots == slots
    call = await picker.ask("r1")
    assert len(picker.dispatcher.queue) == 1
    answer = await picker.admin.Activate(pb.ActivateRequest(address=A))
    assert answer.endpoint.intent == pb.INTENT_ACTIVE and answer.endpoint.slots.leased == 1
    call.cancel()


async def test_an_address_with_a_scheme_is_asked_to_be_without(picker: FakePicker) -> None:
    """llama-server prints a URL when it starts; what is too much of it is said."""
    request = pb.AddEndpointRequest(address="http://10.0.0.1:8080")
    code, text = await rejection(picker.admin.AddEndpoint(request))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert text.endswith("write host:port or https://host:port")


def spec(address: str, name: str = "") -> EndpointSpec:
    return EndpointSpec(address=Address.parse(address), name=name)


@pytest.mark.parametrize(
    ("address", "name", "slots"),
    [
        ("", "", 0),
        ("   ", "", 0),
        ("10.0.0.1", "", 0),
        ("10.0.0.1:0", "", 0),
        ("10.0.0.1:99999", "", 0),
        ("10.0.0.999:80", "", 0),
        ("::1:80", "", 0),
        ("http://10.0.0.1:80", "", 0),
        ("a b:80", "", 0),
        ("\x00:80", "", 0),
        ("x" * 100_000, "", 0),
        (A, "a/b", 0),
        (A, "n" * 300, 0),
        (A, "", 4_000_000_000),
    ],
)
async def test_rejects_what_cannot_be_added(
    picker: FakePicker, address: str, name: str, slots: int
) -> None:
    """Nonsense is INVALID_ARGUMENT with a short text, and the fleet stays as it was."""
    request = pb.AddEndpointRequest(address=address, name=name, slots=slots)
    code, text = await rejection(picker.admin.AddEndpoint(request))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert 0 < len(text) < 400
    assert not await listed(picker)


async def test_rejects_a_taken_name(picker: FakePicker) -> None:
    """Names are for people to tell endpoints apart."""
    picker.add_ready(A, name="gpu")
    request = pb.AddEndpointRequest(address=B, name="gpu")
    assert (await rejection(picker.admin.AddEndpoint(request)))[0] is grpc.StatusCode.ALREADY_EXISTS


@pytest.mark.parametrize(
    ("address", "code"),
    [
        ("", grpc.StatusCode.INVALID_ARGUMENT),
        ("x" * 100_000, grpc.StatusCode.INVALID_ARGUMENT),
        ("10.9.9.9:80", grpc.StatusCode.NOT_FOUND),
        ("nobody", grpc.StatusCode.NOT_FOUND),
        ("twin", grpc.StatusCode.FAILED_PRECONDITION),
    ],
)
async def test_rejects_an_unknown_endpoint(
    picker: FakePicker, address: str, code: grpc.StatusCode
) -> None:
    """Every call that names an endpoint rejects one that is none in the same way."""
    picker.add_ready(A, name="twin")
    picker.add_ready(B, name="twin")
    calls: list[Awaitable[object]] = [
        picker.admin.RemoveEndpoint(pb.RemoveEndpointRequest(address=address)),
        picker.admin.Activate(pb.ActivateRequest(address=address)),
        picker.admin.Disable(pb.DisableRequest(address=address)),
        picker.admin.Drain(pb.DrainRequest(address=address)).read(),
    ]
    for call in calls:
        assert (await rejection(call))[0] is code


async def test_rejects_odd_pages(picker: FakePicker) -> None:
    """A page size beyond the bound and a token of nobody's are told so."""
    for request in (
        pb.ListEndpointsRequest(page_size=10_001),
        pb.ListEndpointsRequest(page_token="?"),
    ):
        code, _ = await rejection(picker.admin.ListEndpoints(request))
        assert code is grpc.StatusCode.INVALID_ARGUMENT


async def test_bytes_of_another_message_are_no_question(picker: FakePicker) -> None:
    """What cannot be read as the question is rejected, and the server lives on."""
    call = picker.channel.unary_unary(
        "/coxswain.v1.Admin/AddEndpoint",
        request_serializer=lambda raw: raw,
        response_deserializer=pb.AddEndpointResponse.FromString,
    )
    for raw in (b"\xff\xff\xff\xff", b"\x0a\x02\xff\xfe", b"\x08\x01"):
        assert (await rejection(call(raw)))[0] is grpc.StatusCode.INVALID_ARGUMENT
    assert not await listed(picker)


async def test_down_is_shown(picker: FakePicker) -> None:
    """Health is what was observed last."""
    picker.add_ready(A)
    picker.observe(A, status=ScrapeStatus.UNREACHABLE)
    endpoint = (await listed(picker))[A]
    assert endpoint.health == pb.HEALTH_DOWN and not endpoint.is_pickable


@pytest.mark.parametrize(
    ("address", "word"),
    [
        ("169.254.169.254:80", "link-local"),
        ("8.8.8.8:8080", "agents.allowed_networks"),
        ("127.0.0.1:9901", "port of Envoy"),
    ],
)
async def test_no_address_is_added_that_no_server_can_have(
    picker: FakePicker, caplog: pytest.LogCaptureFixture, address: str, word: str
) -> None:
    """By the same rule as for agents, with one line in the log."""
    picker.policy = AddressPolicy.of(PRIVATE, {9901})
    code, text = await rejection(picker.admin.AddEndpoint(pb.AddEndpointRequest(address=address)))
    assert code is grpc.StatusCode.PERMISSION_DENIED and word in text
    assert Address.parse(address) not in picker.dispatcher.fleet
    (line,) = (r.getMessage() for r in caplog.records if r.levelname == "WARNING")
    assert line == f"an operator was not allowed to add {address}: {text}"
    await picker.admin.AddEndpoint(pb.AddEndpointRequest(address="127.0.0.1:8080"))
