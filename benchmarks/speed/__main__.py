"""Time per round of unskew, of a bare PyTorch loop and of pfl-research, on the same machine in one call.

    python benchmarks/speed lmd-shards-10 pfl-cifar --device cuda --precision tf32 --rounds 20 --out results
    python benchmarks/speed pfl-cifar --device cpu --systems unskew-loop,bare-loop --workers 2 --rounds 20 --out results

On a GPU one system after another; on a CPU a round of each in turn, because its speed changes with the hour. Each
system plays some rounds first that do not count. OUT/speed.csv has a row for each system, OUT/speed-rounds.csv every
round. `--check` also compares the weights of `stacked` and `loop` after a few steps, which only a GPU can show for the
recorded graphs and the kernels. `--systems pfl` needs pfl-research, here or in the environment of `--pfl-python`.
`scale-clients` also shows plan time and memory as the number of clients grows.
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
from floor import floor
from kept import keep
from peer import Pfl, SkippedError
from systems import VERSIONS, How, Player, Unskew, make, seconds
from workloads import GROUPS, WORKLOADS, Workload, named

from unskew.base.environment import commit, device_name
from unskew.runner.process_setup import precision as set_precision

COLUMNS = [
    *("workload", "system", "device", "precision", "ms_per_round", "samples_per_s", "peak_mem_mib", "padding_share"),
    *("ratio_to_bare_loop", "ratio_to_floor", "versions", "commit"),
]
KEY = COLUMNS[:4]
LEAST, LONG = 2, 30_000.0  # on a GPU: rounds that count, and ms after which no more are played than these
WARM = {"unskew-stacked": 3}  # rounds until all is recorded; one for the others
# When engines are compared: over many steps, rounding grows. Three clients tell as much as fifty; where clients differ
# in rows, ten with 1 to 6 steps each also show the stack being narrowed.
ALIKE, UNEVEN = (3, {"steps": 1}), (10, {"epochs": 1, "batch": 500})
AGREED = ["workload", "device", "precision", "apart", "versions", "commit"]


@dataclass
class Timed:
    """One system's rounds in ms, the ones that do not count first."""

    system: str
    ms: list[float]
    peak: float = float("nan")  # MiB on a GPU
    padding: float = 0.0
    versions: str = VERSIONS

    @property
    def warm(self) -> list[float]:
        return self.ms[WARM.get(self.system, 1) :]


def one_after_another(load: Workload, systems: list[str], how: How, rounds: int) -> list[Timed]:
    """Each with the device to itself, so that memory is its own."""
    found = []
    for system in systems:
        torch.cuda.reset_peak_memory_stats()
        player = made(load, system, how)
        if player is None:
            continue
        ms = [1000 * seconds(player, how) for _ in range(WARM.get(system, 1))]
        player.skip(max(WARM.values()) - len(ms))  # so that the rounds that count begin with the same one for all
        ms += counted(player, how, rounds)
        peak = player.peak if isinstance(player, Pfl) else torch.cuda.max_memory_allocated() / 2**20
        found.append(Timed(system, ms, peak, player.padding, player.versions))
        player.close()
        del player
        gc.collect()
        torch.cuda.empty_cache()
    return found


def counted(play: Callable[[], None], how: How, rounds: int) -> list[float]:
    """The rounds that count, in ms; fewer of a system that takes long."""
    ms: list[float] = []
    while len(ms) < rounds and (len(ms) < LEAST or sum(ms) < LONG):
        ms.append(1000 * seconds(play, how))
    return ms


def in_turn(load: Workload, systems: list[str], how: How, rounds: int) -> list[Timed]:
    """A round of each in turn."""
    players = {system: player for system in systems if (player := made(load, system, how)) is not None}
    found = {system: Timed(system, []) for system in players}
    for _ in range(rounds + max((WARM.get(system, 1) for system in players), default=0)):
        for system, player in players.items():
            found[system].ms.append(1000 * seconds(player, how))
    for system, player in players.items():
        found[system].padding, found[system].versions = player.padding, player.versions
        player.close()
    return list(found.values())


def measure(load: Workload, systems: list[str], how: How, rounds: int) -> list[Timed]:
    with set_precision(how.precision):
        return (one_after_another if how.device.startswith("cuda") else in_turn)(load, systems, how, rounds)


