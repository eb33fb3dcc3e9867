"""Format the recorded speeds as a table for the README: one line per workload, device and precision.

python benchmarks/speed/table.py results/speed.csv
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

DESCRIPTIONS = {
    "pfl-cifar": "pfl's CIFAR-10 benchmark: 50 of 1000 users a round, 50 images each",
    "lmd-shards-10": "FedLMD's setting: 10 of 100 clients, 500 augmented images, 5 epochs, cnn",
    "lmd-shards-100": "the same with all 100 clients a round",
    "lmd-ragged": "the same under Dirichlet 0.05 with FedLMD's teacher",
    "scale-10": "10 clients, 50 images, 5 epochs, cnn",
    "scale-100": "the same with 100 clients",
    "scale-1000": "the same with 1000 clients",
    "scale-clients": "1000 of a million clients, rows made on demand, mlp",
    "flea-mobilenet": "50 of 500 clients, 100 images, 5 epochs, mobilenet_v2 with BatchNorm",
    "flea-mobilenet-flea": "the same with FLea",
}
SYSTEMS = ("unskew-stacked", "unskew-loop", "bare-loop", "pfl")


def table(path: Path) -> str:
    """Milliseconds per round, the speed relative to the bare loop, and the time relative to the lower bound."""
    rows = pd.read_csv(path)
    columns = (f"{name}, ms" for name in SYSTEMS)
    head = ["workload", "device", "precision", *columns, "speed-up over bare loop", "time / floor"]
    lines = [head, ["---"] * len(head)]
    keys = [name for name in DESCRIPTIONS if name in set(rows["workload"])]
    for key in keys:
        of_workload = rows[rows["workload"] == key]
        for (device, precision), group in of_workload.groupby(["device", "precision"], sort=True):
            by = group.set_index("system")
            best = by.loc["unskew-stacked" if "unskew-stacked" in by.index else "unskew-loop"]
            times = [_number(by["ms_per_round"].get(name)) for name in SYSTEMS]
            ratios = [
                f"{best[name]:.1f} x" if best[name] == best[name] else ""
                for name in ("ratio_to_bare_loop", "ratio_to_floor")
            ]
            lines.append([f"`{key}`", device, precision, *times, *ratios])
    text = "".join("| " + " | ".join(line) + " |\n" for line in lines)
    return text + "\n" + "".join(f"- `{key}`: {DESCRIPTIONS[key]}.\n" for key in keys)


def _number(value: float | None) -> str:
    return "" if value is None or value != value else f"{value:.0f}" if value >= 100 else f"{value:.1f}"


if __name__ == "__main__":
    sys.stdout.write(table(Path(sys.argv[1])))
