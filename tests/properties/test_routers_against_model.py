"""The rules of the ledger hold for servers with several models, each with its own slots; and a
model is loaded by one server at a time."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from extproc.core.address import Address
from extproc.core.decision import Picked, Queued, Settlement
from extproc.core.fleet.health import Health
from extproc.core.queue.ticket import Ticket
from extproc.core.request import Request
from extproc.core.slots.lease import Lease
from tests.core.model_fleet import ModelFleet, World
from tests.core.model_router import ModelProcess, ModelRouter
from tests.core.model_server import ModelServer
from tests.long_run import IS_LONG_RUN

MODELS = "abc"


class RouterFleet(ModelFleet):
    """Routers, and plain servers of one model, in one fleet."""

    def __init__(self, random: Random, world: World) -> None:
        self.asked: dict[int, str | None] = {}
        self.loads: dict[str, tuple[Address, Lease]] = {}
        """By model: the last server that was asked to load it, and by which request."""
        self.lost: set[str] = set()
        """Models whose server was lost meanwhile, and no scrape saw them loading since."""
        self.started = 0
        super().__init__(random, world)
        self._events += [self.unload, self.fail_load]
        self._weights += [2, 1]

    def _new_server(self, address: Address) -> ModelServer:
        random = self.random
        if random.random() < 0.3:
            return ModelServer(address, random.choice([1, 2, 4]), models=(random.choice(MODELS),))
        slots = {name: random.choice([1, 2, 4]) for name in MODELS if random.random() < 0.8}
        router = ModelRouter.of(address, slots or {"a": 2}, random.uniform(0.1, 1.0))
        for process in router.models.values():
            if random.random() < 0.3:
                process.load(self.now - 10.0)
        return router

    def _routers(self) -> list[ModelRouter]:
        return [server for server in self.servers.values() if isinstance(server, ModelRouter)]

    # Requests

    def submit(self) -> None:
        self.requests += 1
        random = self.random
        chat = random.randrange(9)
        blocks = tuple(hash((chat, depth)) for depth in range(random.choice([0, 5, 40])))
        request = Request(
            id=str(self.requests),
            timeout_s=random.choice([0.0, 0.5, 5.0]),
            weight_slots=random.choices([1, 2, 5], [90, 8, 2])[0],
            model=random.choice([*MODELS, *MODELS, *MODELS, None]),
            prompt_blocks=blocks,
            prompt_tokens=64 * len(blocks) + 30 if blocks else None,
        )
        outcome = self._submit(request)
        if isinstance(outcome, Queued):
            self.waiting[outcome.ticket.id] = outcome.ticket
        else:
            self._take(request, outcome)

    def settled(self, ticket: Ticket, settlement: Settlement) -> None:
        del self.waiting[ticket.id]
        self._take(ticket.request, settlement)

    def _take(self, request: Request, settlement: Settlement) -> None:
        if isinstance(settlement, Picked):
            lease = settlement.lease
            self.asked[lease.id] = request.model
            self._check_load(lease)
        super()._take(request, settlement)

    def _check_load(self, lease: Lease) -> None:
        """A request for a model that is not loaded may be sent only if no other server is loading
        it."""
        endpoint = self.dispatcher.fleet.get(lease.address)
        assert endpoint is not None
        reading = endpoint.models_by_name.get(lease.model_pool)
        if reading is None or reading.is_loaded:
            return
        self.started += 1
        before = self.loads.get(lease.model_pool)
        if before is not None and before[0] != lease.address:
            is_lost = lease.model_pool in self.lost or self._is_lost(before[0])
            assert is_lost or not self._is_under_way(lease.model_pool, *before), (
                "loaded by two at once"
            )
        self.loads[lease.model_pool] = (lease.address, lease)
        self.lost.discard(lease.model_pool)

    def _check_lease(self, lease: Lease) -> None:
        endpoint_slots = self.dispatcher.ledger.endpoint_slots(lease.address)
        pool = endpoint_slots.model_pools.get(lease.model_pool, endpoint_slots)
        assert pool.leased_slots <= pool.slots or not lease.model_pool, "over its slots through us"

    def _arrive(self, lease: Lease, at: float) -> None:
        server = self.servers[lease.address]
        if isinstance(server, ModelRouter):
            server.arrive(lease, self.asked[lease.id], at)
        else:
            server.take(lease, at)

    def finish(self) -> None:
        """Only requests for loaded models end."""
        lease = self._arrived()
        if lease is not None and self._is_served(lease):
            self._finish(lease)

    def _is_served(self, lease: Lease) -> bool:
        server = self.servers[lease.address]
        if not isinstance(server, ModelRouter):
            return True
        homes = [one for one in server.models.values() if lease.id in one.tasks]
        return all(one.is_loaded(self.now) for one in homes)

    # What happens to models

    def _some_process(self) -> ModelProcess | None:
        processes = [one for router in self._routers() for one in router.models.values()]
        return self.random.choice(processes) if processes else None

    def unload(self) -> None:
        """It was unused for long, or its memory was needed."""
        process = self._some_process()
        if process is not None and process.is_loaded(self.now) and process.is_unused(self.now):
            process.unload()

    def fail_load(self) -> None:
        """It does not fit into memory: the requests that wait for it get an error."""
        process = self._some_process()
        if process is None or not process.is_loading(self.now):
            return
        theirs = [lease for lease in self.running.values() if lease.id in process.tasks]
        if all(process.is_here(lease, self.now) for lease in theirs):
            process.unload()
            for lease in theirs:
                self._finish(lease)

    def change_foreign(self) -> None:
        process = self._some_process()
        if process is None or self.random.random() < 0.5:
            super().change_foreign()
        elif process.is_loaded(self.now):
            process.foreign = self.random.choice([0, 0, 1, process.slots])

    # Claims

    def _is_lost(self, address: Address) -> bool:
        endpoint = self.dispatcher.fleet.get(address)
        return endpoint is None or endpoint.health is Health.DOWN

    def _find_lost(self) -> None:
        """A server that returns may not have reported yet that it is still loading."""
        for model, (address, _) in self.loads.items():
            endpoint = self.dispatcher.fleet.get(address)
            reading = None if endpoint is None else endpoint.models_by_name.get(model)
            if self._is_lost(address):
                self.lost.add(model)
            elif reading is not None and reading.is_loading:
                self.lost.discard(model)
        self.lost &= self.loads.keys()

    def _is_under_way(self, model: str, address: Address, lease: Lease) -> bool:
        """Whether the requested load has neither finished nor failed."""
        server = self.servers[address]
        assert isinstance(server, ModelRouter)
        process = server.models[model]
        if process.is_loaded(self.now):
            return False
        return process.is_loading(self.now) or lease.id in process.tasks

    def _foreign(self, address: Address) -> int:
        """Also in one model pool alone: leases in no pool may hide it from the endpoint's slots."""
        endpoint_slots = self.dispatcher.ledger.endpoint_slots(address)
        return endpoint_slots.foreign_slots + sum(
            one.foreign_slots for one in endpoint_slots.model_pools.values()
        )

    def check(self) -> None:
        super().check()
        self.loads = {
            model: load for model, load in self.loads.items() if self._is_under_way(model, *load)
        }
        self._find_lost()
        for endpoint in self.dispatcher.fleet:
            endpoint_slots = self.dispatcher.ledger.endpoint_slots(endpoint.address)
            for name, pool in endpoint_slots.model_pools.items():
                leases = [one for one in endpoint_slots.leases.values() if one.model_pool == name]
                assert set(pool.leases) == {one.id for one in leases}
                assert pool.leased_slots == sum(one.weight_slots for one in leases)
                assert min(pool.foreign_slots, pool.free_slots) >= 0
                if self.world is World.QUIET and endpoint.address not in self.given_up:
                    assert pool.foreign_slots == 0, "all traffic is ours"

    def finish_all(self) -> None:
        for router in self._routers():
            for process in router.models.values():
                process.foreign = 0
        super().finish_all()
        assert not len(self.dispatcher.state.model_loads), "a load that nobody waits for is pending"


@given(seed=st.integers(0, 2**32), world=st.sampled_from(World))
@example(seed=1822, world=World.ACCIDENTS)
@settings(max_examples=40, deadline=None)
def test_every_claim_holds_for_routers(seed: int, world: World) -> None:
    fleet = RouterFleet(Random(seed), world)
    fleet.play(300)


@pytest.mark.parametrize("seed", [3, 2026] if IS_LONG_RUN else [2026])
@pytest.mark.parametrize("world", World)
def test_a_long_run_with_routers(world: World, seed: int) -> None:
    fleet = RouterFleet(Random(seed), world)
    fleet.play(10_000)
    assert len(fleet.settled_ids) > 1_000 and fleet.started > 30
