"""Claims about extproc/app/sleeping_machines.py, and through it about the core's view of them."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Iterable
from dataclasses import replace

import pytest

from extproc.admin.messages import endpoint_message
from extproc.app.placement import Placement
from extproc.app.sleeping_machines import SleepingMachines, magic_packet, send_magic_packet
from extproc.core.address import Address
from extproc.core.fleet.endpoint import Endpoint, EndpointSpec, Intent, WakeOptions
from extproc.core.fleet.health import Health
from extproc.core.fleet.resolver import ResolverOptions
from extproc.core.observation import ModelReading, ScrapeStatus
from extproc.core.placement.machine import KeptMachine, KeptState, Power
from extproc.core.placement.model_load import ModelLoad
from extproc.core.placement.swaps import PlacementOptions
from extproc.core.placement.wanted_models import PlacementError
from extproc.core.scaling.wanted import ScaleOptions, ServerBounds
from extproc.core.views.explain import explain
from extproc.core.views.fleet_capacity import fleet_health
from extproc.core.views.waits import WaitReason
from extproc.core.views.wake_advisor import PLACED_S
from extproc.status.readiness import why_not_ready
from tests.core.placement.simulated import machine, set_state
from tests.fakes.picker import until
from tests.fakes.steered_fleet import SteeredFleet

WAKE = WakeOptions(
    mac="02:00:00:00:00:01", after_idle_s=300.0, sleep_command=(sys.executable, "-c", "")
)
OTHER = replace(WAKE, mac="02:00:00:00:00:02")


class Kit(SteeredFleet):
    """Endpoints with two slots each, on machines of these options; None for one that is always on.
    Nothing is sent."""

    def __init__(self, *wakes: WakeOptions | None, models: tuple[str, ...] = ("qwen",)) -> None:
        super().__init__()
        self.packets: list[str] = []
        self.events: list[str] = []
        self.error: OSError | None = None
        self.sleeping = SleepingMachines(self.dispatcher, lambda: self.now, send=self.send)
        self.sleeping.on_event = lambda kind, *_: self.events.append(kind)
        self.rewire(*wakes)
        for address in self.addresses:
            self.scrape(address, slots=2, busy_slots=0, models=models)

    def rewire(self, *wakes: WakeOptions | None) -> None:
        self.addresses = [Address("10.0.0.1", 8000 + number) for number in range(len(wakes))]
        specs = [
            EndpointSpec(address=address, name=f"gpu-{number}", wake=wake)
            for number, (address, wake) in enumerate(zip(self.addresses, wakes, strict=True), 1)
        ]
        self.dispatcher.set_members("test", specs, self.now)

    def send(self, options: WakeOptions) -> None:
        self.packets.append(options.mac)
        if self.error is not None:
            raise self.error

    def endpoint(self, number: int = 1) -> Endpoint:
        endpoint = self.dispatcher.fleet.get(self.addresses[number - 1])
        assert endpoint is not None
        return endpoint

    def fall_off(self, *numbers: int) -> None:
        for number in numbers:
            self.scrape(self.endpoint(number).address, status=ScrapeStatus.UNREACHABLE)

    def refuse(self, number: int) -> None:
        """Its machine is on, and no server listens."""
        address = self.endpoint(number).address
        self.scrape(address, status=ScrapeStatus.UNREACHABLE, is_machine_on=True)

    def serve(self, number: int = 1) -> None:
        self.scrape(self.endpoint(number).address, slots=2, busy_slots=0, models=("qwen",))

    def decide(self, later_s: float = 1.0) -> None:
        self.now += later_s
        self.sleeping.decide(self.now)

    def learn(self) -> None:
        """Requests have ended, so how many servers are wanted is no guess."""
        for _ in range(3):
            lease = self.pick(model="qwen")
            self.now += 4.0
            self.finish(lease)

    def wanted(self) -> int:
        return self.dispatcher.view.scale(self.now)["qwen"].wanted

    def note(self) -> str:
        return self.dispatcher.view.wait_note("qwen", self.now)


def test_a_magic_packet_repeats_the_address_sixteen_times() -> None:
    packet = magic_packet("02:00:00:00:00:0a")
    assert packet[:6] == b"\xff" * 6 and packet[6:] == b"\x02\x00\x00\x00\x00\x0a" * 16


def test_a_magic_packet_is_broadcast() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as card:
        card.settimeout(60.0)
        card.bind(("127.255.255.255", 0))
        send_magic_packet(replace(WAKE, broadcast=card.getsockname()))
        assert card.recv(200) == magic_packet(WAKE.mac)


def test_a_machine_that_cannot_be_reached_is_off_and_no_fault() -> None:
    kit = Kit(WAKE)
    kit.fall_off(1)
    assert kit.endpoint().health is Health.OFF
    assert kit.endpoint().issues == ()
    assert why_not_ready(kit.dispatcher) == ()
    health = fleet_health(kit.dispatcher.view)
    assert (health.http_status, health.idle, health.processing) == (200, 0, 2)
    kit.decide()
    assert kit.packets == []
    kit.dispatcher.set_intent(kit.endpoint().address, Intent.DISABLED, kit.now)
    assert why_not_ready(kit.dispatcher)


def test_a_request_wakes_it_and_says_what_it_waits_for() -> None:
    """The second time also for how long: as long as the first time."""
    kit = Kit(WAKE)
    for note in ("waits for gpu-1 to wake", "waits for gpu-1 to wake, about 40 s"):
        kit.fall_off(1)
        ticket = kit.queue(model="qwen")
        kit.decide()
        assert kit.note() == note
        assert kit.endpoint().is_waking
        assert endpoint_message(kit.dispatcher, kit.endpoint(), kit.now).is_waking
        (candidate,) = explain(kit.dispatcher.view, ticket.request).candidates
        assert {"it is off", "its machine is being woken"} <= set(candidate.filtered)
        assert kit.dispatcher.view.waits().reason_of(ticket) is WaitReason.WAKING
        position = kit.dispatcher.view.position_of(ticket, kit.now)
        assert position.expected_s == (40.0 if "about" in note else None)
        kit.now += 40.0
        kit.serve()
        kit.finish(kit.served(ticket))
        kit.decide(0.0)
        assert kit.note() == "" and not kit.endpoint().is_waking
    assert kit.events == ["machine-waking", "machine-woken"] * 2
    assert kit.packets == [WAKE.mac] * 2
    assert kit.sleeping.wakes_s() == {("gpu-1",): 40.0}
    assert kit.sleeping.changes_total() == {("gpu-1", "woken"): 2.0}


def test_a_request_that_names_no_model_wakes_one_too() -> None:
    kit = Kit(WAKE, OTHER)
    kit.fall_off(1, 2)
    kit.queue()
    kit.decide()
    assert kit.packets == [WAKE.mac]
    assert kit.dispatcher.view.wait_note(None, kit.now) == "waits for gpu-1 to wake"


def test_no_more_machines_are_woken_than_servers_are_wanted() -> None:
    """A server that is awake serves; one that waits while all slots are in use wakes another."""
    third = replace(WAKE, mac="02:00:00:00:00:03")
    kit = Kit(None, WAKE, OTHER, third)
    kit.fall_off(2, 3, 4)
    kit.learn()
    kit.pick(model="qwen"), kit.pick(model="qwen")
    kit.decide()
    assert kit.packets == [], "nobody waits"
    for _ in range(20):
        kit.queue(model="qwen")
    kit.decide()
    assert kit.wanted() == 3 and kit.packets == [WAKE.mac, OTHER.mac]
    assert kit.note() == "", "it may be served sooner by the one that is awake"


def test_a_model_that_a_keeper_loads_wakes_no_machine() -> None:
    kit = Kit(WAKE)
    kit.fall_off(1)
    load = ModelLoad(model="qwen", where="gpu-9", ready_at=150.0)
    kit.dispatcher.set_loads({"qwen": load}, {}, kit.now)
    kit.queue(model="qwen")
    kit.decide()
    assert kit.packets == [] and kit.note().startswith("waits for qwen to be loaded at gpu-9")


def test_a_further_machine_is_woken_only_for_requests_that_it_can_serve() -> None:
    kit = Kit(None, WAKE)
    kit.fall_off(2)
    kit.learn()
    kit.pick(model="qwen"), kit.pick(model="qwen")
    for _ in range(20):
        kit.queue(model="qwen", allowed=frozenset({kit.addresses[0]}))
    kit.decide()
    assert kit.wanted() > 1
    assert kit.packets == []


def test_a_machine_with_other_models_is_left_asleep() -> None:
    kit = Kit(WAKE, None)
    kit.fall_off(1)
    kit.scrape(kit.addresses[1], slots=1, busy_slots=1, models=("coder",))
    kit.queue(model="coder")
    kit.decide()
    assert kit.packets == []


def test_a_machine_that_has_not_said_what_it_serves_is_woken_to_find_out() -> None:
    kit = Kit()
    kit.rewire(WAKE)
    kit.fall_off(1)
    kit.queue(model="qwen")
    kit.decide()
    assert kit.packets == [WAKE.mac]


def test_an_operators_intent_is_respected() -> None:
    kit = Kit(WAKE)
    kit.fall_off(1)
    kit.queue(model="qwen")
    kit.dispatcher.set_intent(kit.endpoint().address, Intent.DRAINING, kit.now)
    kit.decide()
    assert kit.packets == []


async def test_a_machine_that_does_not_wake_is_an_issue_and_treated_as_down() -> None:
    kit = Kit(WAKE, OTHER)
    kit.error = OSError(101, "Network is unreachable")
    kit.fall_off(1, 2)
    kit.queue(model="qwen")
    kit.decide()
    kit.decide(WAKE.timeout_s)
    lost = kit.endpoint(1)
    (issue,) = lost.issues
    assert (issue.code, lost.health) == ("does-not-wake", Health.DOWN)
    assert WAKE.mac in issue.message and "1 magic packets to 255.255.255.255:9" in issue.message
    assert issue.message.endswith("could not be sent: Network is unreachable")
    kit.decide()
    assert kit.packets == [WAKE.mac, OTHER.mac], "the other one is woken"
    kit.fall_off(1)
    assert lost.health is Health.DOWN
    kit.serve(1)
    kit.decide()
    assert lost.issues == () and not lost.is_lost


def test_requests_that_no_server_awake_can_have_wake_the_one_that_can() -> None:
    """Here a gateway allows only that one. It is woken for both of them, once."""
    kit = Kit(OTHER, WAKE, None)
    kit.fall_off(1, 2)
    allowed = frozenset({kit.addresses[1]})
    kit.queue(model="qwen", allowed=allowed), kit.queue(allowed=allowed)
    kit.decide()
    assert kit.packets == [WAKE.mac]


async def test_an_idle_machine_is_put_to_sleep_and_gets_no_request_meanwhile() -> None:
    kit = Kit(WAKE)
    kit.decide()
    kit.finish(kit.pick(model="qwen"))
    kit.decide(WAKE.after_idle_s - 1.0)
    assert kit.endpoint().is_pickable
    kit.decide(1.0)
    assert kit.events == ["machine-going-off"]
    ticket = kit.queue(model="qwen")
    assert endpoint_message(kit.dispatcher, kit.endpoint(), kit.now).is_going_off
    (candidate,) = explain(kit.dispatcher.view, ticket.request).candidates
    assert candidate.filtered == ("its machine is being put to sleep",)
    kit.decide()
    assert why_not_ready(kit.dispatcher) == ()
    assert fleet_health(kit.dispatcher.view).http_status == 200
    assert kit.note() == "waits for gpu-1 to wake"
    assert kit.dispatcher.view.waits().reason_of(ticket) is WaitReason.WAKING
    kit.scrape(kit.endpoint().address, status=ScrapeStatus.FAILED)
    assert kit.endpoint().health is Health.OFF, "one failure is enough"
    kit.decide()
    kit.decide()
    assert kit.events == ["machine-going-off", "machine-asleep", "machine-waking"]
    kit.serve()
    assert kit.served(ticket).address == kit.endpoint().address
    await kit.sleeping.aclose()


async def test_all_endpoints_of_a_machine_sleep_together() -> None:
    """As long as one is in use, or an operator has drained it, none does."""
    kit = Kit(WAKE, WAKE)
    kit.decide()
    lease = kit.pick(model="qwen")
    kit.decide(1000.0)
    kit.finish(lease)
    kit.dispatcher.set_intent(kit.addresses[1], Intent.DRAINING, kit.now)
    kit.decide(1000.0)
    assert kit.events == []
    kit.dispatcher.set_intent(kit.addresses[1], Intent.ACTIVE, kit.now)
    kit.decide(WAKE.after_idle_s)
    assert [kit.endpoint(number).is_going_off for number in (1, 2)] == [True, True]
    await kit.sleeping.aclose()


def test_a_server_that_loads_its_model_keeps_its_machine_awake() -> None:
    kit = Kit(WAKE)
    kit.decide()
    kit.scrape(kit.endpoint().address, status=ScrapeStatus.LOADING)
    kit.decide(1000.0)
    assert kit.events == []


def test_a_request_that_waits_keeps_its_machine_awake() -> None:
    """Its slots are idle, and Envoy does not know it yet."""
    kit = Kit(WAKE)
    kit.decide()
    kit.dispatcher.set_routable(kit.endpoint().address, False, kit.now)
    kit.queue(model="qwen")
    kit.decide(1000.0)
    assert kit.events == []


async def test_foreign_requests_keep_a_machine_awake() -> None:
    kit = Kit(WAKE)
    kit.decide()
    kit.scrape(kit.endpoint().address, slots=2, busy_slots=1, models=("qwen",))
    kit.decide(1000.0)
    assert kit.events == []


async def test_the_least_servers_stay_awake() -> None:
    kit = Kit(WAKE, OTHER)
    scale = ScaleOptions(models={"qwen": ServerBounds(min_servers=1)})
    kit.dispatcher.renew(replace(kit.dispatcher.options, scale=scale), kit.now)
    kit.fall_off(2)
    kit.decide()
    kit.decide(1000.0)
    assert kit.events == []
    kit.fall_off(1)
    kit.decide()
    assert kit.packets == [WAKE.mac], "without any request"


async def test_a_command_that_fails_is_an_issue_and_the_machine_serves_on() -> None:
    kit = Kit(replace(WAKE, sleep_command=(sys.executable, "-c", "raise SystemExit(3)")))
    kit.decide()
    kit.decide(WAKE.after_idle_s)
    assert not kit.endpoint().is_pickable
    await until(lambda: kit.endpoint().is_pickable)
    (issue,) = kit.endpoint().issues
    assert issue.code == "does-not-sleep" and issue.message.endswith("exit status 3")
    assert kit.sleeping.changes_total() == {("gpu-1", "not-put-to-sleep"): 1.0}


async def test_a_command_that_cannot_be_run_at_all_costs_no_slot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not even by a bug: the machine serves on, and its next sleep is not held up."""

    async def fail(*_: object) -> str:
        raise RuntimeError

    monkeypatch.setattr("extproc.app.sleeping_machines.run_program", fail)
    kit = Kit(WAKE)
    kit.decide()
    for _ in range(2):
        kit.decide(WAKE.after_idle_s)
        assert not kit.endpoint().is_pickable
        await until(lambda: kit.endpoint().is_pickable)
        assert kit.endpoint().issues[0].code == "does-not-sleep"


