"""Every table of docs/speed.md that needs a GPU, one call after another, the most telling first.

    python benchmarks/speed/everything.py --out results --seconds 1500 [--pfl-python PATH]

Each call keeps its rows in OUT as it ends; one that fails is named at the end, and none begins after SECONDS. Without
pfl its rows stay as they are. With `--only flea,together` those are played alone.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
SPEED, ALL = [str(HERE)], "unskew-stacked,unskew-loop,bare-loop"
OURS = "unskew-stacked,bare-loop"  # the third is no faster in another precision
SCALES = [f"scale-{count}" for count in (10, 30, 100, 300, 1000)]
CALLS = {
    "cold": [str(HERE / "cold.py"), "fedlmd-lda", "method=fedlmd", "precision=tf32"],
    "kernels": [str(HERE / "kernels.py")],
    "pfl": [*SPEED, "pfl-cifar", "--systems", f"{ALL},pfl", "--precision", "tf32", "--rounds", "15"],
    "shards": [*SPEED, "lmd-shards-10", "lmd-ragged", "--systems", ALL, "--precision", "tf32", "--rounds", "5"],
    "agree": [*SPEED, "pfl-cifar", "lmd-shards-10", "lmd-ragged", "flea-mobilenet", "--systems", "", "--check"],
    "where": [str(HERE / "where.py"), "pfl-cifar", "lmd-shards-10", "lmd-shards-100", "flea-mobilenet",
              "--precision", "tf32"],
    "flea": [*SPEED, "flea-mobilenet", "flea-mobilenet-flea", "--systems", OURS, "--precision", "bf16",
             "--rounds", "5"],
    "shards-100": [*SPEED, "lmd-shards-100", "--systems", ALL, "--precision", "tf32", "--rounds", "5"],
    "flea-tf32": [*SPEED, "flea-mobilenet", "--systems", ALL, "--precision", "tf32", "--rounds", "5"],
    "together": [str(HERE / "together.py"), "fedlmd-shards", "precision=tf32"],
    "scale": [*SPEED, *SCALES[:3], "--systems", ALL, "--precision", "tf32", "--rounds", "5"],
    "scale-large": [*SPEED, *SCALES[3:], "--systems", ALL, "--precision", "tf32", "--rounds", "5"],
    "clients": [*SPEED, "scale-clients", "--systems", ALL, "--precision", "tf32", "--rounds", "3"],
    "half": [*SPEED, "pfl-cifar", "lmd-shards-10", "--systems", OURS, "--precision", "bf16", "--rounds", "5"],
    "single": [*SPEED, "lmd-shards-10", "--systems", OURS, "--precision", "float32", "--rounds", "5"],
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--only", default="", help=f"some of {', '.join(CALLS)}")
    parser.add_argument("--pfl-python", help="interpreter that has pfl and torch")
    args = parser.parse_args()
    asked = [name for name in args.only.split(",") if name] or list(CALLS)
    if unknown := sorted(set(asked) - set(CALLS)):
        parser.error(f"--only {','.join(unknown)}: expected some of {', '.join(CALLS)}")
    began, wrong = time.monotonic(), []
    for name in asked:
        if time.monotonic() - began > args.seconds:
            wrong.append(f"{name} (not begun)")
            continue
        words = [sys.executable, *CALLS[name], *([] if name == "kernels" else ["--out", str(args.out)])]
        words += ["--pfl-python", args.pfl_python] if name == "pfl" and args.pfl_python else []
        sys.stdout.write(f"{time.monotonic() - began:.0f} s  {name}\n")
        sys.stdout.flush()
        if subprocess.run(words).returncode:
            wrong.append(name)
    sys.exit(f"missing: {', '.join(wrong)}" if wrong else 0)


if __name__ == "__main__":
    main()
