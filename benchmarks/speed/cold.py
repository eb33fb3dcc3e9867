"""A first run: how long `unskew run` takes from typing, with every kernel compiled anew, 200 rounds with evaluation.

    python benchmarks/speed/cold.py fedlmd-lda method=fedlmd precision=tf32 --out results

Rows are synthetic, in CIFAR-10's shapes, made by NumPy. Call it first on a fresh machine: this file imports no torch
before the command has ended, whose libraries take a machine that has not read them yet many seconds.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

COLUMNS = ["recipe", "changes", "device", "seconds", "rounds_s", "first_round_s", "commit"]


def rows(path: Path) -> None:
    """An .npz in the shapes of CIFAR-10; balanced labels, since partitions look at nothing else."""
    import numpy as np

    generator = np.random.default_rng(0)
    x, y = generator.integers(256, size=(60_000, 3, 32, 32), dtype=np.uint8), np.arange(60_000) % 10
    np.savez(path, x=x, y=y, split=np.arange(60_000) >= 50_000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("changes", nargs="*", help="key=value, as of `unskew run`")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data, run = Path(folder) / "pixels.npz", Path(folder) / "run"
        rows(data)
        words = [sys.executable, "-m", "unskew.cli", "run", args.recipe, f"data.name={data}", *args.changes]
        began = time.perf_counter()
        done = subprocess.run([*words, "--out", str(run)], env=os.environ | {"TRITON_CACHE_DIR": f"{folder}/kernels"})
        took = time.perf_counter() - began
        if done.returncode:
            raise SystemExit(f"unskew ended with code {done.returncode}")
        import pandas as pd

        times = pd.read_parquet(run / "times.parquet")
    sys.path.insert(0, str(Path(__file__).parent))
    from kept import keep

    from unskew.base.environment import commit, device_name, pick_device

    played, first = times["seconds"].sum(), times.loc[times["round"] == times["round"].min(), "seconds"].sum()
    asked = dict(change.partition("=")[::2] for change in args.changes).get("device", "auto")
    device = device_name(pick_device(asked))
    line = (args.recipe, " ".join(args.changes), device, round(took, 1), round(played, 1), round(first, 1), commit())
    sys.stdout.write(f"{args.recipe}: {took:.1f} s from typing, {played:.1f} s of rounds, the first {first:.1f} s\n")
    if args.out:
        keep(args.out / "cold.csv", pd.DataFrame([line], columns=COLUMNS), COLUMNS[:3])


if __name__ == "__main__":
    main()