async def test_a_machine_that_still_answers_serves_on() -> None:
    kit = Kit(WAKE)
    kit.decide()
    kit.decide(WAKE.after_idle_s)
    ticket = kit.queue(model="qwen")
    commands = [one for one in asyncio.all_tasks() if one.get_name() == "put gpu-1 to sleep"]
    await asyncio.gather(*commands)
    kit.decide(59.0)
    assert kit.is_waiting(ticket)
    kit.decide(1.0)
    assert kit.endpoint().issues[0].code == "does-not-sleep"
    assert not kit.is_waiting(ticket)


async def test_an_endpoint_without_wake_any_more_is_an_ordinary_one() -> None:
    kit = Kit(WAKE)
    kit.decide()
    kit.decide(WAKE.after_idle_s)
    kit.rewire(None)
    kit.decide()
    assert kit.endpoint().is_pickable
    await kit.sleeping.aclose()
    kit.fall_off(1)
    assert kit.endpoint().health is Health.DOWN


def test_a_machine_that_is_on_without_its_server_is_down() -> None:
    """It has crashed: the connection is refused for longer than a wake takes."""
    kit = Kit(WAKE)
    kit.decide()
    kit.refuse(1)
    kit.decide()
    assert kit.endpoint().health is Health.OFF, "perhaps it is being switched off"
    kit.decide(WAKE.timeout_s)
    assert kit.endpoint().health is Health.DOWN
    (issue,) = kit.endpoint().issues
    assert issue.code == "does-not-serve" and "is on, and no server" in issue.message
    assert why_not_ready(kit.dispatcher)
    kit.refuse(1)
    assert kit.endpoint().health is Health.DOWN
    kit.serve(1)
    kit.decide()
    assert kit.endpoint().health is Health.READY and kit.endpoint().issues == ()


