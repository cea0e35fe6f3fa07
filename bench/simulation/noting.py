"""A pilot that records predictions."""

from bench.simulation.job import Job
from bench.simulation.pilot import Pilot
from extproc.core.queue.ticket import Ticket
from extproc.core.scheduler.decision import Settlement


class Noting(Pilot):
    """Records the predictions of the core."""

    def noted(self, job: Job, ticket: Ticket, now: float) -> None:
        place = self.dispatcher.position_of(ticket, now)
        job.notes["position"] = place.position
        if place.expected_s is not None:
            job.notes["wait_s"] = place.expected_s

    def _settle(self, job: Job, settlement: Settlement, now: float) -> None:
        super()._settle(job, settlement, now)
        lease = self._leases.get(job.id)
        run_ = self.dispatcher.state.in_flight.get(lease) if lease is not None else None
        if lease is not None and run_ is not None:
            speed = self.dispatcher.state.latency.estimate(lease.address, now)
            job.notes["first_s"] = speed.first_token_s(run_.uncached_tokens)
            job.notes["cached"] = run_.cached_tokens
