"""Claims about extproc/app/rules.py, and about rules in a running picker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from extproc.admin.dependencies import ReloadError
from extproc.app.preflight import startup_problems
from extproc.app.rules import read_rules
from extproc.app.service import Service
from extproc.core.request import Request
from extproc.settings import Settings, SettingsError
from tests.app.test_service import ANYWHERE

RULE = (
    "from extproc.rules.v1 import Rule\nclass Mine(Rule):\n  def filter(self, request, endpoint):\n"
)
LABELLED = [{"address": "10.0.0.1:80", "labels": {"zone": "a"}}]


def settings(folder: Path, **values: Any) -> Settings:
    routing = {"rules": ["mine:Mine"], "rules_folder": str(folder)}
    return Settings.model_validate({"routing": routing, **values})


def write(folder: Path, body: str) -> None:
    (folder / "mine.py").write_text(f"{RULE}    {body}\n", encoding="utf-8")


def test_without_rules_there_is_nothing() -> None:
    assert read_rules(Settings()) is None


def test_a_wrong_rule_is_found_by_a_check(tmp_path: Path) -> None:
    """It is tried with the endpoints of the settings, whose labels it may need."""
    (problem,) = startup_problems(settings(tmp_path))
    assert problem.key == "routing.rules" and "no module mine" in problem.message
    write(tmp_path, "return endpoint.labels['zone'] == 'a'")
    assert startup_problems(settings(tmp_path, endpoints=LABELLED)) == ()
    (problem,) = startup_problems(settings(tmp_path))
    assert "filter fails for an example request at example: KeyError: 'zone'" in problem.message
    (problem,) = startup_problems(settings(tmp_path / "lost"))
    assert problem.key == "routing.rules_folder"


@pytest.fixture
async def started(tmp_path: Path) -> AsyncIterator[Callable[[], Any]]:
    services = []

    async def start() -> Service:
        def load() -> Settings:
            return settings(tmp_path, listen=ANYWHERE, endpoints=LABELLED)

        service = Service(load(), load)
        await service.start()
        services.append(service)
        return service

    yield start
    for service in services:
        await service.stop()


async def test_a_wrong_rule_ends_the_start_with_its_name(
    tmp_path: Path, started: Callable[[], Any]
) -> None:
    with pytest.raises(SettingsError, match="there is no module mine"):
        await started()
    write(tmp_path, "return True")
    service = await started()
    assert service.dispatcher.view.rules.problems() == []


async def test_a_reload_reads_rules_again_or_changes_nothing(
    tmp_path: Path, started: Callable[[], Any]
) -> None:
    """A mistake keeps the rules as they are, and so does a dry run; what was switched off is on."""
    write(tmp_path, "return 1 / (request.model != 'bad') > 0")
    service = await started()
    rules = service.dispatcher.view.rules
    bad = Request(id="r", timeout_s=1.0, model="bad")
    endpoints = list(service.dispatcher.fleet)
    assert endpoints
    for _ in range(3):
        assert rules.allowed(bad, endpoints) is None
    (problem,) = rules.problems()
    assert "ZeroDivisionError (mine.py, line 4)" in problem
    assert problem in await page(service, "status")
    assert 'coxswain_rule_on{rule="Mine"} 0' in await page(service, "metrics")
    assert 'coxswain_rule_faults_total{rule="Mine",kind="error"} 3' in await page(
        service, "metrics"
    )

    write(tmp_path, "return None")
    with pytest.raises(ReloadError, match="filter must return True, False or a reason"):
        await service.settings.reload(is_dry_run=False)
    assert service.dispatcher.view.rules is rules
    write(tmp_path, "return False")
    assert "routing.rules" in (await service.settings.reload(is_dry_run=True)).applied
    assert service.dispatcher.view.rules is rules
    assert "routing.rules" in (await service.settings.reload(is_dry_run=False)).applied
    assert service.dispatcher.view.rules.allowed(bad, endpoints) == frozenset()
    assert problem not in await page(service, "status")
    assert 'coxswain_rule_on{rule="Mine"} 1' in await page(service, "metrics")


async def test_a_spare_takes_over_with_the_rules_that_it_read(tmp_path: Path) -> None:
    """A mistake in the file since then does not matter until a reload."""
    write(tmp_path, "return False")
    spare = Service(settings(tmp_path, listen=ANYWHERE, endpoints=LABELLED))
    spare.prepare()
    write(tmp_path, "return None")
    await spare.start()
    try:
        rules = spare.dispatcher.view.rules
        assert rules is not None and rules.has_filters
        endpoints = list(spare.dispatcher.fleet)
        request = Request(id="r", timeout_s=1.0)
        assert endpoints and rules.allowed(request, endpoints) == frozenset()
    finally:
        await spare.stop()


async def page(service: Service, name: str) -> str:
    async with httpx.AsyncClient(trust_env=False) as client:
        text = (await client.get(f"http://127.0.0.1:{service.http_port}/{name}")).text
    return text.replace("\\u0060", "`")
