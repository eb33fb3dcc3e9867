"""Time per round of unskew, of a bare PyTorch loop and of pfl-research, on the same machine in one call.

    python benchmarks/speed lmd-shards-10 pfl-cifar --device cuda --precision tf32 --rounds 20 --out results
    python benchmarks/speed pfl-cifar --device cpu --systems unskew-loop,bare-loop --workers 2 --rounds 20 --out results

A GPU runs one system after another; a CPU alternates rounds of all systems, because its speed varies over time. Each
system runs some warm-up rounds that do not count. OUT/speed.csv has a row for each system, OUT/speed-rounds.csv every
round. `--check` also compares the weights of `stacked` and `loop` after a few steps; only on a GPU does this check the
captured graphs and the kernels. `--systems pfl` needs pfl-research, in this environment or in that of `--pfl-python`.
`scale-clients` also prints plan time and memory for growing numbers of clients.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
import torch

sys.path.insert(0, str(Path(__file__).parent))
import clients
from floor import least_ms_and_samples
from pfl_process import Pfl, SkippedError
from record_rows import update_csv
from systems import VERSIONS, RunOptions, TimedSystem, Unskew, make_system, time_call
from workloads import GROUPS, WORKLOADS, Workload, workloads_named

from unskew.base.environment import commit_hash, device_name
from unskew.runner.process_setup import precision as set_precision

COLUMNS = [
    *("workload", "system", "device", "precision", "ms_per_round", "samples_per_s", "peak_mem_mib", "padding_share"),
    *("ratio_to_bare_loop", "ratio_to_floor", "versions", "commit"),
]
KEY = COLUMNS[:4]
MIN_ROUNDS, MAX_MS = 2, 30_000.0  # on a GPU a system stops after MAX_MS, but runs at least MIN_ROUNDS rounds
WARMUP = {"unskew-stacked": 3}  # rounds until all graphs are captured; 1 for the others
# Clients and steps of the engines' comparison, few because rounding errors grow with the steps. If clients differ in
# rows, ten clients with 1 to 6 steps each also cover the narrowing of the stack.
EQUAL_ROWS, UNEQUAL_ROWS = (3, {"steps": 1}), (10, {"epochs": 1, "batch": 500})
AGREEMENT_COLUMNS = ["workload", "device", "precision", "apart", "versions", "commit"]


@dataclass
class Timed:
    """One system's rounds in ms, beginning with the warm-up."""

    system: str
    ms: list[float]
    peak: float = float("nan")  # MiB on a GPU
    padding: float = 0.0
    versions: str = VERSIONS

    @property
    def warm(self) -> list[float]:
        return self.ms[WARMUP.get(self.system, 1) :]


def one_after_another(load: Workload, systems: list[str], options: RunOptions, rounds: int) -> list[Timed]:
    """Time each system separately on the device, so that its peak memory can be measured."""
    timings = []
    for system in systems:
        torch.cuda.reset_peak_memory_stats()
        system_run = make_or_skip(load, system, options)
        if system_run is None:
            continue
        ms = [1000 * time_call(system_run, options) for _ in range(WARMUP.get(system, 1))]
        system_run.skip(max(WARMUP.values()) - len(ms))  # so that all systems are timed on the same rounds
        ms += time_rounds(system_run, options, rounds)
        peak = system_run.peak if isinstance(system_run, Pfl) else torch.cuda.max_memory_allocated() / 2**20
        timings.append(Timed(system, ms, peak, system_run.padding, system_run.versions))
        system_run.close()
        del system_run
        gc.collect()
        torch.cuda.empty_cache()
    return timings


def time_rounds(run_round: Callable[[], None], options: RunOptions, rounds: int) -> list[float]:
    """The timed rounds, in ms; fewer for a slow system."""
    ms: list[float] = []
    while len(ms) < rounds and (len(ms) < MIN_ROUNDS or sum(ms) < MAX_MS):
        ms.append(1000 * time_call(run_round, options))
    return ms


def interleaved(load: Workload, systems: list[str], options: RunOptions, rounds: int) -> list[Timed]:
    """Time a round of each system in turn."""
    made = {system: make_or_skip(load, system, options) for system in systems}
    system_runs = {system: system_run for system, system_run in made.items() if system_run is not None}
    timings = {system: Timed(system, []) for system in system_runs}
    for _ in range(rounds + max((WARMUP.get(system, 1) for system in system_runs), default=0)):
        for system, system_run in system_runs.items():
            timings[system].ms.append(1000 * time_call(system_run, options))
    for system, system_run in system_runs.items():
        timings[system].padding, timings[system].versions = system_run.padding, system_run.versions
        system_run.close()
    return list(timings.values())


def measure(load: Workload, systems: list[str], options: RunOptions, rounds: int) -> list[Timed]:
    with set_precision(options.precision):
        return (one_after_another if options.device.startswith("cuda") else interleaved)(load, systems, options, rounds)


