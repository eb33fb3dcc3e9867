"""Concurrent runs on one device: how long `unskew compare` takes for one seed and for many, run in parallel.

    python benchmarks/speed/concurrent_runs.py fedlmd-shards precision=tf32 --runs 12 --out results

Times are of complete commands, with process start and evaluation. A run of two rounds compiles the kernels first.
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
from record_rows import update_csv

from unskew.base.environment import commit_hash, device_name

COLUMNS = ["recipe", "changes", "runs", "device", "seconds", "times_one", "commit"]


def time_compare(recipe: str, changes: list[str], runs: int) -> float:
    """Seconds of one `unskew compare` of FedAvg with `runs` seeds."""
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-m", "unskew.cli", "compare", recipe, *changes, "--methods", "fedavg"]
        command += ["--seeds", f"0-{runs - 1}" if runs > 1 else "0", "--out", out]
        started = time.perf_counter()
        process = subprocess.run(command, capture_output=True, text=True)
        if process.returncode:
            raise SystemExit(process.stderr)
        return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("changes", nargs="*", help="key=value, as for `unskew run`")
    parser.add_argument("--runs", type=int, default=12)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    requested = dict(change.partition("=")[::2] for change in args.changes).get("device", "auto")
    default_device = "cuda" if torch.cuda.is_available() else "cpu"
    device = device_name(torch.device(default_device if requested == "auto" else requested))
    time_compare(args.recipe, [*args.changes, "rounds=2"], 1)
    one_run = time_compare(args.recipe, args.changes, 1)
    seconds_by_runs = {1: one_run, args.runs: time_compare(args.recipe, args.changes, args.runs)}
    for runs, seconds in seconds_by_runs.items():
        sys.stdout.write(f"{args.recipe}: {runs} run(s) {seconds:.1f} s, {seconds / one_run:.2f} times one run\n")
    changes = " ".join(args.changes)
    lines = [
        (args.recipe, changes, runs, device, round(seconds, 1), round(seconds / one_run, 2), commit_hash())
        for runs, seconds in seconds_by_runs.items()
    ]
    if args.out:
        update_csv(args.out / "together.csv", pd.DataFrame(lines, columns=COLUMNS), COLUMNS[:4])


if __name__ == "__main__":
    main()
