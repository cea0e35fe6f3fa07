"""How fast requests with bodies pass, and what each costs: no server takes any time here.

Envoy alone, Coxswain and the pickers that the user named take turns, round by round, in front of
the same stand-ins: what ran within seconds can be compared on a busy machine, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bench import load
from bench.compare.cells import Server
from bench.compare.proxy import Proxy
from bench.compare.rivals import OURS, PLAIN, Rival
from bench.result import Say
from bench.rig import Rig
from bench.rounds import CONNECTIONS, Contender, take_turns
from extproc.demo.process import until

SIZES: Final = {"1 KB": 1_000, "4 KB": 4_000, "220 KB": 220_000}
SERVERS, SLOTS = 2, 256
ROUNDS, ROUND_S = 7, 2.0
SERVED_S: Final = 60.0
BETTER: Final = 1.05

HEAD: Final = f"""\
### Rates with bodies

{CONNECTIONS} connections for the rate, one for the latency, through Envoy with one worker, to
{SERVERS} stand-ins of {SLOTS} slots that answer at once; medians of {ROUNDS} rounds of
{ROUND_S:g} s for each in turn. *Coxswain to it* is the ratio of the rates, *added* the latency
beyond that of Envoy alone, both round by round. Processor times are for a request; those of a
picker include what it does anyway. *By TLS*: Envoy and the picker speak TLS, which is that picker's
default; otherwise they do not, as with Coxswain.

| body | | requests/s | Coxswain to it | picker's CPU | Envoy's CPU | added median | failed |
|---|---|---:|---:|---:|---:|---:|---:|"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """What one contender did with bodies of one size. `ratio` is Coxswain's rate to its; times are
    microseconds, and None where there is no picker."""

    body: str
    rival: str
    rate: float
    ratio: float
    picker_us: float | None
    envoy_us: float
    added_ms: float
    failures: int
    is_ours: bool

    def row(self) -> str:
        """A row of the table."""
        name = f"**{self.rival}**" if self.is_ours else self.rival
        picker = "" if self.picker_us is None else f"{self.picker_us:.0f} us"
        cells = (
            *(self.body, name, f"{self.rate:.0f}", f"{self.ratio:.2f}", picker),
            *(f"{self.envoy_us:.0f} us", f"{self.added_ms:.2f} ms", str(self.failures)),
        )
        return f"| {' | '.join(cells)} |"


def contenders(rivals: Sequence[Rival]) -> list[Rival]:
    """Those that are compared: none without a picker that the user named, Envoy alone or
    Coxswain."""
    pickers = [one for one in rivals if one.needs_kubelet and not one.missing]
    others = [one for one in rivals if one.name in (PLAIN, OURS)]
    return [*others, *pickers] if pickers and len(others) == 2 else []


async def play_rates(rivals: Sequence[Rival], say: Say) -> list[Rate]:
    """Measure all of them, with bodies of each size; the first two are Envoy alone and Coxswain,
    in any order."""
    async with Rig() as rig:
        ports = await rig.start_stand_ins(SERVERS, SLOTS)
        servers = dict.fromkeys(ports, Server(slots=SLOTS))
        proxies = {}
        for rival in rivals:
            say(f"rates with bodies: starting {rival.name}")
            proxies[rival] = await rival.start(rig, servers)
            await _until_served(proxies[rival].port)
        found = []
        for body, size in SIZES.items():
            say(f"rates with bodies: {body}")
            playing = [_contender(one, proxy, size) for one, proxy in proxies.items()]
            await take_turns(body, playing, ROUNDS, ROUND_S, _nothing, has_calm=True)
            found += _rates(body, rivals, playing)
    return found


def _contender(rival: Rival, proxy: Proxy, size: int) -> Contender:
    *pickers, envoy = [one.pid for one in proxy.children]
    parts = {"envoy": [envoy], **({"picker": pickers} if pickers else {})}
    return Contender(name=rival.name, port=proxy.port, parts=parts, body_bytes=size)


def _rates(body: str, rivals: Sequence[Rival], playing: Sequence[Contender]) -> list[Rate]:
    by_name = {one.name: one for one in playing}
    plain, ours = by_name[PLAIN], by_name[OURS]
    return [
        Rate(
            body=body,
            rival=rival.name,
            rate=one.rate,
            ratio=ours.rate_to(one),
            picker_us=one.cost_us("picker") if "picker" in one.parts else None,
            envoy_us=one.cost_us("envoy"),
            added_ms=one.added_ms(plain, lambda run: run.p50_ms),
            failures=sum(run.failures for run in (*one.busy, *one.calm)),
            is_ours=rival.is_ours,
        )
        for rival, one in zip(rivals, playing, strict=True)
    ]


async def _until_served(port: int) -> None:
    async def is_served() -> bool:
        try:
            return not (await load.run(port, 1, 0.1, 1_000)).failures
        except (RuntimeError, OSError):
            return False

    await until(is_served)


def section(rates: Sequence[Rate]) -> list[str]:
    """The lines of the section."""
    return [*HEAD.splitlines(), *(one.row() for one in rates), ""] if rates else []


def losses(rates: Sequence[Rate]) -> list[str]:
    """Where a picker is better than Coxswain: an item of a list for each number."""
    found = []
    for body in dict.fromkeys(one.body for one in rates):
        rows = [one for one in rates if one.body == body and one.picker_us is not None]
        ours = next(one for one in rows if one.is_ours)
        for other in (one for one in rows if not one.is_ours):
            found += _losses(f"{body}, {other.rival}", ours, other)
    return found


def _losses(where: str, ours: Rate, other: Rate) -> list[str]:
    found = []
    if other.ratio * BETTER < 1:
        found.append(
            f"- {where}: {other.rate:.0f} requests/s, Coxswain {ours.rate:.0f} "
            f"({other.ratio:.2f} of its, round by round)"
        )
    for name, unit, mine, its in (
        ("processor time of the picker", " us", ours.picker_us, other.picker_us),
        ("processor time of Envoy", " us", ours.envoy_us, other.envoy_us),
        ("added median", " ms", ours.added_ms, other.added_ms),
    ):
        if mine is not None and its is not None and its * BETTER < mine:
            found.append(f"- {where}: {name} {its:.3g}{unit}, Coxswain {mine:.3g}{unit}")
    return found


def _nothing(_: str) -> None:
    """The rounds are not shown one by one."""