def test_a_machine_that_was_on_without_its_server_is_off_as_soon_as_it_is() -> None:
    """And is woken at once, as it did not fail to wake."""
    kit = Kit(WAKE)
    kit.refuse(1)
    kit.queue(model="qwen")
    kit.decide()
    kit.decide(WAKE.timeout_s)
    (issue,) = kit.endpoint().issues
    assert issue.code == "does-not-serve", "no packet can help"
    kit.fall_off(1)
    kit.decide()
    assert kit.endpoint().issues == ()
    kit.fall_off(1)
    assert kit.endpoint().health is Health.OFF
    assert kit.packets == [WAKE.mac] * 2


async def test_a_machine_that_was_put_to_sleep_may_refuse_connections() -> None:
    """Its command stopped the server alone."""
    kit = Kit(WAKE)
    kit.decide()
    kit.decide(WAKE.after_idle_s)
    kit.refuse(1)
    kit.decide()
    assert kit.events[-1] == "machine-asleep"
    kit.decide(2 * WAKE.timeout_s)
    kit.refuse(1)
    kit.decide()
    assert kit.endpoint().health is Health.OFF and kit.endpoint().issues == ()
    await kit.sleeping.aclose()


def test_a_server_that_crashed_beside_another_on_its_machine_is_down() -> None:
    kit = Kit(WAKE, WAKE)
    kit.decide()
    kit.fall_off(2)
    kit.decide()
    kit.decide(WAKE.timeout_s)
    assert [kit.endpoint(one).health for one in (1, 2)] == [Health.READY, Health.DOWN]
    assert kit.endpoint(2).issues[0].code == "does-not-serve"
    kit.serve(2)
    kit.decide()
    assert kit.endpoint(2).issues == ()


