"""Traces of requests whose lengths do, or do not, follow from what the picker can see."""

from dataclasses import dataclass
from random import Random

from bench.simulation.job import Job
from bench.simulation.server import Hardware
from bench.simulation.traces import blocks, lognormal

CHAT, COMPLETION, EMBEDDINGS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
SYSTEM_TOKENS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One kind of requests. Lengths are lognormal; `systems` are the mean answers under each of its
    system prompts, `variation` their coefficient of variation."""

    name: str
    share: float
    path: str
    prompt_tokens: float
    systems: tuple[float, ...]
    variation: float
    max_tokens: int | None = None
    is_embedding: bool = False


SERVICES = (
    Service(name="chat", share=0.4, path=CHAT, prompt_tokens=150, systems=(40, 120), variation=0.8),
    Service(
        name="summaries",
        share=0.2,
        path=CHAT,
        prompt_tokens=4000,
        systems=(200,),
        variation=0.5,
        max_tokens=512,
    ),
    Service(
        name="embeddings",
        share=0.25,
        path=EMBEDDINGS,
        prompt_tokens=400,
        systems=(0,),
        variation=0.5,
        is_embedding=True,
    ),
    Service(
        name="code",
        share=0.15,
        path=f"{CHAT} tools",
        prompt_tokens=1500,
        systems=(400, 1200),
        variation=1.0,
    ),
)
PLAIN = Service(
    name="plain", share=1.0, path=CHAT, prompt_tokens=150, systems=(200,), variation=1.5
)


def _job(random: Random, id_: int, service: Service, systems: list[tuple[int, ...]]) -> Job:
    number = random.randrange(len(service.systems))
    mean = service.systems[number]
    prompt = SYSTEM_TOKENS + int(lognormal(random, service.prompt_tokens, 0.5))
    chain = blocks(systems[number], prompt, random)
    answer = 1 + int(lognormal(random, mean, service.variation)) if mean else 0
    if service.max_tokens is not None:
        answer = min(answer, service.max_tokens)
    return Job(
        id=id_,
        arrived_at=0.0,
        prompt_tokens=prompt,
        answer_tokens=answer,
        blocks=() if service.is_embedding else chain,
        traits=service.path,
        max_tokens=service.max_tokens,
        is_embedding=service.is_embedding,
    )


def with_signal(random: Random, count: int, *, by_objective: bool) -> list[Job]:
    """Requests of all services. They differ in their paths, prompts and bounds and, if
    `by_objective`, also in their objectives, which share the fleet."""
    systems = {service.name: _systems(random, service) for service in SERVICES}
    jobs = []
    for id_ in range(count):
        (service,) = random.choices(SERVICES, [service.share for service in SERVICES])
        job = _job(random, id_, service, systems[service.name])
        job.objective = service.name if by_objective else None
        jobs.append(job)
    return jobs


def without_signal(random: Random, count: int) -> list[Job]:
    """Requests of many paths, prompts and bounds, none of which says anything of their answers."""
    systems = [_systems(random, PLAIN)[0] for _ in range(8)]
    jobs = []
    for id_ in range(count):
        job = _job(random, id_, PLAIN, [random.choice(systems)])
        job.traits = random.choice((CHAT, COMPLETION, f"{CHAT} tools"))
        job.max_tokens = random.choice((None, 16384, 65536))
        jobs.append(job)
    return jobs


LIAR = "liar"


def with_liar(random: Random, count: int, *, is_lying: bool) -> list[Job]:
    """Four tenants with equal work: chats and code. Half of the code of one of them is marked and,
    if `is_lying`, sent with `max_tokens: 1` in a way that its servers ignore."""
    systems = {service.name: _systems(random, service) for service in SERVICES}
    chat, code = SERVICES[0], SERVICES[3]
    jobs = []
    for id_ in range(count):
        service = random.choices((chat, code), (0.7, 0.3))[0]
        job = _job(random, id_, service, systems[service.name])
        job.tenant = random.choice((LIAR, "b", "c", "d"))
        if random.random() < 0.5 and job.tenant == LIAR and service is code:
            job.notes["marked"] = 1.0
            job.max_tokens = 1 if is_lying else None
        jobs.append(job)
    return jobs


def arrive(random: Random, jobs: list[Job], load: float, hardware: Hardware, slots: int) -> None:
    """Give the jobs Poisson arrivals at that load of servers of that hardware without caches."""
    work_s = sum(held_s(job, hardware) for job in jobs)
    rate = load * slots * len(jobs) / work_s
    now = 0.0
    for job in jobs:
        now += random.expovariate(rate)
        job.arrived_at = now


def held_s(job: Job, hardware: Hardware) -> float:
    """For how long a job holds its slot, if nothing is cached and others slow nothing down."""
    prefill_s = hardware.fixed_s + hardware.prefill_s * job.prompt_tokens
    return prefill_s + hardware.decode_s * job.answer_tokens


def _systems(random: Random, service: Service) -> list[tuple[int, ...]]:
    return [blocks((), SYSTEM_TOKENS, random) for _ in service.systems]
