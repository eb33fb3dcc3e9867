"""Seconds that partitions of 50,000 labels take: python benchmarks/partitions.py"""

import sys
import time

import numpy as np

from unskew.data import skew
from unskew.data.partition import Dirichlet, split

CASES = {
    "dirichlet 0.1 over 1000 clients": Dirichlet(clients=1000, alpha=0.1),
    "dirichlet 0.05 over 100 clients, at least 10 rows": Dirichlet(clients=100, alpha=0.05, min=10),
    "dirichlet 0.01 over 20 clients": Dirichlet(clients=20, alpha=0.01),
}


def main() -> None:
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 5000))
    for name, partition in CASES.items():
        began = time.perf_counter()
        parts = split(partition, labels, 10, seed=0)
        seconds = time.perf_counter() - began
        sys.stdout.write(f"{name}: {seconds:.3f} s\n")
        for line in skew.describe(skew.counts(parts.rows, labels, 10), parts.notes):
            sys.stdout.write(f"    {line}\n")


if __name__ == "__main__":
    main()
