"""Many runs on one device: how long `unskew compare` takes for one seed, and for many, as many at once as it chooses.

    python benchmarks/speed/together.py fedlmd-shards precision=tf32 --runs 12 --out results

Whole commands, start of the processes and evaluation included. Two rounds come first, so that none compiles kernels.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd
import torch

sys.path.insert(0, str(Path(__file__).parent))
from kept import keep

from unskew.base.environment import commit, device_name

COLUMNS = ["recipe", "changes", "runs", "device", "seconds", "times_one", "commit"]


def command(recipe: str, changes: list[str], runs: int) -> float:
    """Seconds of one `unskew compare` of that many seeds of FedAvg."""
    with tempfile.TemporaryDirectory() as out:
        words = [sys.executable, "-m", "unskew.cli", "compare", recipe, *changes, "--methods", "fedavg"]
        words += ["--seeds", f"0-{runs - 1}" if runs > 1 else "0", "--out", out]
        began = time.perf_counter()
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(done.stderr)
        return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("changes", nargs="*", help="key=value, as of `unskew run`")
    parser.add_argument("--runs", type=int, default=12)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    asked = dict(change.partition("=")[::2] for change in args.changes).get("device", "auto")
    there = "cuda" if torch.cuda.is_available() else "cpu"
    device = device_name(torch.device(there if asked == "auto" else asked))
    command(args.recipe, [*args.changes, "rounds=2"], 1)
    alone = command(args.recipe, args.changes, 1)
    found = {1: alone, args.runs: command(args.recipe, args.changes, args.runs)}
    for runs, took in found.items():
        sys.stdout.write(f"{args.recipe}: {runs} {took:.1f} s, {took / alone:.2f} times one\n")
    lines = [
        (args.recipe, " ".join(args.changes), runs, device, round(took, 1), round(took / alone, 2), commit())
        for runs, took in found.items()
    ]
    if args.out:
        keep(args.out / "together.csv", pd.DataFrame(lines, columns=COLUMNS), COLUMNS[:4])


if __name__ == "__main__":
    main()
