"""Plan time and peak host memory by number of clients, each count in a fresh process."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace

from memory import PeakMemory, memory
from workloads import WORKLOADS, Workload

COUNTS = (10_000, 100_000, 1_000_000)
COHORT = 1000


def print_scaling(load: Workload) -> None:
    """Print a line for each number of clients."""
    for count in COUNTS:
        process = subprocess.run(
            [sys.executable, __file__, load.name, str(count)], stdout=subprocess.PIPE, text=True, check=True
        )
        result = json.loads(process.stdout.splitlines()[-1])
        sys.stdout.write(
            f"{load.name} {count:>9,} clients: ready in {result['ready_s']:.2f} s, plan of a round of {COHORT} "
            f"{result['plan_s']:.2f} s, round {result['round_s']:.1f} s, host memory {result['before_mib']:.0f} MiB "
            f"with the data, at most {result['peak_mib']:.0f} MiB\n"
        )
        sys.stdout.flush()


def measure(load: Workload, count: int) -> dict[str, float]:
    """Set up, plan three rounds like the stacked engine, and run one."""
    from unskew.client.feed import BatchFeed
    from unskew.runner.prepare_run import prepare

    load = replace(load, partition=load.partition | {"clients": count}, participation=(COHORT + 0.5) / count)
    data, net = load.data(), load.net()
    before, peak, started = memory(), PeakMemory(), time.perf_counter()
    peak.start()
    fed = prepare(load.experiment("loop", "cpu", "float32", 5), data=data, model=net).federation
    ready, context = time.perf_counter(), fed.engine.context
    snap = fed.start()
    for number in (1, 2, 3):
        clients = fed.sampling.sampled(number)
        BatchFeed(
            context, context.client_rows, number, fed.received(snap), clients, [fed.store.get(k) for k in clients]
        )
    planned = time.perf_counter()
    fed.run_round(snap)
    trained = time.perf_counter()
    fed.engine.close()
    return {
        "ready_s": ready - started,
        "plan_s": (planned - ready) / 3,
        "round_s": trained - planned,
        "before_mib": before,
        "peak_mib": peak.mib,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure(WORKLOADS[sys.argv[1]], int(sys.argv[2]))) + "\n")
