"""Memory of 10,000 clients with 50 images each, without the data: a few rounds in a fresh process for each method.

    python benchmarks/speed/memory.py fedavg scaffold moon --rounds 3 --workers 2

Measures this process and its workers together (shared pages once), 20 times a second.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from nets import pfl_cnn
from workloads import PFL, Workload

COHORT = 50


def memory() -> float:
    """MiB of this process and its child processes; pages that several of them share count once."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    kib = 0
    for process in ("self", *children):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            kib += int(line.split()[1]) if line.startswith("Pss:") else 0
    return kib / 1024


class PeakMemory(threading.Thread):
    """Records the peak memory in the background."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.mib, self.stopped = 0.0, threading.Event()

    def run(self) -> None:
        while not self.stopped.wait(0.05):
            self.mib = max(self.mib, memory())


def measure(method: str, rounds: int, workers: int) -> str:
    """Prepare a long run and run its first rounds."""
    from unskew.runner.prepare_run import prepare

    load = Workload(method, {"name": "iid", "clients": 10_000}, COHORT / 10_000, PFL, method=method, images=500_000)
    data, net = load.data(), pfl_cnn()
    experiment = load.experiment("loop", "cpu", "float32", 1000)
    engine = experiment.engine.model_copy(update={"workers": workers})
    before, peak = memory(), PeakMemory()
    peak.start()
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state"
        fed = prepare(
            experiment.model_copy(update={"engine": engine}), data=data, model=net, state_dir=state
        ).federation
        snap = fed.start()
        for _ in range(rounds):
            snap, _ = fed.run_round(snap)
            fed.store.commit()
        peak.stopped.set()
        files = sum(file.stat().st_size for file in state.glob("*")) / 2**20
        fed.engine.close()
        fed.store.close()
    return (
        f"{method}: {before:.0f} MiB with the data, at most {peak.mib:.0f} MiB in {rounds} rounds, "
        f"{peak.mib - before:.0f} MiB more; {type(fed.store.storage).__name__}, {files:.0f} MiB in files"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="+")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    if len(args.methods) == 1:
        sys.stdout.write(measure(args.methods[0], args.rounds, args.workers) + "\n")
    for method in args.methods if len(args.methods) > 1 else ():
        options = ["--rounds", str(args.rounds), "--workers", str(args.workers)]
        subprocess.run([sys.executable, __file__, method, *options], check=True)


if __name__ == "__main__":
    main()
