"""Time per round of unskew, of a bare PyTorch loop and of pfl-research, one after another on the same machine.

    python benchmarks/speed lmd-shards-10 pfl-cifar --device cuda --precision tf32 --rounds 20 --out results/speed.csv

`--check` also compares the weights of `stacked` and `loop` after two rounds, which is what only a GPU can show for the
recorded graphs and the kernels. `--systems pfl` needs pfl-research, here or in the environment of `--pfl-python`.
`scale-clients` also shows plan time and memory as the number of clients grows.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import torch

sys.path.insert(0, str(Path(__file__).parent))
import clients
from bare import Bare
from floor import floor
from peer import ask
from rounds import Unskew, keep, ready
from workloads import WORKLOADS, Workload

from unskew.core.per_client import MANY, ByRule
from unskew.environment import __version__, commit, device_name
from unskew.process import precision as set_precision

COLUMNS = [
    *("workload", "system", "device", "precision", "ms_per_round", "samples_per_s", "peak_mem_mib", "padding_share"),
    *("ratio_to_bare_loop", "ratio_to_floor", "spread_ms", "first_round_ms", "versions", "commit"),
]

KEY = ["workload", "system", "device", "precision"]

Times = tuple[float, float, float]


def summary(times: list[float]) -> Times:
    """Median and spread (quartiles) without the first two, and the first, all in ms."""
    warm = sorted(times[2:])
    return statistics.median(warm), warm[(3 * len(warm)) // 4] - warm[len(warm) // 4], times[0]


def timed(play: Callable[[], None], rounds: int, device: str) -> tuple[Times, float]:
    """Times, and peak memory in MiB."""
    wait = torch.cuda.synchronize if device.startswith("cuda") else (lambda: None)
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(rounds + 2):
        began = time.perf_counter()
        play()
        wait()
        times.append(1000 * (time.perf_counter() - began))
    peak = torch.cuda.max_memory_allocated() / 2**20 if device.startswith("cuda") else float("nan")
    return summary(times), peak


def rounds_of_bare(load: Workload, device: str, precision: str, rounds: int) -> tuple[Times, float]:
    """The bare loop with unskew's rows and participants."""
    torch.backends.cudnn.benchmark = True
    source = ready(load, "loop", "cpu", "float32")
    index, clients = source.federation.engine.setting.source.index, source.federation.task.clients
    rows = [index[k].to(device) for k in range(clients)] if clients <= MANY else ByRule(lambda k: index[k].to(device))
    data, plan = load.data(), source.federation.plan
    source.federation.engine.close()
    bare, done = Bare(load, rows, data.train.x, data.train.y, device, precision), iter(range(1, 10**6))
    return timed(lambda: bare.round(plan.participants(next(done))), rounds, device)


def rounds_of_pfl(load: Workload, python: str, device: str, precision: str, rounds: int) -> dict:
    """What pfl-research took for the same users' rows, net and participants; or why it was skipped."""
    if load.model != "pfl":
        return {"skipped": "peer.py knows the net of pfl-cifar only"}
    source = ready(load, "loop", "cpu", "float32").federation
    source.engine.close()
    index = source.engine.setting.source.index
    return ask(
        python,
        {
            "device": device,
            "precision": precision,
            "local": load.local,
            "images": load.images,
            "rows": {str(k): index[k].tolist() for k in range(source.task.clients)},
            "cohorts": [source.plan.participants(r) for r in range(1, rounds + 3)],
        },
    )


def rounds_of_unskew(
    load: Workload, engine: str, device: str, precision: str, rounds: int
) -> tuple[Times, float, float]:
    """Times, peak memory and share of padding."""
    torch.backends.cudnn.benchmark = False
    made = ready(load, engine, device, precision)
    times, peak = timed(Unskew(made), rounds, device)
    made.federation.engine.close()
    return times, peak, made.federation.engine.padding_share


def measure(load: Workload, system: str, args: argparse.Namespace) -> dict | None:
    """One row of the table, without the ratios; None where a system is not here, with the reason on the screen."""
    how = (args.device, args.precision, args.rounds)
    versions, padding = f"unskew {__version__} torch {torch.__version__}", 0.0
    with set_precision(args.precision):
        if system == "pfl":
            found = rounds_of_pfl(load, args.pfl_python, *how)
            if "skipped" in found:
                sys.stdout.write(f"{load.name} pfl skipped: {found['skipped']}\n")
                return None
            times, peak, versions = summary(found["ms"]), found["peak_mem_mib"], found["versions"]
        elif system == "bare-loop":
            times, peak = rounds_of_bare(load, *how)
        else:
            times, peak, padding = rounds_of_unskew(load, system.removeprefix("unskew-"), *how)
    gc.collect()
    if args.device.startswith("cuda"):
        torch.cuda.empty_cache()
    median, spread, first = times
    return {
        "workload": load.name,
        "system": system,
        "device": device_name(torch.device(args.device)),
        "precision": args.precision,
        "ms_per_round": round(median, 2),
        "spread_ms": round(spread, 2),
        "first_round_ms": round(first, 1),
        "peak_mem_mib": round(peak, 1),
        "padding_share": round(padding, 4),
        "versions": versions,
        "commit": commit(),
    }


def agreement(load: Workload, device: str, precision: str) -> float:
    """Largest difference of the weights after one round between the engines, relative to how far they moved."""
    ends = []
    few = replace(load, participation=3.5 / load.partition["clients"])  # three clients tell as much as fifty
    with set_precision(precision):
        for engine in ("loop", "stacked"):
            made = ready(few, engine, device, precision)
            player = Unskew(made)
            start = player.snap.model
            player()
            player()
            ends.append({k: t.double().cpu() for k, t in player.snap.model.items() if t.is_floating_point()})
            made.federation.engine.close()
    moved = sum(float((ends[0][k] - start[k].double().cpu()).pow(2).sum()) for k in ends[0])
    apart = sum(float((ends[0][k] - ends[1][k]).pow(2).sum()) for k in ends[0])
    return (apart / moved) ** 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="+", choices=list(WORKLOADS))
    parser.add_argument("--systems", default="unskew-stacked,unskew-loop,bare-loop")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--check", action="store_true", help="also compare the engines' weights after two rounds")
    parser.add_argument("--pfl-python", default=sys.executable, help="interpreter that has pfl and torch")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    for name in args.workloads:
        load = WORKLOADS[name]
        if name == "scale-clients":
            clients.show(load)
        lines = [line for s in args.systems.split(",") if s and (line := measure(load, s, args))]
        bare = next((line["ms_per_round"] for line in lines if line["system"] == "bare-loop"), float("nan"))
        least, samples = floor(load, args.device, args.precision)
        for line in lines:
            line["samples_per_s"] = round(1000 * samples / line["ms_per_round"])
            line["ratio_to_bare_loop"] = round(bare / line["ms_per_round"], 2)
            line["ratio_to_floor"] = round(line["ms_per_round"] / least, 2) if least else ""
            keys = ("workload", "system", "precision", "ms_per_round", "spread_ms", "first_round_ms", "peak_mem_mib")
            sys.stdout.write(" ".join(str(line[k]) for k in (*keys, "ratio_to_bare_loop", "ratio_to_floor")) + "\n")
            sys.stdout.flush()
        if args.check:
            sys.stdout.write(f"{name}: engines differ by {agreement(load, args.device, args.precision):.2e}\n")
        if args.out and lines:
            keep(args.out, pd.DataFrame(lines)[COLUMNS], KEY)


if __name__ == "__main__":
    main()
