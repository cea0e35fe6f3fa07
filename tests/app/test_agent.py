"""Claims about extproc/app/agent.py: from the command line to what an agent asks and tells."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from extproc.app.agent import AgentError, AgentPlan, plan_agent
from tests.fakes.authority import Authority

PLAIN = AgentPlan(picker="127.0.0.1:9003", llama="http://127.0.0.1:8080", advertise="10.0.0.5:8080")


@pytest.fixture
def secure(tmp_path: Path) -> AgentPlan:
    ca_file = Authority(tmp_path).ca
    return replace(PLAIN, llama="https://127.0.0.1:8080", ca_file=ca_file)


def test_a_plain_server_has_no_trace_of_tls() -> None:
    target, options = plan_agent(PLAIN)
    assert not target.is_tls and not options.advertise.is_tls
    assert (options.server_name, options.authorities) == ("", "")


def test_the_agent_trusts_whom_it_tells_envoy_to_trust(secure: AgentPlan) -> None:
    """Its server's authorities; and the advertised IP address unless it knows a name."""
    target, options = plan_agent(secure)
    assert secure.ca_file is not None
    assert (target.is_tls, target.ca_file, target.host_name) == (True, str(secure.ca_file), None)
    assert options.advertise.is_tls and options.server_name == ""
    assert options.authorities == secure.ca_file.read_text().strip()
    assert options.authorities not in repr(options)


def test_the_name_in_the_certificate_may_be_said(secure: AgentPlan) -> None:
    """It counts for both; `localhost` is a name for the agent alone."""
    target, options = plan_agent(replace(secure, server_name="gpu.example"))
    assert target.host_name == options.server_name == "gpu.example"
    target, options = plan_agent(replace(secure, llama="https://localhost:8080"))
    assert (target.host_name, options.server_name) == ("localhost", "")


def test_a_server_may_be_behind_tls_for_others_only(secure: AgentPlan) -> None:
    """With a proxy before it, which the agent goes past."""
    plan = replace(secure, llama=PLAIN.llama, advertise="https://10.0.0.5:8443")
    target, options = plan_agent(plan)
    assert not target.is_tls
    assert options.advertise.is_tls and options.authorities


def test_what_cannot_be_is_told(secure: AgentPlan, tmp_path: Path) -> None:
    nothing = tmp_path / "nothing.pem"
    nothing.write_text("nothing")
    for plan, words in (
        (replace(secure, ca_file=tmp_path / "missing"), "No such file"),
        (replace(secure, ca_file=nothing), "no certificates"),
        (replace(secure, llama=PLAIN.llama), "https://"),
        (replace(PLAIN, server_name="gpu.example"), "https://"),
        (replace(PLAIN, advertise="ftp://10.0.0.5:1"), "neither"),
    ):
        with pytest.raises(AgentError, match=words):
            plan_agent(plan)
