"""Run every benchmark of docs/speed.md that needs a GPU, the most important first.

    python benchmarks/speed/run_all.py --out results --seconds 1500 [--pfl-python PATH]

Each benchmark writes its rows to OUT when it ends. Failed ones are listed at the end, and none is started after
SECONDS. Without pfl, its recorded rows stay. `--only flea,together` runs only these.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).parent
SPEED, ALL = [str(FOLDER)], "unskew-stacked,unskew-loop,bare-loop"
TWO = "unskew-stacked,bare-loop"  # unskew-loop is no faster in another precision
SCALES = [f"scale-{count}" for count in (10, 30, 100, 300, 1000)]
CALLS = {
    "cold": [str(FOLDER / "cold.py"), "fedlmd-lda", "method=fedlmd", "precision=tf32"],
    "kernels": [str(FOLDER / "kernels.py")],
    "pfl": [*SPEED, "pfl-cifar", "--systems", f"{ALL},pfl", "--precision", "tf32", "--rounds", "15"],
    "shards": [*SPEED, "lmd-shards-10", "lmd-ragged", "--systems", ALL, "--precision", "tf32", "--rounds", "5"],
    "agree": [*SPEED, "pfl-cifar", "lmd-shards-10", "lmd-ragged", "flea-mobilenet", "--systems", "", "--check"],
    "where": [str(FOLDER / "profile_round.py"), "pfl-cifar", "lmd-shards-10", "lmd-shards-100", "flea-mobilenet",
              "--precision", "tf32"],
    "flea": [*SPEED, "flea-mobilenet", "flea-mobilenet-flea", "--systems", TWO, "--precision", "bf16",
             "--rounds", "5"],
    "shards-100": [*SPEED, "lmd-shards-100", "--systems", ALL, "--precision", "tf32", "--rounds", "5"],
    "flea-tf32": [*SPEED, "flea-mobilenet", "--systems", ALL, "--precision", "tf32", "--rounds", "5"],
    "together": [str(FOLDER / "concurrent_runs.py"), "fedlmd-shards", "precision=tf32"],
    "scale": [*SPEED, *SCALES[:3], "--systems", ALL, "--precision", "tf32", "--rounds", "5"],
    "scale-large": [*SPEED, *SCALES[3:], "--systems", ALL, "--precision", "tf32", "--rounds", "5"],
    "clients": [*SPEED, "scale-clients", "--systems", ALL, "--precision", "tf32", "--rounds", "3"],
    "half": [*SPEED, "pfl-cifar", "lmd-shards-10", "--systems", TWO, "--precision", "bf16", "--rounds", "5"],
    "single": [*SPEED, "lmd-shards-10", "--systems", TWO, "--precision", "float32", "--rounds", "5"],
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--only", default="", help=f"some of {', '.join(CALLS)}")
    parser.add_argument("--pfl-python", help="interpreter that has pfl and torch")
    args = parser.parse_args()
    chosen = [name for name in args.only.split(",") if name] or list(CALLS)
    if unknown := sorted(set(chosen) - set(CALLS)):
        parser.error(f"--only {','.join(unknown)}: expected some of {', '.join(CALLS)}")
    started, missing = time.monotonic(), []
    for name in chosen:
        if time.monotonic() - started > args.seconds:
            missing.append(f"{name} (not started)")
            continue
        command = [sys.executable, *CALLS[name], *([] if name == "kernels" else ["--out", str(args.out)])]
        command += ["--pfl-python", args.pfl_python] if name == "pfl" and args.pfl_python else []
        sys.stdout.write(f"{time.monotonic() - started:.0f} s  {name}\n")
        sys.stdout.flush()
        if subprocess.run(command).returncode:
            missing.append(name)
    sys.exit(f"missing: {', '.join(missing)}" if missing else 0)


if __name__ == "__main__":
    main()
