"""What methods add to FedAvg's time per round, on one engine: rounds in turn, so that all see the same machine.

    python benchmarks/speed/overhead.py --engine stacked --device cuda --precision tf32 --out results/overhead.csv
    python benchmarks/speed/overhead.py --engine loop --device cpu --rounds 5 --cohort 1

Round t has the same participants, rows and steps for every method, so their ratio to FedAvg's is taken round by round;
the overhead is the median of these ratios. `--cohort` plays fewer clients a round: what a step adds does not depend on
it. On the CPU the clock is that of the process, which other work on the machine moves less.
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
from kept import keep
from systems import How, Unskew
from workloads import WORKLOADS

from unskew.base.environment import __version__, commit, device_name
from unskew.runner.process_setup import precision as set_precision

BASE = "fedavg"
WARM = 3  # rounds that are not counted: memory is allocated, kernels are chosen, graphs are recorded
KEY = ["workload", "method", "engine", "device", "precision", "cohort"]
COLUMNS = [*KEY, "rounds", "ms_per_round", "overhead_percent", "spread_percent", "versions", "commit"]


def timed(players: dict[str, Unskew], rounds: int, device: str) -> pd.DataFrame:
    """Milliseconds by round and method, the methods in another order every round."""
    on_gpu = device.startswith("cuda")
    wait, clock = (torch.cuda.synchronize, time.perf_counter) if on_gpu else (lambda: None, time.process_time)
    names, rows = list(players), []
    for t in range(rounds + WARM):
        row = {}
        for name in names[t % len(names) :] + names[: t % len(names)]:
            wait()
            began = clock()
            players[name]()
            wait()
            row[name] = 1000 * (clock() - began)
        rows.append(row)
    return pd.DataFrame(rows[WARM:])[names]


def lines(times: pd.DataFrame, **about: object) -> list[dict]:
    """A line per method: median of the times, median and quartiles' distance of the ratios."""
    found = []
    for name in times.columns:
        more = 100 * (times[name] / times[BASE] - 1)
        found.append(
            about
            | {
                "method": name,
                "rounds": len(times),
                "ms_per_round": round(statistics.median(times[name]), 2),
                "overhead_percent": round(statistics.median(more), 2),
                "spread_percent": round(more.quantile(0.75) - more.quantile(0.25), 2),
                "versions": f"unskew {__version__} torch {torch.__version__}",
                "commit": commit(),
            }
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", default="lmd-shards-10", choices=list(WORKLOADS))
    parser.add_argument("--methods", default="fedlmd,fedlmd-tf", help="beside FedAvg")
    parser.add_argument("--engine", default="stacked", choices=["loop", "stacked"])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--cohort", type=int, help="clients a round; as in the workload without it")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    load = WORKLOADS[args.workload]
    total = load.partition["clients"]
    cohort = args.cohort or int(load.participation * total)
    load = replace(load, participation=(cohort + 0.5) / total if cohort < total else 1.0)
    names = list(dict.fromkeys([BASE, *args.methods.split(",")]))
    with set_precision(args.precision):
        how = How(args.device, args.precision)
        made = {name: Unskew(replace(load, method=name), args.engine, how) for name in names}
        times = timed(made, args.rounds, args.device)
        for each in made.values():
            each.close()
    gc.collect()
    about = {"workload": load.name, "engine": args.engine, "device": device_name(torch.device(args.device))}
    found = lines(times, **about, precision=args.precision, cohort=cohort)
    for line in found:
        sys.stdout.write(
            f"{line['engine']} {line['method']}: {line['ms_per_round']} ms a round, "
            f"{line['overhead_percent']:+.1f} % (spread {line['spread_percent']}) of {line['rounds']} rounds\n"
        )
    if args.out:
        keep(args.out, pd.DataFrame(found)[COLUMNS], KEY)


if __name__ == "__main__":
    main()