def test_options_that_were_corrected_are_tried_at_once() -> None:
    kit = Kit(WAKE)
    kit.fall_off(1)
    kit.queue(model="qwen")
    kit.decide()
    kit.decide(WAKE.timeout_s)
    assert kit.endpoint().issues[0].code == "does-not-wake"
    kit.rewire(replace(WAKE, broadcast=("192.168.1.255", 9)))
    kit.decide()
    assert kit.endpoint().issues == () and kit.packets == [WAKE.mac] * 2


async def test_an_endpoint_that_moves_to_another_machine_takes_no_sleep_along() -> None:
    """The settings gave it the wrong MAC address, and its machine was going off."""
    kit = Kit(WAKE, WAKE)
    kit.decide()
    kit.decide(WAKE.after_idle_s)
    assert not kit.endpoint(2).is_pickable
    kit.rewire(WAKE, OTHER)
    kit.decide()
    assert [kit.endpoint(one).is_going_off for one in (1, 2)] == [True, False]
    kit.rewire(WAKE, None)
    kit.decide()
    assert kit.endpoint(2).is_pickable
    await kit.sleeping.aclose()


async def test_an_endpoint_that_joins_a_machine_that_goes_off_gets_no_request() -> None:
    kit = Kit(WAKE)
    kit.decide()
    kit.decide(WAKE.after_idle_s)
    kit.rewire(WAKE, WAKE)
    kit.serve(2)
    kit.decide()
    assert not kit.endpoint(2).is_pickable
    await kit.sleeping.aclose()


