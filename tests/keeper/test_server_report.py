"""Claims about extproc/keeper/server_report.py."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import grpc
import pytest

from extproc.core.address import Address
from extproc.core.observation import ModelReading, Observation, RouterReading, ScrapeStatus
from extproc.keeper.model_status import ModelState, ModelStatus
from extproc.keeper.server_report import UNRESPONSIVE_S, ServerReport
from scraper.agent import Agent, AgentOptions
from scraper.agent.advertise import Advertise

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from extproc.runners.target import EndpointTarget

ADDRESS = Address.of("127.0.0.1", 8080)
LOADED = ModelStatus(
    name="qwen",
    state=ModelState.LOADED,
    since=0.0,
    load_s=1.0,
    exits=0,
    problem="",
    detail="",
)


SEEN = Observation(
    address=ADDRESS, status=ScrapeStatus.READY, began_at=0.0, answered_at=0.0, slots=1, busy_slots=0
)


class Reported:
    """A report whose agent finds no picker; the test makes its observations."""

    def __init__(self) -> None:
        self.status = LOADED
        self.hung = 0
        self.edit: Callable[[Observation], Observation] = lambda same: same
        self.report = ServerReport(
            ADDRESS, "gpu-1.qwen", self._agent, lambda: self.status, self._hang
        )

    def _agent(
        self, target: EndpointTarget, name: str, edit: Callable[[Observation], Observation]
    ) -> Agent:
        self.edit = edit
        options = AgentOptions(
            picker="127.0.0.1:1", advertise=Advertise.parse(str(target.address), 1), name=name
        )
        return Agent(target, options, lambda: grpc.aio.insecure_channel("127.0.0.1:1"), edit=edit)

    def _hang(self) -> None:
        self.hung += 1


@pytest.fixture
async def reported() -> AsyncIterator[Reported]:
    one = Reported()
    one.report.begin("", ["alias"])
    yield one
    await one.report.end(is_running=True)


async def test_the_model_has_the_names_of_the_file(reported: Reported) -> None:
    seen = replace(SEEN, models=(ModelReading(name="tiny.gguf"),))
    (model,) = reported.edit(seen).models
    assert (model.name, model.aliases) == ("qwen", ("alias",))


async def test_a_routers_models_keep_their_names(reported: Reported) -> None:
    """Also where it shows no slots and all of them are loaded."""
    models = (ModelReading(name="a"), ModelReading(name="b"))
    running = frozenset({"a", "b"})
    router = RouterReading(autoloads=True, max_models=2, running=running, listed_at=0.0)
    assert reported.edit(replace(SEEN, models=models, router=router)).models == models


async def test_a_problem_is_an_issue_with_its_last_line(reported: Reported) -> None:
    """It says where the rest of the log is."""
    reported.status = replace(LOADED, problem="exit code 3", detail="loading\nout of memory")
    (issue,) = reported.edit(SEEN).issues
    assert issue.message == "exit code 3: out of memory"
    assert "coxswain logs gpu-1.qwen" in issue.remedy
    reported.status = replace(LOADED, problem="exit code 3")
    (issue,) = reported.edit(SEEN).issues
    assert issue.message == "exit code 3: it printed nothing"


async def test_a_server_without_a_usable_answer_is_hung(reported: Reported) -> None:
    """From the first such answer, if none between them was usable and the server is the same."""
    failed = replace(SEEN, status=ScrapeStatus.FAILED)

    def answer_at(seen: Observation, at: float) -> int:
        reported.edit(replace(seen, began_at=at, answered_at=at))
        return reported.hung

    assert answer_at(failed, 0.0) == 0
    assert answer_at(SEEN, 1.0) == 0
    assert answer_at(failed, 2.0) == 0
    assert answer_at(failed, 1.0 + UNRESPONSIVE_S) == 0
    reported.report.server_started()
    assert answer_at(failed, 2.0 + UNRESPONSIVE_S) == 0
    reported.status = replace(LOADED, state=ModelState.RESTARTING)
    assert answer_at(failed, 2.0 + 3 * UNRESPONSIVE_S) == 0
    reported.status = LOADED
    assert answer_at(failed, 0.0) == 0
    assert answer_at(failed, UNRESPONSIVE_S) == 1


async def test_the_report_of_a_dead_server_ends(reported: Reported) -> None:
    """And can begin again; an end without a report is none."""
    await reported.report.end(is_running=True)
    await reported.report.end(is_running=False)
    assert not reported.report.was_granted
    reported.report.scrape_now()
    reported.report.begin("", [])
    names = [task.get_name() for task in asyncio.all_tasks()]
    assert names.count("report qwen") == 1
