"""Wakes machines with magic packets when requests wait for them, and puts idle ones to sleep.

The state is in the core: an endpoint whose machine goes off gets no request from the decision on,
in the same turn of the event loop.
"""

import logging
import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from extproc.app.program import ProgramRuns, run_program
from extproc.core.address import Address
from extproc.core.fleet.endpoint import Endpoint, WakeOptions
from extproc.core.observation import Issue
from extproc.core.placement.machine import Power
from extproc.core.scaling.machine_power import Action, MachinePower, Seen
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.core.views.wake_advisor import SleepingKeeper, SleepingMachine

COMMAND_S: Final = 60.0
"""The longest run of a sleep command."""
CHANGES: Final = {
    Action.WOKEN: "woken",
    Action.LOST: "not-woken",
    Action.ASLEEP: "put-to-sleep",
    Action.STAYED: "not-put-to-sleep",
}
NO_SERVER = "does-not-serve"
STILL_AWAKE: Final = "it still answers a minute after wake.sleep_command"

Sleepers = Callable[[Mapping[str, WakeOptions]], Sequence[SleepingKeeper]]

log = logging.getLogger("coxswain.wake")


def magic_packet(mac: str) -> bytes:
    """What wakes the network card with that address, six pairs of digits with colons."""
    return b"\xff" * 6 + bytes.fromhex(mac.replace(":", "")) * 16


