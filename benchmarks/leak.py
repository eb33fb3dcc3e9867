"""Run FedAvg with batch 1, 4 and 16 and one and five local steps on CIFAR-10 and LFW faces, attack it and record it.

python benchmarks/leak.py results --runs runs/leak
python benchmarks/leak.py results --runs runs/leak --data lfw20 --side 32   # as small as DLG's faces: lfw20-32

Every client holds as many rows as a batch, so that five epochs are five steps on the same rows as one: the same images
are attacked in both cases. Each setting is recorded when it is finished, and a second call continues the first.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

import unskew
from unskew.audits.audit_run import Audit, audit
from unskew.audits.budget import Budget
from unskew.audits.record_leaks import record
from unskew.audits.save_audit import write as save_audit
from unskew.audits.threat_model import SERVER
from unskew.audits.verdict import RECOGNISABLE_PSNR
from unskew.config import recipe
from unskew.data import data_root
from unskew.results.run_folder import read_manifest

DATA = ("cifar10", "lfw20")


def downsample(name: str, side: int) -> str:
    """Write a data file of square images with every square of pixels averaged to one; the name of the new file."""
    source = data_root() / f"{name}.npz"
    if not source.is_file():
        sys.exit(f"--side: expected the images to downsample in {source}, found no such file")
    with np.load(source) as arrays:
        x, rest = arrays["x"], {key: arrays[key] for key in arrays.files if key != "x"}
    n, height, _, channels = x.shape
    if height % side:
        sys.exit(f"--side: expected a divisor of {height}, the side of the images of {name}, found {side}")
    squares = x.reshape(n, side, height // side, side, height // side, channels)
    small = np.round(squares.mean((2, 4))).astype(x.dtype)
    np.savez_compressed(source.with_name(f"{name}-{side}.npz"), x=small, **rest)
    return f"{name}-{side}"


def run_setting(data: str, batch: int, steps: int, images: int, runs: Path, device: str) -> Path:
    """The folder of a finished run of this setting."""
    out = runs / f"{data}-b{batch}-s{steps}"
    overrides = [f"data={data}", f"partition.rows={batch}", f"partition.clients={-(-images // batch)}"]
    overrides += [f"device={device}", f"local.batch={batch}", f"local.epochs={steps}"]
    _, experiment = recipe.load("audit-fedavg", overrides)
    if read_manifest(out) is None:
        unskew.run(experiment, out=out)
    return out


def budgets(batch: int, args: argparse.Namespace) -> list[Budget]:
    """IG for every setting; iDLG, which depends on correctly inferred labels, only for small batches."""
    at_once = args.restarts * -(-args.images // batch)
    plain = Budget((), SERVER.with_knowledge(tuple(args.knows)), args.images, restarts=args.restarts, at_once=at_once)
    budgets_to_run = [replace(plain, attacks=("ig",), iterations=args.iterations)]
    if batch <= args.lbfgs_batch:
        budgets_to_run.append(replace(plain, attacks=("idlg",), iterations=args.lbfgs, membership="none"))
    return budgets_to_run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--runs", type=Path, default=Path("runs/leak"))
    parser.add_argument("--data", nargs="+", default=DATA)
    parser.add_argument("--side", type=int, help="downsample images to this side first; a divisor of theirs")
    parser.add_argument("--batch", nargs="+", type=int, default=(1, 4, 16))
    parser.add_argument("--steps", nargs="+", type=int, default=(1, 5))
    parser.add_argument("--images", type=int, default=16)
    parser.add_argument("--iterations", type=int, default=2400, help="of IG")
    parser.add_argument("--lbfgs", type=int, default=150, help="iterations of iDLG")
    parser.add_argument("--lbfgs-batch", type=int, default=4, help="largest batch that iDLG attacks")
    parser.add_argument("--restarts", type=int, default=3)
    parser.add_argument("--knows", nargs="*", default=(), help="additional knowledge of the server: labels, draws")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--pages", type=Path, help="also write an HTML page for each dataset to this folder")
    args = parser.parse_args()
    if args.side is not None:
        if args.data is DATA:
            sys.exit("--side: expected --data with names of .npz files in the dataset folder, such as --data lfw20")
        args.data = [downsample(name, args.side) for name in args.data]
    audits = [
        (data, result)
        for steps in args.steps
        for data in args.data
        for batch in args.batch
        for result in audit_setting(data, batch, steps, args)
    ]
    if args.pages is not None:
        from unskew.audits.page_of_audits import write_page  # imports matplotlib, which the numbers do not need

        for data in args.data:
            write_page([result for name, result in audits if name == data], args.pages / f"{data}.html")


def audit_setting(data: str, batch: int, steps: int, args: argparse.Namespace) -> list[Audit]:
    """Run, attack and record one setting."""
    started = time.perf_counter()
    run = run_setting(data, batch, steps, args.images, args.runs, args.device)
    audits = []
    for budget in budgets(batch, args):
        result = audit(run, budget, device=args.device)
        record(result, args.results, args.device)
        save_audit(result, args.device)
        audits.append(result)
        seconds = time.perf_counter() - started
        sys.stdout.write(f"{data} batch {batch} steps {steps} {summary_line(result)}, {seconds:.1f} s\n")
        sys.stdout.flush()
    return audits


def summary_line(audit_result: Audit) -> str:
    """The result in one line."""
    best: dict[int, float] = {}
    for leak in audit_result.leaks:
        if leak.metric == "psnr":
            best[leak.image] = max(best.get(leak.image, 0.0), leak.value)
    labels = [leak.value for leak in audit_result.leaks if leak.attack == "labels"]
    recognisable, mean = (
        sum(value >= RECOGNISABLE_PSNR for value in best.values()),
        sum(best.values()) / max(len(best), 1),
    )
    labels_right = f"labels {sum(labels) / max(len(labels), 1):.0f} %"
    attack = audit_result.budget.attacks[0]
    return f"{attack}: {len(best)} images, best restart {mean:.1f} dB, {recognisable} from 20 dB on, {labels_right}"


if __name__ == "__main__":
    main()