def make_or_skip(load: Workload, system: str, options: RunOptions) -> TimedSystem | None:
    """A system ready to run; prints the reason and returns None if it is unavailable."""
    try:
        return make_system(load, system, options)
    except SkippedError as reason:
        sys.stdout.write(f"{load.name} {system} skipped: {reason}\n")
        return None


def rows(load: Workload, timings: list[Timed], options: RunOptions, device: str) -> list[dict]:
    """Rows of speed.csv; also prints them, with the spread and the first round."""
    medians = {timed.system: statistics.median(timed.warm) for timed in timings}
    least, samples = least_ms_and_samples(load, options.device, options.precision)
    bare, lines = next((timed for timed in timings if timed.system == "bare-loop"), None), []
    for timed in timings:
        ratio = speedup(timed, bare)
        ms, warm = medians[timed.system], sorted(timed.warm)
        spread = warm[3 * len(warm) // 4] - warm[len(warm) // 4]
        lines.append(
            {
                "workload": load.name,
                "system": timed.system,
                "device": device,
                "precision": options.precision,
                "ms_per_round": round(ms, 2),
                "samples_per_s": round(1000 * samples / ms),
                "peak_mem_mib": round(timed.peak, 1),
                "padding_share": round(timed.padding, 4),
                "ratio_to_bare_loop": round(ratio, 3),
                "ratio_to_floor": round(ms / least, 2) if least else "",
                "versions": timed.versions,
                "commit": commit_hash(),
            }
        )
        sys.stdout.write(
            f"{load.name} {timed.system} {options.precision}: {ms:.2f} ms, spread {spread:.2f}, "
            f"first {timed.ms[0]:.0f}, {timed.peak:.0f} MiB, {ratio:.2f} x bare, "
            f"{lines[-1]['ratio_to_floor']} x floor\n"
        )
        sys.stdout.flush()
    return lines


def speedup(timed: Timed, other: Timed | None) -> float:
    """The ratio of median times over the rounds that both have run."""
    if other is None:
        return float("nan")
    common = min(len(timed.warm), len(other.warm))
    return statistics.median(other.warm[:common]) / statistics.median(timed.warm[:common])


def engine_distance(load: Workload, options: RunOptions) -> float:
    """Distance of the engines' weights after three short rounds, relative to how far the weights moved."""
    ends = []
    count, work = UNEQUAL_ROWS if load.partition["name"] == "dirichlet" else EQUAL_ROWS
    few = replace(load, participation=(count + 0.5) / load.partition["clients"], local=load.local | work)
    with set_precision(options.precision):
        for engine in ("loop", "stacked"):
            system_run = Unskew(few, engine, options)
            start = system_run.snap.model
            for _ in range(3):  # eager, captured, replayed
                system_run()
            ends.append({k: t.double().cpu() for k, t in system_run.snap.model.items() if t.is_floating_point()})
            system_run.close()
    moved = sum(float((ends[0][k] - start[k].double().cpu()).pow(2).sum()) for k in ends[0])
    apart = sum(float((ends[0][k] - ends[1][k]).pow(2).sum()) for k in ends[0])
    return (apart / moved) ** 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="+", choices=[*WORKLOADS, *GROUPS], metavar="WORKLOAD",
                        help=f"some of {', '.join([*WORKLOADS, *GROUPS])}")  # fmt: skip
    parser.add_argument("--systems", default="unskew-stacked,unskew-loop,bare-loop")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--workers", type=int, default=1, help="processes of unskew-loop, threads of the others")
    parser.add_argument("--check", action="store_true", help="also compare the engines' weights after a few steps")
    parser.add_argument("--pfl-python", default=sys.executable, help="interpreter that has pfl and torch")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    options = RunOptions(args.device, args.precision, args.workers, args.pfl_python)
    device = device_name(torch.device(args.device))
    if args.device == "cpu":
        torch.set_num_threads(args.workers)
        device += f", {args.workers} thread{'s' if args.workers > 1 else ''}"
    for load in workloads_named(args.workloads):
        name = load.name
        if name == "scale-clients":
            clients.print_scaling(load)
        timings = measure(load, [s for s in args.systems.split(",") if s], options, args.rounds)
        lines = rows(load, timings, options, device) if timings else []
        if args.check:
            distance = engine_distance(load, options)
            sys.stdout.write(f"{name}: engines differ by {distance:.2e} after three short rounds\n")
            if args.out:
                row = (name, device, options.precision, f"{distance:.2e}", VERSIONS, commit_hash())
                agreement = pd.DataFrame([row], columns=AGREEMENT_COLUMNS)
                update_csv(args.out / "agreement.csv", agreement, AGREEMENT_COLUMNS[:3])
        if args.out and lines:
            update_csv(args.out / "speed.csv", pd.DataFrame(lines)[COLUMNS], KEY)
            each_round = [
                dict(zip(KEY, (load.name, t.system, device, options.precision))) | {"round": i + 1, "ms": round(ms, 2)}
                for t in timings
                for i, ms in enumerate(t.ms)
            ]
            update_csv(args.out / "speed-rounds.csv", pd.DataFrame(each_round), KEY)


if __name__ == "__main__":
    main()
