"""Claims about bench/compare: its pure parts, and one short run over real sockets."""

from __future__ import annotations

import json
import math
import stat
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from bench.compare import __main__ as command
from bench.compare.account import Result, Times, account, count_deferred
from bench.compare.cells import EVEN, MADE_UP, SLOW, UNEVEN, Server, cells
from bench.compare.clients import End, Record
from bench.compare.page import Table, losses, markdown, page
from bench.compare.picture import picture
from bench.compare.rates import Rate, contenders, section
from bench.compare.rates import losses as rate_losses
from bench.compare.rivals import (
    OURS,
    PLAIN,
    Rival,
    command_words,
    envoy_alone,
    nginx_configuration,
    rivals,
)
from bench.compare.run import Stage
from bench.compare.serial import BURST, LEARNED, Found, serial_pace, serial_requests
from bench.compare.trace import (
    MADE_UP_BLOCK_TOKENS,
    MEAN_SERVICE_S,
    MODEL,
    events,
    made_up_conversations,
    pace_of,
    prompt,
    requests_of,
    sample,
    service_s,
    window,
)
from bench.public_traces import TraceRow, read_azure, read_mooncake
from tests.fakes.kubernetes import NEEDS_KUBERNETES

AZURE = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.0319600,3180,0
"""


def result(rival: str, wait_s: float, *, is_ours: bool = False, failed: int = 0) -> Result:
    times = Times(sorted_s=[wait_s] * 100)
    return Result(
        rival=rival,
        requests=100,
        first_token=times,
        waiting=times,
        failed=failed,
        cached_share=0.5,
        cpu_s=0.1,
        is_ours=is_ours,
    )


# Traces


def test_azures_rows_begin_at_zero_and_answer_something(tmp_path: Path) -> None:
    file = tmp_path / "azure.csv"
    file.write_text(AZURE.rstrip("\n"))  # as it is published, without a last end of line
    first, second = read_azure(file)
    assert first == TraceRow(0.0, 4808, 10)
    assert second.at_s == pytest.approx(0.052) and second.answer_tokens == 1


def test_mooncakes_batches_are_spread_in_their_order(tmp_path: Path) -> None:
    file = tmp_path / "mooncake.jsonl"
    rows = [
        {"timestamp": at, "input_length": 600, "output_length": 5, "hash_ids": [0, number]}
        for number, at in enumerate([0, 0, 0, 3000, 3000])
    ]
    file.write_text("\n".join(map(json.dumps, rows)))
    found = read_mooncake(file)
    assert [row.blocks[1] for row in found] == [0, 1, 2, 3, 4]
    times = [row.at_s for row in found]
    assert times == sorted(times) and times[2] < 3.0 <= times[3] and times[4] < 6.0
    assert [row.conversation for row in found] == ["0", "1", "2", "3", "4"]


def test_a_sample_keeps_whole_conversations_of_all_times_or_begins_in_the_middle() -> None:
    rows = [TraceRow(float(n), 9, 9, (n % 200,), str(n % 200)) for n in range(10_000)]
    found = sample(rows, 500)
    assert 500 <= len(found) < 1_000
    names = {row.conversation for row in found}
    assert found == [row for row in rows if row.conversation in names]
    assert sample(rows, 20_000) == rows
    nameless = [row._replace(conversation="") for row in rows]
    assert sample(nameless, 10) == nameless[5_000:]


def test_a_window_offers_just_the_load_in_just_the_time() -> None:
    rows = made_up_conversations(4_000)
    pace = pace_of(rows)
    work_s = 0.9 * 8 * 10.0
    taken = window(rows, 10.0, work_s, lambda row: service_s(row, pace))
    offered_s = sum(service_s(row, pace) for row in taken)
    longest_s = max(service_s(row, pace) for row in taken)
    assert work_s <= offered_s < work_s + longest_s
    assert taken[0].at_s == 0.0 and taken[-1].at_s == pytest.approx(10.0)
    gaps = [later.at_s - row.at_s for row, later in pairwise(rows)]
    scaled = [later.at_s - row.at_s for row, later in pairwise(taken)]
    factor = scaled[0] / gaps[0]
    assert scaled == pytest.approx([gap * factor for gap in gaps[: len(scaled)]])


def test_a_trace_that_is_too_short_keeps_the_load_and_not_the_time() -> None:
    rows = [TraceRow(float(number), 100, 8) for number in range(11)]
    taken = window(rows, 10.0, 22.0, lambda _: 1.0)
    assert len(taken) == 11 and taken[-1].at_s == pytest.approx(5.0)


def test_the_mean_request_takes_the_same_time_in_each_trace() -> None:
    for rows in ([TraceRow(0.0, 4000, 10)], made_up_conversations(500)):
        pace = pace_of(rows)
        mean_s = sum(service_s(row, pace) for row in rows) / len(rows)
        assert mean_s == pytest.approx(MEAN_SERVICE_S, rel=0.05)


def test_prompts_share_their_beginning_as_far_as_their_blocks() -> None:
    one = prompt(TraceRow(0.0, 1200, 1, (7, 8, 9)), 1, 512)
    other = prompt(TraceRow(0.0, 1536, 1, (7, 8, 10)), 2, 512)
    assert (len(one), len(other)) == (1200, 1536)
    assert one[:1024] == other[:1024] and one[1024:1040] != other[1024:1040]
    apart = [prompt(TraceRow(0.0, 300, 1), number, 512) for number in (1, 2)]
    assert len(apart[0]) == 300 and apart[0][:16] != apart[1][:16]


def test_made_up_conversations_are_like_the_traces_that_they_stand_for() -> None:
    """Azure's conversations have means of 1,155 and 211 tokens; Mooncake's saw 37 % before."""
    rows = made_up_conversations(5_000)
    assert sum(row.prompt_tokens for row in rows) / 5_000 == pytest.approx(1155, rel=0.1)
    assert sum(row.answer_tokens for row in rows) / 5_000 == pytest.approx(211, rel=0.1)
    known: set[int] = set()
    again = blocks = 0
    for row in rows:
        assert len(row.blocks) == math.ceil(row.prompt_tokens / MADE_UP_BLOCK_TOKENS)
        again += next((n for n, one in enumerate(row.blocks) if one not in known), len(row.blocks))
        blocks += len(row.blocks)
        known.update(row.blocks)
    assert again / blocks == pytest.approx(0.37, abs=0.05)


def test_no_rival_is_shown_how_long_an_answer_will_be() -> None:
    row = TraceRow(0.0, 20, 80, (), "chat")
    (simulated,) = requests_of([row], 512, is_real=False)
    assert events(row) == json.loads(simulated.body)["simulated_answer_tokens"] == 10
    assert "max_tokens" not in simulated.body and simulated.key == "chat"
    assert json.loads(simulated.body)["model"] == MODEL
    (real,) = requests_of([row], 512, is_real=True)
    assert json.loads(real.body)["max_tokens"] == 10


def test_clairvoyants_cells_are_a_burst_and_a_stream_after_what_is_learned_from() -> None:
    burst, stream = serial_requests(10.0).values()
    for requests in (burst, stream):
        assert [one.kind for one in requests[:LEARNED]] == [""] * LEARNED
        assert {one.kind for one in requests[LEARNED:]} == {"short", "long"}
    assert len(burst) == LEARNED + BURST and len({one.at_s for one in burst[LEARNED:]}) == 1
    assert len({one.body for one in burst}) == len(burst)
    rows = [TraceRow(0.0, *_lengths(one.body)) for one in stream[LEARNED:]]
    offered = sum(service_s(row, serial_pace()) for row in rows) / 10.0
    assert offered == pytest.approx(0.74, abs=0.2)


def _lengths(body: str) -> tuple[int, int]:
    tree = json.loads(body)
    return len(tree["messages"][0]["content"]), 8 * tree["simulated_answer_tokens"]


# Accounts


def test_each_request_is_accounted_for_once_and_times_are_of_those_served() -> None:
    served = Record(kind="all", end=End.SERVED, took_s=1.5, service_s=1.0, first_token_s=0.6)
    served.prompt_tokens, served.cached_tokens = 100, 25
    records = [
        served,
        Record(kind="all", end=End.FAILED, why="503", took_s=9.0),
        Record(kind="all", end=End.CUT, why="no last event"),
        Record(kind="all", end=End.KILLED),
        Record(kind="", end=End.SERVED, took_s=99.0),  # only to be learned from
    ]
    found = account("one", records, to_full=3, cpu_s=0.4)
    assert (found.requests, found.failed, found.cut, found.killed, found.to_full) == (4, 1, 1, 1, 3)
    assert found.waiting.sorted_s == [0.5] and found.first_token.mean_s == 0.6
    assert found.cached_share == 0.25 and found.why == "1 503, 1 no last event"


def test_percentiles_are_of_the_requests_themselves() -> None:
    times = Times(sorted_s=[float(number) for number in range(1, 101)])
    assert (times.at(0.5), times.at(0.99), times.at(1.0), times.at(0.0)) == (50, 99, 100, 1)
    assert math.isnan(Times().mean_s) and math.isnan(Times().at(0.5))


def test_requests_that_wait_in_a_server_are_found_in_both_kinds_of_logs() -> None:
    real = "0.00.547.784 D srv  process_sing: no slot is available, defer task, id_task = 2"
    also = "0.00.547.785 D que         defer: defer task, id = 2"  # of the same task
    simulated = "no slot is available, defer task, id_task = 12"
    assert count_deferred([real, also, "listening", simulated]) == 2


def test_the_long_ones_are_shown_beside_the_gain() -> None:
    def records(short_s: float, long_s: float) -> list[Record]:
        took = {"short": short_s, "long": long_s}
        return [Record(kind=kind, end=End.SERVED, took_s=s) for kind, s in took.items()]

    first, second = Found(records(1.0, 2.0)), Found(records(0.25, 3.0))
    assert (
        first.row("first come")
        == "| first come | 1000 ms | 1000 ms | 2000 ms | 2000 ms | 1500 ms |"
    )
    assert (
        second.change("burst", first) == "| burst: change | -75 % | -75 % | +50 % | +50 % | +8 % |"
    )


# Tables


def test_cells_are_all_loads_on_all_fleets_and_public_traces_on_one() -> None:
    found = cells(["Azure, code"], [0.7, 0.9], ["even", "uneven"])
    assert [(one.trace, one.load, one.fleet) for one in found] == [
        (MADE_UP, 0.7, EVEN),
        (MADE_UP, 0.9, EVEN),
        (MADE_UP, 0.7, UNEVEN),
        (MADE_UP, 0.9, UNEVEN),
        ("Azure, code", 0.7, UNEVEN),
        ("Azure, code", 0.9, UNEVEN),
    ]
    assert sum(one.slots for one in EVEN) == sum(one.slots for one in UNEVEN) == 8
    slow = cells([], [0.7], ["even"])[0]
    assert slow.capacity_slots == 8.0
    assert sum(one.slots / one.slowness for one in SLOW) == pytest.approx(6 + 2 / 3)


def test_a_table_has_a_row_for_each_rival_and_the_page_says_which_are_not_given() -> None:
    rows = [
        result("Coxswain", 0.010, is_ours=True),
        Result(rival="nginx", requests=0, why="not installed: apt-get install nginx"),
        result("Paddler", 0.020),
    ]
    table = Table(title="One", note="Scaled.", rows=rows)
    lines = markdown(table)
    assert lines[6] == "| **Coxswain** | 10 | 10 | 10 | 10 | 0/0/0 | 50 | 0 | 1000 |"
    assert any("not installed: apt-get install nginx" in line for line in lines)
    text = page([table], machine="m.", command="make compare", serial=[], image="p.svg")
    assert "\nNot given: llm-d's picker.\n" in text


def test_tables_of_one_fleet_share_their_rows_if_all_were_played() -> None:
    tables = [
        Table(
            title=f"Even fleet, load {load}", note=f"{load}.", rows=[result("HAProxy", load / 10)]
        )
        for load in (0.7, 0.9)
    ]
    lines = markdown(*tables)
    assert lines[0] == "### Even fleet, load 0.7, 0.9" and lines[2] == "0.7. 0.9."
    times = " | ".join(["70, 90"] * 4)
    row = f"| HAProxy | {times} | 0/0/0 | 50 | 0 | 1000 |"
    assert lines[6] == row
    tables.append(Table(title="Even fleet, load 1.1", note="", rows=[]))
    text = page(tables, machine="m.", command="make compare", serial=[], image="p.svg")
    assert row in text and "### Even fleet, load 1.1\n" in text
    columns = {line.count("|") for line in lines if line.startswith("|")}
    assert len(columns) == 1, "each row has all columns"


def test_losses_name_each_column_in_which_a_rival_is_better() -> None:
    ours, theirs = result("Coxswain", 0.100, is_ours=True, failed=2), result("HAProxy", 0.050)
    found = losses(Table(title="One", note="", rows=[ours, theirs]))
    assert str(found[0]) == "- mean time to first token: HAProxy 50 ms, Coxswain 100 ms"
    assert any("failed, cut or killed: HAProxy 0, Coxswain 2" in str(one) for one in found)
    assert not losses(Table(title="One", note="", rows=[result("Coxswain", 0.05, is_ours=True)]))
    close = [result("Coxswain", 0.100, is_ours=True), result("HAProxy", 0.099)]
    assert not losses(Table(title="One", note="", rows=close))


def test_what_is_lost_in_each_table_is_said_once() -> None:
    theirs = result("HAProxy", 0.05)
    tables = [
        Table(title="One", note="", rows=[result("Coxswain", 0.1, is_ours=True), theirs]),
        Table(title="Two", note="", rows=[result("Coxswain", 0.2, is_ours=True, failed=2), theirs]),
    ]
    text = page(tables, machine="m.", command="make compare", serial=[], image="p.svg")
    lost, _, _ = text.partition("## What was unequal")
    always, _, besides = lost.partition("Two:\n\n")
    assert (
        "- mean time to first token: the best rival 50 to 50 ms, Coxswain 100 to 200 ms" in always
    )
    assert "One:" not in lost and "mean time" not in besides
    assert besides.startswith("- failed, cut or killed: HAProxy 0, Coxswain 2\n")


def test_the_page_begins_with_losses_and_what_was_unequal() -> None:
    table = Table(
        title="One", note="", rows=[result("Coxswain", 0.1, is_ours=True), result("nginx", 0.05)]
    )
    text = page([table], machine="m.", command="make compare", serial=["### Serial"], image="p.svg")
    places = [text.index(part) for part in ("## Where we lose", "## What was unequal", "## Tables")]
    assert places == sorted(places) and text.endswith("### Serial\n")
    assert "nginx 50 ms" in text and "![Waits by percentile](p.svg)" in text


def test_the_picture_has_a_curve_for_each_rival_that_served() -> None:
    rows = [
        result("Coxswain", 0.1, is_ours=True),
        result("a < b", 0.0),
        Result(rival="nginx", requests=0),
    ]
    tree = ET.fromstring(picture("Waits & more", rows))
    curves = [one for one in tree.iter() if one.tag.endswith("polyline")]
    assert len(curves) == 2
    for curve in curves:
        points = [tuple(map(float, pair.split(","))) for pair in curve.attrib["points"].split()]
        assert all(0 <= x <= 960 and 0 <= y <= 520 for x, y in points)
    assert "a < b" in {one.text for one in tree.iter()}


# Rates


def rate(rival: str, rate: float, ratio: float, *, added_ms: float, is_ours: bool = False) -> Rate:
    return Rate(
        body="1 KB",
        rival=rival,
        rate=rate,
        ratio=ratio,
        picker_us=None if rival == PLAIN else 100.0,
        envoy_us=200.0,
        added_ms=added_ms,
        failures=0,
        is_ours=is_ours,
    )


def test_rates_are_played_where_a_picker_is_named_beside_envoy_alone() -> None:
    assert contenders(rivals({"Paddler": "x"})) == []
    with_picker = rivals({}, {"llm-d's picker 0.4.0": Path("/bin/true")})
    found = contenders([replace(one, missing="") for one in with_picker])
    names = [one.name for one in found]
    picker = "llm-d's picker 0.4.0"
    assert names == [OURS, PLAIN, picker, f"{picker}, by TLS"]
    assert [one.has_rates_only for one in found] == [False, False, False, True]
    assert contenders([one for one in found if one.name != PLAIN]) == []
    uninstalled = [replace(one, missing="make kubernetes") for one in with_picker]
    assert contenders(uninstalled) == []


def test_losses_to_pickers_are_said_number_by_number_and_not_those_to_envoy_alone() -> None:
    rows = [
        rate(OURS, 900.0, 1.0, added_ms=0.5, is_ours=True),
        rate(PLAIN, 3000.0, 0.3, added_ms=0.0),
        rate("faster", 1000.0, 0.9, added_ms=0.25),
        rate("as fast", 910.0, 0.99, added_ms=0.6),
    ]
    assert rate_losses(rows) == [
        "- 1 KB, faster: 1000 requests/s, Coxswain 900 (0.90 of its, round by round)",
        "- 1 KB, faster: added median 0.25 ms, Coxswain 0.5 ms",
    ]
    lines = section(rows)
    assert f"| 1 KB | **{OURS}** | 900 | 1.00 | 100 us | 200 us | 0.50 ms | 0 |" in lines
    assert f"| 1 KB | {PLAIN} | 3000 | 0.30 |  | 200 us | 0.00 ms | 0 |" in lines
    table = Table(title="One", note="", rows=[result("Coxswain", 0.1, is_ours=True)])
    text = page([table], machine="m.", command="c", serial=["### Serial"], image="p", rates=rows)
    places = [text.index(part) for part in ("1 KB, faster", "## What was", "### Rates", "### Ser")]
    assert places == sorted(places) and "are made for vLLM" in text
    assert section([]) == [] and rate_losses([]) == []


# Rivals


def test_limits_and_weights_are_the_slots_of_the_servers() -> None:
    servers = {8001: Server(slots=1), 8002: Server(slots=4)}
    tree = envoy_alone(9000, servers, "MAGLEV", is_bounded=True)
    [cluster] = tree["static_resources"]["clusters"]
    [group] = cluster["load_assignment"]["endpoints"]
    assert [one["load_balancing_weight"] for one in group["lb_endpoints"]] == [1, 4]
    assert cluster["common_lb_config"]["consistent_hashing_lb_config"] == {
        "hash_balance_factor": 125
    }
    text = nginx_configuration(9000, servers)
    assert "server 127.0.0.1:8002 weight=4;" in text and "least_conn;" in text
    words = command_words("./start --to {servers} '{slots} {port}'", 9000, servers, "/tmp/x")
    assert words == ["./start", "--to", "127.0.0.1:8001,127.0.0.1:8002", "1,4 9000"]


def test_the_command_rejects_what_cannot_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = tmp_path / "azure2023/AzureLLMInferenceTrace_conv.csv"
    damaged.parent.mkdir()
    damaged.write_text("time,tokens\n1,2\n")
    for arguments, text in (
        (["--quick", "--write", "x.md"], "it is not kept"),
        (["--rival", "Paddler"], "NAME=COMMAND is expected"),
        (["--paddler", "paddler"], "NAME=PATH is expected"),
        (["--picker", f"epp={tmp_path}/none"], "none is no program"),
        (["--only", "traefik"], "no rival is called traefik"),
        (["--trace", "/nowhere"], "No such file"),
        (["--trace", str(tmp_path)], "a row has no 'TIMESTAMP'"),
        (["--load", "0.7", "0"], "above 0"),
        (["--seconds", "0.5"], "at least 1"),
    ):
        with pytest.raises(SystemExit) as ended:
            command.main(arguments)
        assert ended.value.code == 2
        assert text in capsys.readouterr().err


@pytest.mark.e2e
async def test_ours_and_another_serve_each_request_and_ours_no_full_server() -> None:
    rows = made_up_conversations(2_000)
    pace = pace_of(rows)
    taken = window(rows, 1.0, 0.9 * 8 * 1.0, lambda row: service_s(row, pace))
    requests = requests_of(taken, MADE_UP_BLOCK_TOKENS, is_real=False)
    stage = Stage(UNEVEN, requests, pace)
    by_name = {one.name: one for one in rivals({})}
    for name in ("Coxswain, first come, prefix affinity", "Envoy, least request"):
        records, found = await stage.play(by_name[name])
        assert [one.end for one in records] == [End.SERVED] * len(requests)
        assert (found.requests, len(found.waiting.sorted_s)) == (len(requests), len(requests))
        assert found.cpu_s > 0 and 0 < found.cached_share < 1
        assert all(one.took_s >= one.first_token_s > 0 for one in records)
        assert not (found.is_ours and found.to_full)


AS_A_PICKER = """\
#!{python}
import os, sys, yaml
flags = dict(one[2:].split("=", 1) for one in sys.argv[1:])
ports = flags["endpoint-target-ports"].split(",")
assert os.path.exists(os.environ["KUBECONFIG"]) and yaml.safe_load(open(flags["config-file"]))
settings = {{
    "listen": {{
        "grpc": "127.0.0.1:" + flags["grpc-port"],
        "admin": "127.0.0.1:" + flags["grpc-health-port"],
        "http": "127.0.0.1:" + flags["metrics-port"],
    }},
    "endpoints": ["127.0.0.1:" + port for port in ports],
}}
with open({config!r}, "w") as file:
    yaml.safe_dump(settings, file)
