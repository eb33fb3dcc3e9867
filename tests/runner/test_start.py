"""Slow imports that a run does not need before its first round are not part of its start."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SLOW = ("matplotlib", "pandas", "pyarrow", "sklearn", "scipy", "sympy", "torch._dynamo", "torch._inductor")
PROGRAM = """
import json, sys
import unskew as us

def print_imports(phase, round):
    if phase == "checkpoint":
        print(json.dumps([name for name in {slow!r} if name in sys.modules]))
        raise KeyboardInterrupt

experiment = us.load_recipe("quick", ["rounds=2", "engine.workers=1", "local.steps=1", "device=cpu"])[1]
us.run(experiment, out=sys.argv[1], phase=print_imports)
"""


def test_first_round_ends_before_any_slow_import(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM.format(slow=SLOW), str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.stdout, done.stderr
    assert json.loads(done.stdout) == []


COMMAND = """
import json, sys
from unskew import cli
from unskew.comparisons import process_pool

def print_imports(*_):
    print(json.dumps([name for name in {slow!r} if name in sys.modules]), flush=True)
    raise SystemExit

process_pool._Pool.run = print_imports
try:
    cli.main()
finally:
    print_imports()
"""


@pytest.mark.parametrize("words", ["compare quick --methods fedavg --out out", "methods", "partition quick"])
def test_a_command_imports_nothing_slow_that_it_does_not_need(words: str, tmp_path: Path) -> None:
    """A comparison up to the start of its first process; the other commands to their end."""
    slow = ("matplotlib",) if words.startswith("partition") else ("matplotlib", "pandas", "scipy")
    command = [sys.executable, "-c", COMMAND.format(slow=slow), *words.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert json.loads(done.stdout.splitlines()[-1]) == [], done.stderr