def made(load: Workload, system: str, how: How) -> Player | None:
    """A system ready to play; one that is not here is left out, with the reason on the screen."""
    try:
        return make(load, system, how)
    except SkippedError as why:
        sys.stdout.write(f"{load.name} {system} skipped: {why}\n")
        return None


def rows(load: Workload, found: list[Timed], how: How, device: str) -> list[dict]:
    """Lines of the table, and the same on the screen with spread and first round."""
    medians = {timed.system: statistics.median(timed.warm) for timed in found}
    least, samples = floor(load, how.device, how.precision)
    bare, lines = next((timed for timed in found if timed.system == "bare-loop"), None), []
    for timed in found:
        ratio = times_as_fast(timed, bare)
        ms, warm = medians[timed.system], sorted(timed.warm)
        spread = warm[3 * len(warm) // 4] - warm[len(warm) // 4]
        lines.append(
            {
                "workload": load.name,
                "system": timed.system,
                "device": device,
                "precision": how.precision,
                "ms_per_round": round(ms, 2),
                "samples_per_s": round(1000 * samples / ms),
                "peak_mem_mib": round(timed.peak, 1),
                "padding_share": round(timed.padding, 4),
                "ratio_to_bare_loop": round(ratio, 3),
                "ratio_to_floor": round(ms / least, 2) if least else "",
                "versions": timed.versions,
                "commit": commit(),
            }
        )
        sys.stdout.write(
            f"{load.name} {timed.system} {how.precision}: {ms:.2f} ms, spread {spread:.2f}, first {timed.ms[0]:.0f}, "
            f"{timed.peak:.0f} MiB, {ratio:.2f} x bare, {lines[-1]['ratio_to_floor']} x floor\n"
        )
        sys.stdout.flush()
    return lines


def times_as_fast(timed: Timed, other: Timed | None) -> float:
    """By the medians of the rounds that both have played."""
    if other is None:
        return float("nan")
    both = min(len(timed.warm), len(other.warm))
    return statistics.median(other.warm[:both]) / statistics.median(timed.warm[:both])


def agreement(load: Workload, how: How) -> float:
    """How far the weights of the engines are apart after three short rounds, relative to how far they moved."""
    ends = []
    count, work = UNEVEN if load.partition["name"] == "dirichlet" else ALIKE
    few = replace(load, participation=(count + 0.5) / load.partition["clients"], local=load.local | work)
    with set_precision(how.precision):
        for engine in ("loop", "stacked"):
            player = Unskew(few, engine, how)
            start = player.snap.model
            for _ in range(3):  # as it is, recorded, played
                player()
            ends.append({k: t.double().cpu() for k, t in player.snap.model.items() if t.is_floating_point()})
            player.close()
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
    how = How(args.device, args.precision, args.workers, args.pfl_python)
    device = device_name(torch.device(args.device))
    if args.device == "cpu":
        torch.set_num_threads(args.workers)
        device += f", {args.workers} thread{'s' if args.workers > 1 else ''}"
    for load in named(args.workloads):
        name = load.name
        if name == "scale-clients":
            clients.show(load)
        found = measure(load, [s for s in args.systems.split(",") if s], how, args.rounds)
        lines = rows(load, found, how, device) if found else []
        if args.check:
            apart = agreement(load, how)
            sys.stdout.write(f"{name}: engines differ by {apart:.2e} after three short rounds\n")
            if args.out:
                row = (name, device, how.precision, f"{apart:.2e}", VERSIONS, commit())
                keep(args.out / "agreement.csv", pd.DataFrame([row], columns=AGREED), AGREED[:3])
        if args.out and lines:
            keep(args.out / "speed.csv", pd.DataFrame(lines)[COLUMNS], KEY)
            each = [dict(zip(KEY, (load.name, t.system, device, how.precision))) | {"round": i + 1, "ms": round(ms, 2)}
                    for t in found for i, ms in enumerate(t.ms)]  # fmt: skip
            keep(args.out / "speed-rounds.csv", pd.DataFrame(each), KEY)


if __name__ == "__main__":
    main()