def send_magic_packet(options: WakeOptions) -> None:
    """Broadcast one. Does not block. Raises `OSError` where the network takes none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        sender.sendto(magic_packet(options.mac), options.broadcast)


class SleepingMachines(ProgramRuns):
    """Only the picker that leads has one that was started."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        clock: Callable[[], float],
        *,
        sleepers: Sleepers = lambda _: (),
        slept: Callable[[str], None] = lambda _: None,
        send: Callable[[WakeOptions], None] = send_magic_packet,
    ) -> None:
        """`sleepers` returns the machines with a keeper of these names, and `slept` is called with
        each that is off."""
        super().__init__("following the machines that sleep", log)
        self._sleepers = sleepers
        self._slept = slept
        self._dispatcher = dispatcher
        self._clock = clock
        self._send = send
        self.on_event: Callable[[str, str, SleepingMachine], None] = lambda *_: None
        """Called with the kind and the text of what happened to a machine."""
        self._powers: dict[str, MachinePower] = {}
        self._machines: dict[str, SleepingMachine] = {}
        self._unserved_since: dict[Address, float] = {}
        """Since when these endpoints do not answer although their machines are on."""
        self._send_errors: dict[str, str] = {}
        """Why the last packet for a MAC address could not be sent."""
        self._issues: dict[str, str] = {}
        """What is wrong with machines of keepers, by MAC address: they may have no endpoint."""
        self._commands: set[str] = set()
        """The MAC addresses of machines whose sleep command runs."""
        self._changes: Counter[tuple[str, ...]] = Counter()

    def changes_total(self) -> dict[tuple[str, ...], float]:
        """What became of machines since the start, by machine and one of `CHANGES`."""
        return {key: float(count) for key, count in self._changes.items()}

    def wakes_s(self) -> dict[tuple[str, ...], float]:
        """By machine: what its last wake took."""
        return {
            (self._machines[mac].name,): power.last_wake_s
            for mac, power in self._powers.items()
            if power.last_wake_s is not None
        }

    def problems(self) -> tuple[str, ...]:
        """The machines with a keeper that do not wake or sleep, as sentences."""
        return tuple(self._issues.values())

    # Deciding

    def check(self) -> None:
        """Decide now."""
        self.decide(self._clock())

    def decide(self, now: float) -> None:
        """Decide once for each machine, and begin what is to be done."""
        dispatcher = self._dispatcher
        kept = self._sleepers(dispatcher.options.machines)
        advisor = dispatcher.view.wake_advisor(now, kept)
        before = self._machines
        self._machines = {} if advisor is None else advisor.machines()
        for mac in before.keys() - self._machines.keys():
            del self._powers[mac]
            self._release(before[mac], None, now)
        for mac in before.keys() & self._machines.keys():
            self._follow_changes(mac, before[mac], now)
        if advisor is None:
            if before:
                dispatcher.set_wakes({})
                dispatcher.set_keepers_off(())
            return
        powers = self._powers = {
            mac: self._powers.get(mac) or MachinePower() for mac in self._machines
        }
        for mac, machine in self._machines.items():
            self._find_unserved(machine, powers[mac], now)
        asleep = [mac for mac, power in powers.items() if self._may_wake(mac, power, now)]
        asleep.sort(key=lambda mac: powers[mac].failed_wakes)
        wanted = advisor.wanted(asleep, self._waking())
        for mac, machine in self._machines.items():
            seen = Seen(
                machine.is_serving,
                machine.is_answering,
                mac in wanted,
                machine.is_busy or mac in self._commands,
                machine.used_at,
            )
            action = powers[mac].step(seen, machine.options, now)
            if action is not None:
                self._act(mac, action, now)
            self._show_power(mac, now)
        hoped = {mac: power for mac, power in self._waking().items() if not power.failed_wakes}
        ready_at = {mac: power.ready_at() for mac, power in hoped.items()}
        # Requests wait for these until they are off and wake again, or stay awake.
        going = (mac for mac, one in self._powers.items() if one.state is Power.GOING_OFF)
        ready_at |= dict.fromkeys(going)
        dispatcher.set_wakes(
            advisor.wakes(ready_at, now), can_wake_keepers=any(map(self._can_wake_keeper, powers))
        )
        machines = [one.machine for one in kept if one.machine.power is not Power.AWAKE]
        dispatcher.set_keepers_off(
            {model.address for one in machines for model in one.models.values()}
        )

    def _can_wake_keeper(self, mac: str) -> bool:
        """Whether a machine with a keeper is off, as far as is known not for good."""
        power = self._powers[mac]
        is_off = power.state in (Power.OFF, Power.WAKING) and not power.failed_wakes
        return is_off and bool(self._machines[mac].keepers)

    def _follow_changes(self, mac: str, before: SleepingMachine, now: float) -> None:
        """Its settings may have changed since the last decision."""
        machine, power = self._machines[mac], self._powers[mac]
        left = [one for one in before.endpoints if one not in machine.endpoints]
        if left:
            self._release(replace(before, endpoints=tuple(left), keepers=()), None, now)
        if machine.options != before.options:
            power.retry()
            self._set_issue(machine, None)

    def _find_unserved(self, machine: SleepingMachine, power: MachinePower, now: float) -> None:
        """Endpoints that do not answer while their machine is on are not off but down, if that
        lasts for longer than the machine takes to wake."""
        for one in machine.endpoints:
            if one.spec.wake is None:
                continue  # a keeper's: it comes and goes with its model
            is_on = one.is_machine_on or machine.is_answering
            is_ours = one.wake_issue is not None and one.wake_issue.code == NO_SERVER
            if is_on and power.is_watched and not one.is_answering:
                since = self._unserved_since.setdefault(one.address, now)
                if now - since >= machine.options.timeout_s and not is_ours:
                    self._set_issue(machine, _no_server(machine.options), is_lost=True, only=one)
                continue
            self._unserved_since.pop(one.address, None)
            if is_ours and not is_on:
                power.retry()
            if is_ours and power.is_watched:
                self._set_issue(machine, None, only=one)

    def _may_wake(self, mac: str, power: MachinePower, now: float) -> bool:
        """Whether it is off, or was seen to be just now, and may be woken."""
        is_off = power.may_wake(now) or power.state is Power.AWAKE
        return is_off and not self._machines[mac].is_answering

    def _show_power(self, mac: str, now: float) -> None:
        """Let nobody pick its endpoints, and no keeper load models, while it is put to sleep."""
        machine, power = self._machines[mac], self._powers[mac].state
        self._set_power(machine, power, now)
        for keeper in machine.keepers:
            keeper.power = power
            if not keeper.is_connected and keeper.power in (Power.OFF, Power.WAKING):
                self._slept(keeper.name)

    def _waking(self) -> dict[str, MachinePower]:
        return {mac: one for mac, one in self._powers.items() if one.state is Power.WAKING}

    def _act(self, mac: str, action: Action, now: float, problem: str = STILL_AWAKE) -> None:
        """Do it, or show what has come about; `problem` is why a machine stays awake."""
        machine, power = self._machines[mac], self._powers[mac]
        if action in CHANGES:
            self._changes[machine.name, CHANGES[action]] += 1
        match action:
            case Action.WAKE:
                self._event(machine, "machine-waking", "requests wait for it: it is being woken")
                self._send_packet(mac)
            case Action.SEND:
                self._send_packet(mac)
            case Action.WOKEN:
                self._set_issue(machine, None)
                text = f"it served {power.last_wake_s:.1f} s after the first magic packet"
                self._event(machine, "machine-woken", text)
            case Action.RETURNED:
                self._set_issue(machine, None)
            case Action.LOST:
                is_on = any(one.is_machine_on for one in machine.endpoints)
                issue = _no_server(machine.options) if is_on else self._not_woken(mac)
                self._set_issue(machine, issue, is_lost=True)
            case Action.SLEEP:
                text = f"it had no request for {machine.options.after_idle_s:g} s"
                self._event(machine, "machine-going-off", f"{text}: it is being put to sleep")
                self._commands.add(mac)
                self._begin(self._run(mac, machine), f"put {machine.name} to sleep")
            case Action.ASLEEP:
                self._release(machine, None, now)
                self._event(machine, "machine-asleep", "it was put to sleep")
            case Action.STAYED:
                self._release(machine, _not_asleep(problem), now)

    async def _run(self, mac: str, machine: SleepingMachine) -> None:
        name = f"wake.sleep_command of {machine.name}"
        try:
            problem = await run_program(machine.options.sleep_command, COMMAND_S, name, log)
        except Exception:
            log.exception("%s failed", name)
            problem = "an internal error, see the log"
        finally:
            self._commands.discard(mac)
        now, power = self._clock(), self._powers.get(mac)
        action = None if power is None else power.command_ended(now, is_done=not problem)
        if action is not None:
            self._act(mac, action, now, f"wake.sleep_command: {problem}")
            self._show_power(mac, now)

    def _release(self, machine: SleepingMachine, issue: Issue | None, now: float) -> None:
        """It is not being put to sleep any more."""
        for one in machine.endpoints:
            self._unserved_since.pop(one.address, None)
        self._set_issue(machine, issue)
        self._set_power(machine, Power.AWAKE, now)

    def _send_packet(self, mac: str) -> None:
        self._send_errors.pop(mac, None)
        try:
            self._send(self._machines[mac].options)
        except OSError as error:
            self._send_errors[mac] = f"; the last could not be sent: {error.strerror}"

    def _not_woken(self, mac: str) -> Issue:
        options, packets = self._machines[mac].options, self._powers[mac].packets
        return Issue(
            code="does-not-wake",
            message=f"its machine {mac} did not answer within {options.timeout_s:g} s of {packets} "
            f"magic packets to {options.broadcast[0]}:{options.broadcast[1]}"
            + self._send_errors.get(mac, ""),
            remedy="check wake.mac and wake.broadcast, that its network card wakes it "
            "(`ethtool DEVICE`: Wake-on: g), and that its server starts with it",
        )

    def _set_issue(
        self,
        machine: SleepingMachine,
        issue: Issue | None,
        *,
        is_lost: bool = False,
        only: Endpoint | None = None,
    ) -> None:
        """For all endpoints of the machine, or for one of them."""
        name = machine.name if only is None else self._dispatcher.fleet.name_of(only.address)
        if only is None and machine.keepers:
            self._issues.pop(machine.options.mac, None)
        if issue is not None:
            log.warning("machine of %s: %s", name, issue)
            if machine.keepers and only is None:
                self._issues[machine.options.mac] = f"{machine.name}: {issue.message}"
                self.on_event("issue", f"{issue.code}: {issue.message}", machine)
        addresses = [one.address for one in (machine.endpoints if only is None else (only,))]
        self._dispatcher.set_wake_issue(addresses, issue, is_lost=is_lost)

    def _set_power(self, machine: SleepingMachine, power: Power, now: float) -> None:
        self._dispatcher.set_power([one.address for one in machine.endpoints], power, now)

    def _event(self, machine: SleepingMachine, kind: str, text: str) -> None:
        log.info("machine of %s: %s: %s", machine.name, kind, text)
        self.on_event(kind, text, machine)


def _no_server(options: WakeOptions) -> Issue:
    return Issue(
        code=NO_SERVER,
        message=f"its machine {options.mac} is on, and no server has answered there for "
        f"{options.timeout_s:g} s",
        remedy="start the server there, and let it start with the machine",
    )


def _not_asleep(problem: str) -> Issue:
    return Issue(
        code="does-not-sleep",
        message=f"its machine was to be put to sleep, and serves on: {problem}",
        remedy="run the command by hand; the log has what it printed",
    )
