"""A cold start: how long a first `unskew run` of 200 rounds with evaluation takes, with every kernel compiled.

    python benchmarks/speed/cold.py fedlmd-lda method=fedlmd precision=tf32 --out results

Rows are synthetic, in CIFAR-10's shapes, made by NumPy. Call it first on a fresh machine: loading torch's libraries for
the first time takes many seconds, so this file does not import torch before the command has ended.
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


def write_rows(path: Path) -> None:
    """Write an .npz in the shapes of CIFAR-10, with balanced labels, the only thing that partitions depend on."""
    import numpy as np

    generator = np.random.default_rng(0)
    x, y = generator.integers(256, size=(60_000, 3, 32, 32), dtype=np.uint8), np.arange(60_000) % 10
    np.savez(path, x=x, y=y, split=np.arange(60_000) >= 50_000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("changes", nargs="*", help="key=value, as for `unskew run`")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data, run = Path(folder) / "pixels.npz", Path(folder) / "run"
        write_rows(data)
        command = [sys.executable, "-m", "unskew.cli", "run", args.recipe, f"data.name={data}", *args.changes]
        started = time.perf_counter()
        environment = os.environ | {"TRITON_CACHE_DIR": f"{folder}/kernels"}
        process = subprocess.run([*command, "--out", str(run)], env=environment)
        seconds = time.perf_counter() - started
        if process.returncode:
            raise SystemExit(f"unskew ended with code {process.returncode}")
        import pandas as pd

        times = pd.read_parquet(run / "times.parquet")
    sys.path.insert(0, str(Path(__file__).parent))
    from record_rows import update_csv

    from unskew.base.environment import commit_hash, device_name, pick_device

    in_rounds, first = times["seconds"].sum(), times.loc[times["round"] == times["round"].min(), "seconds"].sum()
    requested = dict(change.partition("=")[::2] for change in args.changes).get("device", "auto")
    device = device_name(pick_device(requested))
    times_s = (round(seconds, 1), round(in_rounds, 1), round(first, 1))
    line = (args.recipe, " ".join(args.changes), device, *times_s, commit_hash())
    sys.stdout.write(f"{args.recipe}: {seconds:.1f} s in all, {in_rounds:.1f} s of rounds, the first {first:.1f} s\n")
    if args.out:
        update_csv(args.out / "cold.csv", pd.DataFrame([line], columns=COLUMNS), COLUMNS[:3])


if __name__ == "__main__":
    main()
