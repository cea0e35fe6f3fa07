"""Claims about rigs/fuzz: the corpus that is kept finds nothing, nor do some changes of it.

Of compiled code, too: there this runs again, and no coverage could be watched.
"""

from __future__ import annotations

import os
import subprocess
import sys
from random import Random

import pytest

from rigs.fuzz.corpus import CORPUS, MAX_BYTES, ROOT, changed, inputs_of
from rigs.fuzz.reader import Reader
from rigs.fuzz.targets import TARGETS, check_of

CHANGES = {"settings": 3, "exchange": 20}
"""Of each input; those of other targets are quicker to check."""
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.mark.parametrize("target", TARGETS)
def test_the_corpus_finds_nothing(target: str) -> None:
    check = check_of(target)
    seeds = [file.read_bytes() for file in inputs_of(target)]
    assert len(seeds) >= 4
    random = Random(target)
    for file, data in zip(inputs_of(target), seeds, strict=True):
        check(data)
        for _ in range(CHANGES.get(target, 40)):
            other = changed(data, seeds, random)
            try:
                check(other)
            except Exception as error:
                raise AssertionError(f"{target}, changed from {file.name}: {other!r}") from error


def test_every_folder_is_a_targets() -> None:
    assert {folder.name for folder in CORPUS.iterdir()} == set(TARGETS)
    assert all(file.stat().st_size <= MAX_BYTES for name in TARGETS for file in inputs_of(name))


def test_changes_are_those_of_the_seed() -> None:
    seeds = [b'{"a":1}', b"row"]
    one, again = ([changed(seeds[0], seeds, Random(7)) for _ in range(5)] for _ in range(2))
    assert one == again
    assert len({changed(seeds[0], seeds, Random(number)) for number in range(50)}) > 25


def test_decisions_are_read_off_the_bytes() -> None:
    reader = Reader(b"\x05\x02ab\x01\x00c\xff")
    assert (reader.number(3), reader.few(), reader.some(), reader.flag()) == (2, b"ab", b"c", True)
    assert not reader
    assert (reader.number(9), reader.some(), reader.choice("xy")) == (0, b"", "x")


def replayed(before: str) -> subprocess.CompletedProcess[str]:
    """`--replay body` in a process of its own, `before` being done first."""
    code = f"import sys\n{before}\nfrom rigs.fuzz.__main__ import main\nsys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", code, "--replay", "body"],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_finding_is_reported_with_its_input() -> None:
    """And so says the exit code; here the parser of bodies raises where it has to be forgiving."""
    sound = replayed("")
    assert (sound.returncode, "none" in sound.stdout) == (0, True), sound
    broken = replayed(
        "import jiter\nread = jiter.from_json\n"
        "def strict(data, **how):\n"
        "    how.pop('partial_mode', None)\n"
        "    try:\n        return read(data, **how)\n"
        "    except ValueError as error:\n        raise OSError from error\n"
        "jiter.from_json = strict"
    )
    assert broken.returncode == 1, broken
    assert f"{CORPUS / 'body' / 'byte_order_mark_and_long'}: OSError()" in broken.stdout
