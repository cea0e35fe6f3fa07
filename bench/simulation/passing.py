"""A pilot that checks the bound of the order by size."""

from bench.simulation.job import Job
from bench.simulation.pilot import Pilot
from extproc.core.queue.ticket import Ticket
from extproc.core.scheduler.decision import Settlement


class PassingPilot(Pilot):
    """Notes at each job that it passed an earlier one of its flow that had waited for the bound."""

    def settled(self, ticket: Ticket, settlement: Settlement) -> None:
        job = self._jobs[ticket.request.id]
        self._note(job, ticket, self._clock.now)
        super().settled(ticket, settlement)

    def _note(self, job: Job, ticket: Ticket, now: float) -> None:
        bound_s = self.dispatcher.options.order.max_overtaken_s
        for other in self.dispatcher.queue:
            if other.id >= ticket.id or now - other.entered_at < bound_s:
                return
            if other.flow is ticket.flow and other.constraints == ticket.constraints:
                job.notes["passed_late"] = 1.0
                return