command = [sys.executable, "-m", "extproc.cli", "serve", "--config", {config!r}]
os.execv(sys.executable, command)
"""
"""Coxswain, started as a picker of the Inference Extension is: it speaks their protocol."""


@pytest.mark.e2e
@NEEDS_KUBERNETES
async def test_a_picker_of_kubernetes_is_given_an_api_server_and_an_envoy(tmp_path: Path) -> None:
    binary = tmp_path / "picker"
    config = str(tmp_path / "picker.yaml")
    binary.write_text(AS_A_PICKER.format(python=sys.executable, config=config))
    binary.chmod(binary.stat().st_mode | stat.S_IXUSR)
    rows = made_up_conversations(2_000)
    pace = pace_of(rows)
    taken = window(rows, 1.0, 0.5 * 4 * 1.0, lambda row: service_s(row, pace))
    requests = requests_of(taken, MADE_UP_BLOCK_TOKENS, is_real=False)
    picker: Rival = next(one for one in rivals({}, {"its": binary}) if one.name == "its")
    # One server, as Coxswain names others to fall back to, which that Envoy does not read.
    records, found = await Stage(UNEVEN[-1:], requests, pace).play(picker)
    assert [one.end for one in records] == [End.SERVED] * len(requests)
    assert found.cpu_s > 0
