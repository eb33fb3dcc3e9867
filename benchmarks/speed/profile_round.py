"""Profile a round: the time of kernels on a GPU or operations on a CPU, and the rest.

    python benchmarks/speed/profile_round.py pfl-cifar lmd-shards-100 --precision tf32 --out results

OUT/profile.csv has the TOP longest operations of each workload, and the sum of all. `rest`, on a GPU, is the time of
the same round without the profiler minus that sum: gaps between launches, and host time. Earlier rounds capture all
graphs.
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
from record_rows import update_csv
from systems import RunOptions, Unskew, time_call
from workloads import WORKLOADS, Workload

from unskew.base.environment import commit_hash, device_name
from unskew.runner.process_setup import precision

TOP, WARMUP = 15, 4
COLUMNS = ["workload", "method", "device", "precision", "what", "ms", "launches", "share", "commit"]
KEY = COLUMNS[:4]


def profile_rows(workload: Workload, options: RunOptions) -> pd.DataFrame:
    """One round of `unskew-stacked`: the longest operations, then their total, the rest and the round."""
    cuda = options.device.startswith("cuda")
    system = Unskew(workload, "stacked", options)
    ms = [1000 * time_call(system, options) for _ in range(WARMUP)][-1]
    system.skip(-1)
    with profile(activities=[ProfilerActivity.CUDA if cuda else ProfilerActivity.CPU]) as profiler:
        time_call(system, options)
    system.close()
    time_attribute = "self_device_time_total" if cuda else "self_cpu_time_total"
    events = [e for e in profiler.key_averages() if not cuda or e.device_type == DeviceType.CUDA]
    longest = sorted(((getattr(e, time_attribute) / 1000, e.count, e.key) for e in events), reverse=True)
    total, count = sum(t for t, _, _ in longest), sum(n for _, n, _ in longest)
    named = [(key[:80], t, n) for t, n, key in longest[:TOP]]
    rows = [*named, ("all", total, count), *([("rest", ms - total, 0)] if cuda else []), ("round", ms, 0)]
    common = (workload.name, workload.method, device_name(torch.device(options.device)), options.precision)
    lines = [(*common, operation, round(t, 3), n, round(t / ms, 4), commit_hash()) for operation, t, n in rows]
    return pd.DataFrame(lines, columns=COLUMNS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="+", choices=list(WORKLOADS))
    parser.add_argument("--method", help="method to use instead of the workload's")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    options = RunOptions(args.device, args.precision)
    for name in args.workloads:
        workload = WORKLOADS[name]
        with precision(args.precision):
            rows = profile_rows(replace(workload, method=args.method or workload.method), options)
        sys.stdout.write(f"{name}\n{rows[['what', 'ms', 'launches', 'share']].to_string(index=False)}\n")
        if args.out:
            update_csv(args.out / "profile.csv", rows, KEY)


if __name__ == "__main__":
    main()
