"""The overhead of methods over FedAvg's time per round on one engine; rounds alternate, for the same machine load.

    python benchmarks/speed/overhead.py --engine stacked --device cuda --precision tf32 --out results/overhead.csv
    python benchmarks/speed/overhead.py --engine loop --device cpu --rounds 5 --cohort 1

Round t has the same participants, rows and steps for every method, so the ratio to FedAvg is taken round by round; the
overhead is the median of these ratios. `--cohort` trains fewer clients a round, which does not change the overhead of a
step. On the CPU the clock is the process time, which other work on the machine affects less.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path

import pandas as pd
import torch

sys.path.insert(0, str(Path(__file__).parent))
from record_rows import update_csv
from systems import RunOptions, Unskew
from workloads import WORKLOADS

from unskew.base.environment import __version__, commit_hash, device_name
from unskew.runner.process_setup import precision as set_precision

BASE = "fedavg"
WARMUP = 3  # rounds that are not counted: memory is allocated, kernels are chosen, graphs are captured
KEY = ["workload", "method", "engine", "device", "precision", "cohort"]
COLUMNS = [*KEY, "rounds", "ms_per_round", "overhead_percent", "spread_percent", "versions", "commit"]


def time_rounds(systems: dict[str, Unskew], rounds: int, device: str) -> pd.DataFrame:
    """Milliseconds by round and method, the methods in another order every round."""
    on_gpu = device.startswith("cuda")
    wait, clock = (torch.cuda.synchronize, time.perf_counter) if on_gpu else (lambda: None, time.process_time)
    names, rows = list(systems), []
    for t in range(rounds + WARMUP):
        row = {}
        for name in names[t % len(names) :] + names[: t % len(names)]:
            wait()
            started = clock()
            systems[name]()
            wait()
            row[name] = 1000 * (clock() - started)
        rows.append(row)
    return pd.DataFrame(rows[WARMUP:])[names]


def lines(times: pd.DataFrame, **columns: object) -> list[dict]:
    """A line per method: the median time, and median and interquartile range of the overheads."""
    rows = []
    for name in times.columns:
        overhead = 100 * (times[name] / times[BASE] - 1)
        rows.append(
            columns
            | {
                "method": name,
                "rounds": len(times),
                "ms_per_round": round(statistics.median(times[name]), 2),
                "overhead_percent": round(statistics.median(overhead), 2),
                "spread_percent": round(overhead.quantile(0.75) - overhead.quantile(0.25), 2),
                "versions": f"unskew {__version__} torch {torch.__version__}",
                "commit": commit_hash(),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", default="lmd-shards-10", choices=list(WORKLOADS))
    parser.add_argument("--methods", default="fedlmd,fedlmd-tf", help="in addition to FedAvg")
    parser.add_argument("--engine", default="stacked", choices=["loop", "stacked"])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--cohort", type=int, help="clients a round (default: as in the workload)")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    workload = WORKLOADS[args.workload]
    total = workload.partition["clients"]
    cohort = args.cohort or int(workload.participation * total)
    workload = replace(workload, participation=(cohort + 0.5) / total if cohort < total else 1.0)
    names = list(dict.fromkeys([BASE, *args.methods.split(",")]))
    with set_precision(args.precision):
        options = RunOptions(args.device, args.precision)
        systems = {name: Unskew(replace(workload, method=name), args.engine, options) for name in names}
        times = time_rounds(systems, args.rounds, args.device)
        for each in systems.values():
            each.close()
    gc.collect()
    about = {"workload": workload.name, "engine": args.engine, "device": device_name(torch.device(args.device))}
    lines_per_method = lines(times, **about, precision=args.precision, cohort=cohort)
    for line in lines_per_method:
        sys.stdout.write(
            f"{line['engine']} {line['method']}: {line['ms_per_round']} ms a round, "
            f"{line['overhead_percent']:+.1f} % (spread {line['spread_percent']}) of {line['rounds']} rounds\n"
        )
    if args.out:
        update_csv(args.out, pd.DataFrame(lines_per_method)[COLUMNS], KEY)


if __name__ == "__main__":
    main()
