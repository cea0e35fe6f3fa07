"""Claims about extproc/rules/loading.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from extproc.rules import v1
from extproc.rules.loading import RuleError, load_rules

RULE = "from extproc.rules.v1 import *\nclass Mine(Rule):\n"
FILTER = "  def filter(self, request, endpoint):\n"
COST = "  def cost(self, request, endpoint):\n"
ADMIT = "  def admit(self, request):\n"


def write(folder: Path, text: str, name: str = "mine.py") -> None:
    file = folder / name
    file.parent.mkdir(exist_ok=True, parents=True)
    file.write_text(text, encoding="utf-8")


def test_rules_come_from_the_folder_and_from_what_is_installed(tmp_path: Path) -> None:
    """The folder precedes an installed module of the same name, also in a package."""
    write(tmp_path, f"{RULE}{FILTER}    return True\n{COST}    return 1\n")
    write(
        tmp_path,
        "from extproc.rules.v1 import Rule\nclass Json(Rule):\n" + ADMIT + "    pass\n",
        "json/decoder.py",
    )
    mine, shadowing = load_rules(["mine:Mine", "json.decoder:Json"], tmp_path)
    assert mine.name == "Mine" and mine.filter and mine.cost and mine.admit is None
    assert shadowing.admit is not None and shadowing.filter is None
    (installed,) = load_rules(["examples.pin_team:PinTeam"], None)
    assert installed.name == "PinTeam"


def test_a_changed_file_is_read_again_at_once(tmp_path: Path) -> None:
    """However soon it was changed, and with the same length."""
    asked = v1.Request(), v1.Endpoint()
    for seconds in (1, 2, 3):
        write(tmp_path, f"{RULE}{COST}    return {seconds}\n")
        (rule,) = load_rules(["mine:Mine"], tmp_path)
        assert rule.cost is not None and rule.cost(*asked) == seconds


WRONG = {
    "": "it has none of the methods filter, cost and admit",
    "  filter = 3\n": "filter must be a method: filter(self, request, endpoint)",
    "  def filter(self, request):\n    return True\n": "write filter(self, request, endpoint)",
    "  def admit(self, request, endpoint):\n    pass\n": "write admit(self, request)",
    "  async def cost(self, request, endpoint):\n    return 1\n": "without async and yield",
    "  def cost(self, request, endpoint):\n    yield 1\n": "without async and yield",
    "  def __init__(self, x):\n    pass\n" + ADMIT + "    pass\n": "it cannot be made: TypeError",
    FILTER + "    pass\n": "filter must return True, False or a reason, not None",
    FILTER + "    return 1\n": "filter must return True, False or a reason, not 1",
    FILTER + "    return ' '\n": "not an empty text",
    COST + "    return True\n": "cost must return seconds, at least 0, not True",
    COST + "    return -1\n": "cost must return seconds, at least 0, not -1",
    COST + "    return float('nan')\n": "not nan",
    COST + "    return '1'\n": "cost must return seconds",
    ADMIT
    + "    return 'batch'\n": "admit must return Objective(name), Tenant(name), Reject(reason)",
    ADMIT + "    return Objective('lost')\n": "'lost', which is no objective of the settings",
    ADMIT + "    return Reject('')\n": "not a Reject",
    ADMIT + "    return Tenant(None)\n": "not a Tenant",
    ADMIT + "    return Tenant('')\n": "not a Tenant without a text of 1 to 500 characters",
    ADMIT + "    return Tenant('x' * 501)\n": "not a Tenant without a text of 1 to 500 characters",
    FILTER + "    return endpoint.labels['zone'] == 'a'\n": (
        "filter fails for an example request at gpu-1: KeyError: 'zone' (mine.py, line 4)"
    ),
    FILTER + "    raise SystemExit\n": "filter fails for an example request at gpu-1: SystemExit",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_rule_is_named_with_what_is_wrong(tmp_path: Path, text: str) -> None:
    """Each method is tried with an example, so a wrong answer shows before a request comes."""
    write(tmp_path, RULE + (text or "  pass\n"))
    with pytest.raises(RuleError) as caught:
        load_rules(["mine:Mine"], tmp_path, [v1.Endpoint(name="gpu-1")], {"batch": 1})
    assert str(caught.value).startswith("mine:Mine: ")
    assert WRONG[text] in str(caught.value)


def test_a_rule_that_is_not_there_is_named(tmp_path: Path) -> None:
    write(tmp_path, "x = 1\nclass Plain:\n  pass\n")
    write(tmp_path, "import not_installed_at_all\n", "needs.py")
    write(tmp_path, "class Mine(:\n", "broken.py")
    write(tmp_path, "1 / 0\n", "raises.py")
    expected = {
        "lost:Mine": f"there is no module lost in {tmp_path} or installed",
        "lost.deep:Mine": "there is no module lost.deep in",
        "mine:Mine": "mine has no Mine",
        "mine:x": "it must be a subclass of extproc.rules.v1.Rule",
        "mine:Plain": "it must be a subclass of extproc.rules.v1.Rule",
        "needs:Mine": "needs cannot be imported: ModuleNotFoundError: No module named",
        "broken:Mine": "broken cannot be imported: SyntaxError: invalid syntax (line 1)",
        "raises:Mine": "raises cannot be imported: ZeroDivisionError: division by zero (raises.py",
    }
    for name, text in expected.items():
        with pytest.raises(RuleError) as caught:
            load_rules([name], tmp_path)
        assert str(caught.value).startswith(f"{name}: ") and text in str(caught.value)


def test_two_rules_of_one_name_would_not_be_told_apart(tmp_path: Path) -> None:
    """Explanations, metrics and problems know a rule by its name."""
    for name in ("one.py", "two.py"):
        write(tmp_path, f"{RULE}{COST}    return 1\n", name)
    with pytest.raises(RuleError, match="another rule has the name Mine"):
        load_rules(["one:Mine", "two:Mine"], tmp_path)
