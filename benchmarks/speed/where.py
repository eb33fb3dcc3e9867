"""Where a round's time goes: kernels by their time on a GPU, operations on a CPU, and what is left between them.

    python benchmarks/speed/where.py pfl-cifar lmd-shards-100 --precision tf32 --out results

OUT/profile.csv has the TOP longest of each workload and their sum. `rest`, on a GPU, is the time of the same round
without the profiler less that sum: gaps between launches, and the host. Rounds before it are played until all is
recorded.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

sys.path.insert(0, str(Path(__file__).parent))
from kept import keep
from systems import How, Unskew, seconds
from workloads import WORKLOADS, Workload

from unskew.base.environment import commit, device_name
from unskew.runner.process_setup import precision

TOP, BEFORE = 15, 4
COLUMNS = ["workload", "method", "device", "precision", "what", "ms", "launches", "share", "commit"]
KEY = COLUMNS[:4]


def lines(load: Workload, how: How) -> pd.DataFrame:
    """One round of `unskew-stacked`: the longest first, then all, then the rest."""
    cuda = how.device.startswith("cuda")
    player = Unskew(load, "stacked", how)
    ms = [1000 * seconds(player, how) for _ in range(BEFORE)][-1]
    player.skip(-1)
    with profile(activities=[ProfilerActivity.CUDA if cuda else ProfilerActivity.CPU]) as seen:
        seconds(player, how)
    player.close()
    own = "self_device_time_total" if cuda else "self_cpu_time_total"
    events = [e for e in seen.key_averages() if not cuda or e.device_type == DeviceType.CUDA]
    found = sorted(((getattr(e, own) / 1000, e.count, e.key) for e in events), reverse=True)
    total, count = sum(t for t, _, _ in found), sum(n for _, n, _ in found)
    named = [(key[:80], t, n) for t, n, key in found[:TOP]]
    rows = [*named, ("all", total, count), *([("rest", ms - total, 0)] if cuda else []), ("round", ms, 0)]
    start = (load.name, load.method, device_name(torch.device(how.device)), how.precision)
    return pd.DataFrame(
        [(*start, what, round(t, 3), n, round(t / ms, 4), commit()) for what, t, n in rows], columns=COLUMNS
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="+", choices=list(WORKLOADS))
    parser.add_argument("--method", help="in place of the workload's")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    how = How(args.device, args.precision)
    for name in args.workloads:
        load = WORKLOADS[name]
        with precision(args.precision):
            found = lines(replace(load, method=args.method or load.method), how)
        sys.stdout.write(f"{name}\n{found[['what', 'ms', 'launches', 'share']].to_string(index=False)}\n")
        if args.out:
            keep(args.out / "profile.csv", found, KEY)


if __name__ == "__main__":
    main()
