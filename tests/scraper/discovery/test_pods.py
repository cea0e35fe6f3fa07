"""Claims about scraper/discovery/pods.py: what objects of Kubernetes say."""

from __future__ import annotations

from typing import Any

import pytest

from scraper.discovery.pods import (
    Place,
    Pod,
    Pool,
    places_of_slices,
    read_pod,
    read_pool,
    read_slice,
)

READY = {"conditions": [{"type": "Ready", "status": "True"}], "podIP": "10.0.0.1"}
NOTE = "llm-d.ai/active-ports"
OLD_NOTE = "inference.networking.k8s.io/active-ports"


def pod(status: Any = READY, **metadata: Any) -> Pod | None:
    return read_pod({"metadata": {"name": "a", **metadata}, "status": status})


def test_a_ready_pod_serves() -> None:
    assert pod() == Pod(name="a", ip="10.0.0.1")
    found = pod({**READY, "podIP": "fd00::1"})
    assert found is not None and found.places([1, 2]) == [
        Place("fd00::1", 1, "a"),
        Place("fd00::1", 2, "a"),
    ]


@pytest.mark.parametrize(
    "status",
    [
        {},
        None,
        [],
        {"podIP": "10.0.0.1"},
        {**READY, "conditions": None},
        {**READY, "conditions": [{"type": "Ready", "status": "False"}]},
        {**READY, "conditions": [{"type": "Ready", "status": "Unknown"}]},
        {**READY, "conditions": [{"type": "ContainersReady", "status": "True"}, "x"]},
        {**READY, "podIP": None},
        {**READY, "podIP": ""},
        {**READY, "podIP": "host.name"},
    ],
)
def test_a_pod_that_is_not_ready_serves_nothing(status: Any) -> None:
    assert pod(status) is None


def test_a_pod_that_terminates_serves_nothing_though_it_is_ready() -> None:
    assert pod(deletionTimestamp="2026-11-29T12:00:00Z") is None


@pytest.mark.parametrize(
    ("notes", "ports"),
    [
        (None, [8000, 8001]),
        ({}, [8000, 8001]),
        ({"other": "8000"}, [8000, 8001]),
        ({NOTE: "8001"}, [8001]),
        ({NOTE: " 8001 , 8000,9999"}, [8000, 8001]),
        ({NOTE: ""}, []),
        ({NOTE: "none,-1,8001.0,٨٠٠٠"}, []),
        ({OLD_NOTE: "8000"}, [8000]),
        ({OLD_NOTE: "8000", NOTE: "8001"}, [8001]),
    ],
)
def test_an_annotation_says_which_ports_serve_by_now(notes: Any, ports: list[int]) -> None:
    found = pod(annotations=notes)
    assert found is not None
    assert [place.port for place in found.places([8000, 8001])] == ports


def test_a_pool_says_which_pods_and_which_ports() -> None:
    spec = {
        "selector": {"matchLabels": {"tier": "gpu", "app": "llama"}},
        "targetPorts": [{"number": 8000}, {"number": 8001}, {"number": 8000}],
    }
    assert read_pool({"spec": spec}) == Pool(selector="app=llama,tier=gpu", ports=(8000, 8001))


@pytest.mark.parametrize(
    "spec",
    [
        None,
        {},
        {"selector": {}, "targetPorts": [{"number": 1}]},
        {"selector": {"matchLabels": {"a": "b"}}},
        {"selector": {"matchLabels": {"a": "b"}}, "targetPorts": [{"number": 0}, {}, 7]},
    ],
)
def test_a_pool_that_says_nothing_is_none(spec: Any) -> None:
    """Above all, one without labels does not select every pod."""
    assert read_pool({"spec": spec}) is None


def slice_of(
    *ips: str, ports: Any = ({"port": 8080},), kind: str = "IPv4", **conditions: Any
) -> Any:
    endpoints = [
        {"addresses": [ip], "conditions": conditions, "targetRef": {"name": f"p{number}"}}
        for number, ip in enumerate(ips)
    ]
    return read_slice({"addressType": kind, "endpoints": endpoints, "ports": list(ports)})


def test_the_ready_endpoints_of_a_service() -> None:
    several = [
        slice_of("10.0.0.1", "10.0.0.2"),
        slice_of("10.0.0.2"),
        slice_of("10.0.0.3", ready=None),
    ]
    assert [place.ip for place in places_of_slices(several, ())] == [
        *("10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.3"),
    ]
    assert places_of_slices([slice_of("10.0.0.1", ready=False)], ()) == []
    assert places_of_slices([slice_of("10.0.0.1", ready=True, terminating=True)], ()) == []
    assert slice_of("10.0.0.1", kind="FQDN") is None


def test_a_service_of_both_families_has_each_pod_once() -> None:
    both = [slice_of("fd00::1", kind="IPv6"), slice_of("10.0.0.1")]
    assert places_of_slices(both, ()) == [Place("10.0.0.1", 8080, "p0")]
    assert places_of_slices(both[:1], ()) == [Place("fd00::1", 8080, "p0")]
    empty = [both[0], slice_of()]
    assert places_of_slices(empty, ()) == [Place("fd00::1", 8080, "p0")]


def test_one_of_several_ports_must_be_named() -> None:
    ports = [{"name": "http", "port": 8080}, {"name": "metrics", "port": 9090}]
    found = [slice_of("10.0.0.1", ports=[*ports, {"name": "dns", "port": 53, "protocol": "UDP"}])]
    with pytest.raises(ValueError, match=r"several ports \(http, metrics\)"):
        places_of_slices(found, ())
    assert places_of_slices(found, ["http"]) == [Place("10.0.0.1", 8080, "p0")]
    assert places_of_slices(found, ["9090"]) == [Place("10.0.0.1", 9090, "p0")]
    assert places_of_slices(found, ["grpc", "53"]) == []
