"""What a run's start does not wait for: the slow imports that its first round has no use for."""

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

def look(phase, round):
    if phase == "checkpoint":
        print(json.dumps([name for name in {slow!r} if name in sys.modules]))
        raise KeyboardInterrupt

experiment = us.load_recipe("quick", ["rounds=2", "engine.workers=1", "local.steps=1", "device=cpu"])[1]
us.run(experiment, out=sys.argv[1], phase=look)
"""


def test_first_round_is_over_before_any_slow_import(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM.format(slow=SLOW), str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.stdout, done.stderr
    assert json.loads(done.stdout) == []


COMMAND = """
import json, sys
from unskew import cli
from unskew.compare import process_pool

def look(*_):
    print(json.dumps([name for name in {slow!r} if name in sys.modules]), flush=True)
    raise SystemExit

process_pool._Crew.work = look
try:
    cli.main()
finally:
    look()
"""


@pytest.mark.parametrize("words", ["compare quick --methods fedavg --out out", "methods", "partition quick"])
def test_a_command_does_without_what_it_has_no_use_for(words: str, tmp_path: Path) -> None:
    """A comparison until its first process would start; the others to their end."""
    slow = ("matplotlib",) if words.startswith("partition") else ("matplotlib", "pandas", "scipy")
    command = [sys.executable, "-c", COMMAND.format(slow=slow), *words.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert json.loads(done.stdout.splitlines()[-1]) == [], done.stderr
