"""Time partitions of 50,000 labels.

python benchmarks/partitions.py
python benchmarks/partitions.py --known  # draws published splits from the start and writes data/rng_checkpoints.json
"""

import json
import sys
import time
from pathlib import Path

import numpy as np

from unskew.data import draw_split, label_skew, rng_checkpoints
from unskew.data.partition import Dirichlet, split

CASES = {
    "dirichlet 0.1 over 1000 clients": Dirichlet(clients=1000, alpha=0.1),
    "dirichlet 0.05 over 100 clients, at least 10 rows": Dirichlet(clients=100, alpha=0.05, min=10),
    "dirichlet 0.01 over 20 clients": Dirichlet(clients=20, alpha=0.01),
}
# Seed, rows of each class, clients, alpha, cap, min rows: CIFAR-10 in FedLMD's Table 3, the paper's draw and two more
PUBLISHED = [(seed, [5000] * 10, 100, 0.05, True, 10) for seed in (19940817, 1, 2)]
CHECKPOINTS = Path(rng_checkpoints.__file__).with_name("rng_checkpoints.json")


def draw_with_checkpoint(
    seed: int, sizes: list[int], clients: int, alpha: float, cap: bool, min_rows: int
) -> tuple[str, dict]:
    """Name and entry of a split's checkpoint, from drawing it until it is accepted."""
    old, piles = np.random.RandomState(seed), [np.arange(n) for n in sizes]
    name = rng_checkpoints.checkpoint_name(old, (sizes, clients, alpha, cap, min_rows))
    with np.errstate(invalid="ignore"):
        return name, rng_checkpoints.make_checkpoint(
            old, lambda: draw_split.draw_released_dirichlet_once(old, piles, clients, alpha, cap)[2] >= min_rows
        )


def write_checkpoints() -> None:
    checkpoints = dict(draw_with_checkpoint(*case) for case in PUBLISHED)
    for (seed, *_), entry in zip(PUBLISHED, checkpoints.values()):
        sys.stdout.write(f"seed {seed}: draw {entry['failed'] + 1}\n")
    CHECKPOINTS.write_text(json.dumps(checkpoints, indent=1) + "\n")


def main() -> None:
    if sys.argv[1:] == ["--known"]:
        return write_checkpoints()
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 5000))
    for name, partition in CASES.items():
        started = time.perf_counter()
        parts = split(partition, labels, 10, seed=0)
        seconds = time.perf_counter() - started
        sys.stdout.write(f"{name}: {seconds:.3f} s\n")
        for line in label_skew.describe(label_skew.counts(parts.rows, labels, 10), parts.notes):
            sys.stdout.write(f"    {line}\n")


if __name__ == "__main__":
    main()
