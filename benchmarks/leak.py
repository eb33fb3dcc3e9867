"""Play FedAvg with batch 1, 4 and 16, one and five local steps, on CIFAR-10 and LFW faces; attack; record.

python benchmarks/leak.py results --runs runs/leak
python benchmarks/leak.py results --runs runs/leak --data lfw20 --side 32   # as small as DLG's faces: lfw20-32

Every client holds as many rows as a batch, so that five epochs are five steps on the rows of the first: the same images
are attacked in both cases. Every setting is recorded when it is done, and a second call goes on where the first ended.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

import unskew
from unskew.audit.audit_run import Audit, audit
from unskew.audit.budget import Budget
from unskew.audit.record_leaks import record
from unskew.audit.save_audit import write
from unskew.audit.threat_model import SERVER
from unskew.audit.verdict import CLEAR
from unskew.config import recipe
from unskew.data import data_root
from unskew.results.run_folder import manifest_of

DATA = ("cifar10", "lfw20")


def smaller(name: str, side: int) -> str:
    """A data file of square images with each square of pixels made one, written beside it; the name of the new one."""
    there = data_root() / f"{name}.npz"
    if not there.is_file():
        sys.exit(f"--side: expected {there}, a file of images that are made smaller; found none")
    with np.load(there) as kept:
        x, rest = kept["x"], {key: kept[key] for key in kept.files if key != "x"}
    n, high, _, channels = x.shape
    if high % side:
        sys.exit(f"--side: expected a divisor of {high}, the side of {name}'s images, found {side}")
    squares = x.reshape(n, side, high // side, side, high // side, channels)
    small = np.round(squares.mean((2, 4))).astype(x.dtype)
    np.savez_compressed(there.with_name(f"{name}-{side}.npz"), x=small, **rest)
    return f"{name}-{side}"


def play(data: str, batch: int, steps: int, images: int, runs: Path, device: str) -> Path:
    """The folder of a finished run of this setting."""
    out = runs / f"{data}-b{batch}-s{steps}"
    words = [f"data={data}", f"partition.rows={batch}", f"partition.clients={-(-images // batch)}", f"device={device}"]
    _, experiment = recipe.load("audit-fedavg", [*words, f"local.batch={batch}", f"local.epochs={steps}"])
    if manifest_of(out) is None:
        unskew.run(experiment, out=out)
    return out


def budgets(batch: int, given: argparse.Namespace) -> list[Budget]:
    """IG everywhere; iDLG, which needs labels that are inferred right, on small batches."""
    at_once = given.restarts * -(-given.images // batch)
    plain = Budget((), SERVER.given(tuple(given.knows)), given.images, restarts=given.restarts, at_once=at_once)
    found = [replace(plain, attacks=("ig",), iterations=given.iterations)]
    if batch <= given.lbfgs_batch:
        found.append(replace(plain, attacks=("idlg",), iterations=given.lbfgs, membership="none"))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--runs", type=Path, default=Path("runs/leak"))
    parser.add_argument("--data", nargs="+", default=DATA)
    parser.add_argument("--side", type=int, help="make images this small first; divides theirs")
    parser.add_argument("--batch", nargs="+", type=int, default=(1, 4, 16))
    parser.add_argument("--steps", nargs="+", type=int, default=(1, 5))
    parser.add_argument("--images", type=int, default=16)
    parser.add_argument("--iterations", type=int, default=2400, help="of IG")
    parser.add_argument("--lbfgs", type=int, default=150, help="iterations of iDLG")
    parser.add_argument("--lbfgs-batch", type=int, default=4, help="largest batch that iDLG attacks")
    parser.add_argument("--restarts", type=int, default=3)
    parser.add_argument("--knows", nargs="*", default=(), help="labels, draws: what the server also knows")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--pages", type=Path, help="also write a page per dataset here")
    given = parser.parse_args()
    if given.side is not None:
        if given.data is DATA:
            sys.exit("--side: expected --data with names of .npz files in the data folder, such as --data lfw20")
        given.data = [smaller(name, given.side) for name in given.data]
    audits = [
        (data, found)
        for steps in given.steps
        for data in given.data
        for batch in given.batch
        for found in one(data, batch, steps, given)
    ]
    if given.pages is not None:
        from unskew.audit.page_of_audits import write_page  # brings matplotlib, which the numbers do not need

        for data in given.data:
            write_page([found for name, found in audits if name == data], given.pages / f"{data}.html")


def one(data: str, batch: int, steps: int, given: argparse.Namespace) -> list[Audit]:
    """One setting: played, attacked, recorded."""
    began = time.perf_counter()
    run = play(data, batch, steps, given.images, given.runs, given.device)
    audits = []
    for budget in budgets(batch, given):
        found = audit(run, budget, device=given.device)
        record(found, given.results, given.device)
        write(found, given.device)
        audits.append(found)
        sys.stdout.write(f"{data} batch {batch} steps {steps} {told(found)}, {time.perf_counter() - began:.1f} s\n")
        sys.stdout.flush()
    return audits


def told(found: Audit) -> str:
    """What came out, in a line."""
    best: dict[int, float] = {}
    for leak in found.leaks:
        if leak.metric == "psnr":
            best[leak.image] = max(best.get(leak.image, 0.0), leak.value)
    labels = [leak.value for leak in found.leaks if leak.attack == "labels"]
    clear, mean = sum(value >= CLEAR for value in best.values()), sum(best.values()) / max(len(best), 1)
    right = f"labels {sum(labels) / max(len(labels), 1):.0f} %"
    return f"{found.budget.attacks[0]}: {len(best)} images, best tries {mean:.1f} dB, {clear} at 20 dB, {right}"


if __name__ == "__main__":
    main()
