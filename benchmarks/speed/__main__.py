"""Time per round of unskew, of a bare PyTorch loop and of pfl-research, one after another on the same machine.

    python benchmarks/speed lmd-shards-10 pfl-cifar --device cuda --precision tf32 --rounds 20 --out results/speed.csv

Also compares the weights after one round of `stacked` with those of `loop`, which is what only a GPU can show for the
recorded graphs and the kernels.
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
from bare import Bare
from floor import floor
from workloads import WORKLOADS, Workload

from unskew.environment import __version__, commit, device_name
from unskew.prepare import Prepared, prepare
from unskew.process import precision as set_precision

COLUMNS = [
    *("workload", "system", "device", "precision", "ms_per_round", "samples_per_s", "peak_mem_mib", "padding_share"),
    *("ratio_to_bare_loop", "ratio_to_floor", "spread_ms", "first_round_ms", "versions", "commit"),
]


def timed(play: Callable[[], None], rounds: int, device: str) -> tuple[float, float, float, float]:
    """Median, spread (quartiles) and first round in ms, and peak memory in MiB."""
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
    warm = sorted(times[2:])
    spread = warm[(3 * len(warm)) // 4] - warm[len(warm) // 4]
    return statistics.median(warm), spread, times[0], peak


class Unskew:
    """Rounds of a prepared federation, without evaluation."""

    def __init__(self, ready: Prepared) -> None:
        self.federation = ready.federation
        self.snap = self.federation.start()

    def __call__(self) -> None:
        self.snap, _ = self.federation.play(self.snap)
        self.federation.store.commit()


def ready(load: Workload, engine: str, device: str, precision: str) -> Prepared:
    return prepare(load.experiment(engine, device, precision, 1000), data=load.data(), model=load.net())


def measure(load: Workload, system: str, device: str, precision: str, rounds: int) -> dict:
    """One row of the table, without the ratios."""
    with set_precision(precision):
        if system == "bare-loop":
            torch.backends.cudnn.benchmark = True
            source = ready(load, "loop", "cpu", "float32")
            rows = [source.federation.engine.setting.source.index[k] for k in range(source.federation.task.clients)]
            data, plan = load.data(), source.federation.plan
            source.federation.engine.close()
            bare, rounds_done = Bare(load, rows, data.train.x, data.train.y, device, precision), iter(range(1, 10**6))
            median, spread, first, peak = timed(
                lambda: bare.round(plan.participants(next(rounds_done))), rounds, device
            )
            padding = 0.0
        else:
            torch.backends.cudnn.benchmark = False
            made = ready(load, system.removeprefix("unskew-"), device, precision)
            player = Unskew(made)
            median, spread, first, peak = timed(player, rounds, device)
            padding = made.federation.engine.padding_share
            made.federation.engine.close()
    gc.collect()
    if device.startswith("cuda"):
        torch.cuda.empty_cache()
    return {
        "workload": load.name,
        "system": system,
        "device": device_name(torch.device(device)),
        "precision": precision,
        "ms_per_round": round(median, 2),
        "spread_ms": round(spread, 2),
        "first_round_ms": round(first, 1),
        "peak_mem_mib": round(peak, 1),
        "padding_share": round(padding, 4),
        "versions": f"unskew {__version__} torch {torch.__version__}",
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
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    for name in args.workloads:
        load = WORKLOADS[name]
        lines = [measure(load, s, args.device, args.precision, args.rounds) for s in args.systems.split(",")]
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
        if args.out:
            keep(args.out, pd.DataFrame(lines)[COLUMNS])


def keep(path: Path, fresh: pd.DataFrame) -> None:
    """Add rows; those of the same workload, system, device and precision are replaced."""
    key = ["workload", "system", "device", "precision"]
    if path.exists():
        old = pd.read_csv(path)
        mine = set(fresh[key].agg("|".join, axis=1))
        fresh = pd.concat([old[~old[key].agg("|".join, axis=1).isin(mine)], fresh])
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh.to_csv(path, index=False)


if __name__ == "__main__":
    main()