async def test_a_machine_that_has_left_the_fleet_is_forgotten() -> None:
    """While it went off; one that comes back is another."""
    kit = Kit(WAKE)
    kit.decide()
    kit.decide(WAKE.after_idle_s)
    kit.rewire()
    kit.decide()
    kit.rewire(WAKE)
    kit.serve(1)
    kit.decide()
    assert kit.endpoint().is_pickable
    await kit.sleeping.aclose()


# Machines with a keeper


def health_of(endpoint: Endpoint) -> str:
    """By a call, as it changes between two looks."""
    return endpoint.health.value


class KeptKit(SteeredFleet):
    """Machines with a keeper, of which each can have one of its models loaded, and which sleep by
    `OTHER` and `WAKE`; `gpu-1` is `WAKE`'s. Nothing is sent."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.packets: list[str] = []
        self.events: list[str] = []
        self.wanted: dict[str, tuple[str, ...]] = {}
        self.placement = Placement(
            self.dispatcher, self._want, lambda: self.now, PlacementOptions()
        )
        self.sleeping = SleepingMachines(
            self.dispatcher,
            lambda: self.now,
            sleepers=self.placement.sleepers,
            slept=self.placement.slept,
            send=lambda options: self.packets.append(options.mac),
        )
        self.sleeping.on_event = lambda kind, *_: self.events.append(kind)
        self.may_sleep(*names)

    def _want(self, machine: str, models: Iterable[str], *_: object) -> None:
        self.wanted[machine] = tuple(models)

    def may_sleep(self, *names: str) -> None:
        options = dict(zip(names, (WAKE, OTHER), strict=False))
        self.dispatcher.renew(replace(self.dispatcher.options, machines=options), self.now)

    def use_pools(self, machines: dict[str, str]) -> None:
        """Two pools, and which machines are not in the default one."""
        before = self.dispatcher.options
        pools = dict.fromkeys(("chat", "batch"), before.resolver)
        resolver = ResolverOptions(pools=pools, default_pool="chat", machine_pools=machines)
        self.dispatcher.renew(replace(before, resolver=resolver), self.now)

    async def attach(self, name: str = "gpu-1", *models: str) -> KeptMachine:
        """Its keeper attaches, with nothing loaded."""
        one = machine(name, 10, **dict.fromkeys(models or ("a", "b"), 10))
        one.models = {
            model.name: replace(model, address=Address(f"10.0.{name[-1]}.1", model.address.port))
            for model in one.models.values()
        }
        self.placement.changed(one)
        return one

    def fall_off(self, one: KeptMachine) -> None:
        """Its keeper is gone, and so is what it had loaded."""
        one.is_connected = False
        self.placement.changed(one)
        for model in one.models.values():
            if model.address in self.dispatcher.fleet:
                self.scrape(model.address, status=ScrapeStatus.UNREACHABLE)

    def load(self, one: KeptMachine, model: str, pool: str = "") -> Endpoint:
        """What the placement wants there is loaded."""
        set_state(one, model, KeptState.LOADED, self.now, load_s=2.0)
        address = one.models[model].address
        name = f"{one.name}.{model}"
        spec = EndpointSpec(address=address, name=name, is_reported=True, pool=pool)
        self.dispatcher.set_members("agents", [spec], self.now)
        self.scrape(address, slots=1, busy_slots=0, models=(model,))
        endpoint = self.dispatcher.fleet.get(address)
        assert endpoint is not None
        return endpoint

    def decide(self, later_s: float = 1.0) -> None:
        self.now += later_s
        self.sleeping.decide(self.now)
        self.placement.decide(self.now)

    def note(self, model: str | None = "a") -> str:
        return self.dispatcher.view.wait_note(model, self.now)


async def test_a_request_wakes_the_machine_of_a_keeper_which_then_loads_its_model() -> None:
    """What was loaded there before is not loaded again by itself. The second time the wake takes as
    long as the first."""
    kit = KeptKit("gpu-1")
    one = await kit.attach()
    kit.decide()
    for model, note in (("b", "waits for gpu-1 to wake"), ("a", "waits for gpu-1 to wake, about ")):
        kit.fall_off(one)
        kit.decide()
        assert (one.power, why_not_ready(kit.dispatcher)) == (Power.OFF, ())
        ticket = kit.queue(model=model)
        kit.decide()
        assert kit.note(model).startswith(note) and one.power is Power.WAKING
        kit.now += 30.0
        one = await kit.attach()
        kit.decide()
        assert kit.wanted["gpu-1"] == (model,)
        assert kit.note(model).startswith(f"waits for {model} to be loaded at gpu-1")
        kit.load(one, model)
        kit.finish(kit.served(ticket))
    assert kit.packets == [WAKE.mac] * 2
    assert kit.sleeping.wakes_s() == {("gpu-1",): 31.0}


async def test_requests_for_a_pool_wake_the_machine_of_a_keeper_of_that_pool() -> None:
    """Which loads their model, and not the machine of another pool that could. A reload moves a
    machine to another pool."""
    kit = KeptKit("gpu-1", "gpu-2")
    kit.use_pools({"gpu-2": "batch"})
    one, two = await kit.attach("gpu-1"), await kit.attach("gpu-2")
    kit.decide()
    for each in (one, two):
        kit.fall_off(each)
    kit.decide()
    ticket = kit.queue(model="a", pool="batch")
    kit.decide()
    assert kit.packets == [OTHER.mac]
    assert (one.power, two.power) == (Power.OFF, Power.WAKING)
    view = kit.dispatcher.view
    assert view.wait_note("a", kit.now, "batch").startswith("waits for gpu-2 to wake")
    assert not view.wait_note("a", kit.now, "chat")
    kit.now += 30.0
    one, two = await kit.attach("gpu-1"), await kit.attach("gpu-2")
    kit.decide()
    assert kit.wanted == {"gpu-1": (), "gpu-2": ("a",)}
    kit.load(two, "a", pool="batch")
    kit.finish(kit.served(ticket))

    kit.queue(model="b", pool="chat")
    kit.decide()
    assert kit.wanted == {"gpu-1": ("b",), "gpu-2": ("a",)}
    kit.use_pools({})
    kit.queue(model="a", pool="chat")
    assert kit.dispatcher.resolver.of_pool("batch").names.loadable == {}
    kit.placement.load(one, "b", is_pinned=False)
    with pytest.raises(PlacementError):
        kit.placement.load(replace(one, is_connected=False), "a", is_pinned=False)


async def test_a_machine_whose_keeper_never_attached_is_woken_to_find_out() -> None:
    kit = KeptKit("gpu-1", "gpu-2")
    kit.decide()
    assert why_not_ready(kit.dispatcher) == ()
    assert [one.power for one in kit.placement.machines.values()] == [Power.OFF, Power.OFF]
    scaled = {"a": ModelReading(name="a", is_loaded=False)}
    kit.dispatcher.set_loadable("scale.models", scaled, kit.now)
    ticket = kit.queue(model="a")
    kit.decide()
    assert kit.packets == [WAKE.mac]
    note = kit.dispatcher.view.queue_note(ticket.resolved, ticket.request, kit.now)
    assert note == "waits for gpu-1 to wake"
    await kit.attach("gpu-1", "b")
    kit.decide()
    kit.decide()
    assert kit.packets == [WAKE.mac, OTHER.mac], "it has not what is asked for"
    kit.may_sleep()
    kit.decide()
    assert list(kit.placement.machines) == ["gpu-1"]


async def test_a_machine_is_not_woken_while_another_can_load_the_model() -> None:
    """Until it has not done so for a while, as others have work there."""
    kit = KeptKit("gpu-1")
    kit.fall_off(await kit.attach("gpu-1", "b"))
    awake = await kit.attach("gpu-2", "a", "b")
    kit.decide()
    kit.queue(model="a")
    kit.decide()
    assert kit.wanted["gpu-2"] == ("a",) and kit.packets == []
    kit.load(awake, "a")
    for _ in range(2):
        kit.queue(model="a")
    kit.queue(model="b")
    kit.decide()
    assert kit.wanted["gpu-2"] == ("a",) and kit.packets == []
    assert kit.note("b") == "waits for b to be loaded at gpu-2 when others leave memory for it"
    kit.decide(PLACED_S)
    assert kit.packets == [WAKE.mac]


async def test_a_request_that_names_no_model_wakes_the_machine_of_a_keeper() -> None:
    kit = KeptKit("gpu-1")
    kit.fall_off(await kit.attach())
    kit.decide()
    kit.queue()
    kit.decide()
    assert kit.packets == [WAKE.mac] and kit.note(None) == "waits for gpu-1 to wake"


async def test_what_a_keeper_cannot_serve_does_not_wake_its_machine() -> None:
    """Here a gateway allows other endpoints only."""
    kit = KeptKit("gpu-1")
    kit.fall_off(await kit.attach())
    busy = kit.add(1, models=("a",))
    kit.scrape(busy, slots=1, busy_slots=1, models=("a",))
    kit.decide()
    for _ in range(20):
        kit.queue(model="a", allowed=frozenset({busy}))
    kit.decide()
    assert kit.packets == []


async def test_an_idle_machine_of_a_keeper_is_put_to_sleep() -> None:
    """Meanwhile it gets no request, and nothing is loaded there."""
    kit = KeptKit("gpu-1")
    one = await kit.attach()
    kit.decide()
    ticket = kit.queue(model="a")
    kit.decide()
    endpoint = kit.load(one, "a")
    kit.decide()
    kit.decide(1000.0)
    kit.finish(kit.served(ticket))
    kit.decide(WAKE.after_idle_s - 1.0)
    assert kit.events == []
    kit.decide(1.0)
    assert kit.events == ["machine-going-off"] and not endpoint.is_pickable
    kit.queue(model="b")
    kit.decide()
    assert kit.wanted["gpu-1"] == ("a",), "b is not loaded any more"
    with pytest.raises(PlacementError, match="is being put to sleep"):
        kit.placement.load(one, "b", is_pinned=False)
    kit.fall_off(one)
    assert endpoint.health is Health.OFF and endpoint.issues == ()
    kit.decide()
    assert kit.events == ["machine-going-off", "machine-asleep"]
    kit.decide()
    assert kit.packets == [WAKE.mac], "for the request that came meanwhile"
    await kit.sleeping.aclose()


async def test_a_machine_whose_connection_broke_meanwhile_still_loads_nothing() -> None:
    kit = KeptKit("gpu-1")
    await kit.attach()
    kit.decide()
    kit.decide(WAKE.after_idle_s)
    one = await kit.attach()
    assert one.power is Power.GOING_OFF and not one.takes_loads
    await kit.sleeping.aclose()


async def test_what_a_keeper_does_keeps_its_machine_awake() -> None:
    kit = KeptKit("gpu-1")
    one = await kit.attach()
    kit.decide()
    set_state(one, "a", KeptState.LOADING, kit.now)
    kit.decide(1000.0)
    set_state(one, "a", KeptState.UNLOADED, kit.now)
    kit.placement.load(one, "a", is_pinned=True)
    kit.decide(1000.0)
    assert kit.events == []


async def test_a_server_of_a_keeper_is_off_only_while_its_machine_is_not_awake() -> None:
    """Also where its end was seen before that of its machine."""
    kit = KeptKit("gpu-1")
    one = await kit.attach()
    kit.decide()
    endpoint = kit.load(one, "a")
    kit.scrape(endpoint.address, status=ScrapeStatus.UNREACHABLE)
    kit.decide()
    assert health_of(endpoint) == "down"
    kit.fall_off(one)
    kit.decide()
    assert health_of(endpoint) == "off"
    kit.may_sleep()
    kit.decide()
    assert health_of(endpoint) == "down"


async def test_the_machine_of_a_keeper_that_does_not_wake_is_a_problem() -> None:
    kit = KeptKit("gpu-1")
    kit.fall_off(await kit.attach())
    kit.decide()
    kit.queue(model="a")
    kit.decide()
    kit.decide(WAKE.timeout_s)
    (problem,) = kit.sleeping.problems()
    assert problem.startswith("gpu-1: its machine 02:00:00:00:00:01 did not answer within 120 s")
    assert kit.events == ["machine-waking", "issue"]
    await kit.attach()
    kit.decide()
    assert kit.sleeping.problems() == ()


async def test_servers_and_the_keeper_of_one_machine_sleep_together() -> None:
    kit = KeptKit("gpu-1")
    plain = EndpointSpec(address=Address("10.0.0.9", 8080), name="plain", wake=WAKE)
    kit.dispatcher.set_members("test", [plain], kit.now)
    kit.scrape(plain.address, slots=1, busy_slots=0, models=("c",))
    one = await kit.attach()
    kit.decide()
    lease = kit.pick(model="c")
    kit.decide(1000.0)
    assert kit.events == []
    kit.finish(lease)
    kit.decide(WAKE.after_idle_s)
    assert kit.events == ["machine-going-off"] and one.power is Power.GOING_OFF
    await kit.sleeping.aclose()
