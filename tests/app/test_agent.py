"""Claims about extproc/app/agent.py: from the command line to what an agent asks and tells."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from extproc.app.agent import AgentError, AgentPlan, FleetPlan, plan_agent, renew
from scraper.agent import Agent
from scraper.agent.picker_stream import LinkError
from tests.fakes.authority import Authority

PLAIN = AgentPlan(picker="127.0.0.1:9003", llama="http://127.0.0.1:8080", advertise="10.0.0.5:8080")


@pytest.fixture
def secure(tmp_path: Path) -> AgentPlan:
    ca_file = Authority(tmp_path).ca
    return replace(PLAIN, llama="https://127.0.0.1:8080", ca_file=ca_file)


def test_a_plain_server_has_no_trace_of_tls() -> None:
    target, options = plan_agent(PLAIN)
    assert not target.is_tls and not options.advertise.is_tls
    assert (options.server_name, options.ca_pem) == ("", "")


def test_the_agent_uses_the_ca_that_it_reports(secure: AgentPlan) -> None:
    """Its server's CAs; and the advertised IP address unless it knows a name."""
    target, options = plan_agent(secure)
    assert secure.ca_file is not None
    assert (target.is_tls, target.ca_file, target.host_name) == (True, str(secure.ca_file), None)
    assert options.advertise.is_tls and options.server_name == ""
    assert options.ca_pem == secure.ca_file.read_text().strip()
    assert options.ca_pem not in repr(options)


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
    assert options.advertise.is_tls and options.ca_pem


@pytest.mark.parametrize("may_sleep", [None, True, False])
def test_whether_the_server_may_sleep_is_said(may_sleep: bool | None) -> None:
    target, _ = plan_agent(replace(PLAIN, may_sleep=may_sleep))
    assert target.may_sleep is may_sleep


def test_what_cannot_be_is_reported(secure: AgentPlan, tmp_path: Path) -> None:
    nothing = tmp_path / "nothing.pem"
    nothing.write_text("nothing")
    for plan, words in (
        (replace(secure, ca_file=tmp_path / "missing"), "No such file"),
        (replace(secure, ca_file=nothing), "no certificates"),
        (replace(secure, llama=PLAIN.llama), "https://"),
        (replace(PLAIN, server_name="gpu.example"), "https://"),
        (replace(PLAIN, advertise="ftp://10.0.0.5:1"), "is not http"),
    ):
        with pytest.raises(AgentError, match=words):
            plan_agent(plan)


def test_a_key_is_offered_only_where_nobody_reads_it(tmp_path: Path) -> None:
    """And shown nowhere; without `--inject-key` it is for the agent's own looks."""
    key_file = tmp_path / "key"
    key_file.write_text("sk-1\n")
    keyed = replace(PLAIN, api_key_file=key_file)
    target, options = plan_agent(keyed)
    assert (target.api_key, options.api_key) == ("sk-1", "")
    target, options = plan_agent(replace(keyed, inject_key=True, is_private=True))
    assert (target.api_key, options.api_key) == ("sk-1", "sk-1")
    assert "sk-1" not in f"{target}{options}"
    with pytest.raises(AgentError, match="unencrypted"):
        plan_agent(replace(keyed, inject_key=True))
    with pytest.raises(AgentError, match="--api-key-file"):
        plan_agent(replace(PLAIN, inject_key=True, is_private=True))


def test_a_file_without_a_key_or_token_is_reported_and_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    for content in (b"", b"two\nlines", b"caf\xc3\xa9", b"two words"):
        file.write_bytes(content)
        with pytest.raises(AgentError, match="--api-key-file") as caught:
            plan_agent(replace(PLAIN, api_key_file=file))
        assert content.decode() not in str(caught.value) or not content
    with pytest.raises(AgentError, match="--api-key-env"):
        plan_agent(replace(PLAIN, api_key="two words"))
    with pytest.raises(AgentError, match=r"--token-file: .*no such file"):
        plan_agent(replace(PLAIN, token_file=tmp_path / "missing"))


async def test_what_lies_in_files_is_read_again(
    secure: AgentPlan, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """CAs, key and token; one file that cannot be used leaves all as it was."""
    assert secure.ca_file is not None
    key_file, token_file = tmp_path / "key", tmp_path / "token"
    key_file.write_text("sk-1")
    token_file.write_text("one")
    plan = replace(
        secure, api_key_file=key_file, inject_key=True, is_private=True, token_file=token_file
    )
    assert plan.files == {key_file, token_file, secure.ca_file}
    agent = Agent(*plan_agent(plan), lambda: grpc.aio.insecure_channel("127.0.0.1:1"))
    before = agent.target, agent.options
    fresh = Authority(tmp_path, "fresh").ca.read_text()
    key_file.write_text("sk-2")
    token_file.write_text("two")
    secure.ca_file.write_text("half of")
    await renew(plan, agent)
    assert (agent.target, agent.options) == before
    assert "no certificates" in caplog.text
    secure.ca_file.write_text(fresh)
    await renew(plan, agent)
    assert agent.target.api_key == agent.options.api_key == "sk-2"
    assert agent.options.metadata == (("authorization", "Bearer two"),)
    assert agent.options.ca_pem == fresh.strip()
    assert agent.target.ca_digest != before[0].ca_digest, "its own looks trust others, too"
    assert not {"sk-2", "two"} & set(caplog.text.split())
    agent.leave()
    await agent.run()


def fleet_plan(token_file: Path | None = None, token: str = "") -> FleetPlan:
    return FleetPlan(
        address="127.0.0.1:9003",
        connect=lambda: grpc.aio.insecure_channel("127.0.0.1:1"),
        token=token,
        token_file=token_file,
    )


def test_a_fleet_is_advertised_by_its_envoy(secure: AgentPlan) -> None:
    """Its port must be said, and no server is asked for anything."""
    plan = replace(PLAIN, llama="not asked", fleet=fleet_plan())
    _, options = plan_agent(replace(plan, advertise="10.0.0.5:10001", name="north"))
    assert (str(options.advertise.address), options.name) == ("10.0.0.5:10001", "north")
    assert not options.advertise.is_tls and options.ca_pem == ""
    _, options = plan_agent(replace(plan, advertise="auto:10001"))
    assert (options.advertise.way, options.advertise.port) == ("auto", 10001)
    ca_file = secure.ca_file
    _, options = plan_agent(replace(plan, advertise="https://10.0.0.5:10001", ca_file=ca_file))
    assert options.advertise.is_tls and options.ca_pem
    for wrong in ("auto", "10.0.0.5", "nonsense:1"):
        with pytest.raises(AgentError, match="--advertise"):
            plan_agent(replace(plan, advertise=wrong))
    with pytest.raises(AgentError, match="https:// in --advertise"):
        plan_agent(replace(plan, advertise="10.0.0.5:10001", ca_file=ca_file))


def test_the_token_of_a_fleet_is_read_at_each_connection(tmp_path: Path) -> None:
    file = tmp_path / "token"
    assert fleet_plan().metadata() == ()
    assert fleet_plan(token="t1").metadata() == (("authorization", "Bearer t1"),)
    plan = fleet_plan(token_file=file)
    with pytest.raises(LinkError, match="--fleet-token-file"):
        plan.metadata()
    for token in ("t2", "t3"):
        file.write_text(f"{token}\n", encoding="utf-8")
        assert plan.metadata() == (("authorization", f"Bearer {token}"),)
        assert token not in repr(plan)
