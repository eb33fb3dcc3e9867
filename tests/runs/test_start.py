"""What a run's start does not wait for: the slow imports that its first round has no use for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

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
