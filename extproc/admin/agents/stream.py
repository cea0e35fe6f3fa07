"""One agent's stream: the messages to send, and its end."""

from collections.abc import Callable
from dataclasses import dataclass, field

from extproc.admin.agents.registry import Agent
from extproc.admin.agents.stream_clock import StreamClock
from extproc.admin.attached_stream import AttachedStream
from extproc.admin.call_errors import Context
from extproc.pb.coxswain.v1 import agent_pb2 as pb


@dataclass(slots=True, eq=False)
class AgentStream(AttachedStream):
    """`peer` is its agent's IP address; `sent_at` is when we last said something; at first, as
    `began_at`, when it began."""

    number: int
    began_at: float
    peer: str = ""
    sent_at: float = field(init=False)
    clock: StreamClock = field(default_factory=StreamClock)
    agent: Agent | None = None
    scrape_priority: pb.PickerMessage.ScrapePriority = pb.PickerMessage.SCRAPE_PRIORITY_UNSPECIFIED
    scrape_now: bool = False
    is_drained: bool = False
    is_number_due: bool = True

    def __post_init__(self) -> None:
        self.sent_at = self.began_at

    def send(self) -> None:
        """Let the writer send a message now."""
        self.is_number_due = True
        self.due.set()

    async def write(self, context: Context, clock: Callable[[], float]) -> None:
        """Send due messages, until the stream has ended."""
        number = 0
        while not self.has_ended:
            if self.is_number_due:
                number += 1
                message = pb.PickerMessage(
                    number=number,
                    scrape_priority=self.scrape_priority,
                    scrape_now=self.scrape_now,
                    is_drained=self.is_drained,
                )
                self.is_number_due = self.scrape_now = False
                self.sent_at = clock()
                self.clock.sent(number, self.sent_at)
                await context.write(message)
                continue
            self.due.clear()
            await self.due.wait()
