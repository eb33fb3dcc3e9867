"""Play FedAvg with batch 1, 4 and 16, one and five local steps, on CIFAR-10 and LFW faces; attack; record.

python benchmarks/leak.py results --runs runs/leak

Every client holds as many rows as a batch, so that five epochs are five steps on the rows of the first: the same images
are attacked in both cases. Every setting is recorded when it is done, and a second call goes on where the first ended.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import unskew
from unskew import recipe
from unskew.privacy.audit import audit
from unskew.privacy.budget import Budget
from unskew.privacy.paged import write_page
from unskew.privacy.record import record
from unskew.privacy.threat import SERVER
from unskew.privacy.written import write
from unskew.results.folder import manifest_of

DATA = ("cifar10", "lfw20")


def play(data: str, batch: int, steps: int, images: int, runs: Path, device: str) -> Path:
    """The folder of a finished run of this setting."""
    out = runs / f"{data}-b{batch}-s{steps}"
    words = [f"data={data}", f"partition.rows={batch}", f"partition.clients={-(-images // batch)}", f"device={device}"]
    _, experiment = recipe.load("audit-fedavg", [*words, f"local.batch={batch}", f"local.epochs={steps}"])
    if manifest_of(out) is None:
        unskew.run(experiment, out=out)
    return out


def budgets(batch: int, given: argparse.Namespace) -> list[Budget]:
    """IG everywhere; iDLG where its labels are exact."""
    at_once = given.restarts * -(-given.images // batch)
    tried = [("ig", given.iterations)] + ([("idlg", given.lbfgs)] if batch == 1 else [])
    names, few = dict(tried), {"images": given.images, "restarts": given.restarts, "at_once": at_once}
    server = SERVER.given(tuple(given.knows))
    return [Budget((name,), server, iterations=count, **few) for name, count in names.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--runs", type=Path, default=Path("runs/leak"))
    parser.add_argument("--data", nargs="+", default=DATA)
    parser.add_argument("--batch", nargs="+", type=int, default=(1, 4, 16))
    parser.add_argument("--steps", nargs="+", type=int, default=(1, 5))
    parser.add_argument("--images", type=int, default=16)
    parser.add_argument("--iterations", type=int, default=2400, help="of IG")
    parser.add_argument("--lbfgs", type=int, default=60, help="iterations of iDLG")
    parser.add_argument("--restarts", type=int, default=3)
    parser.add_argument("--knows", nargs="*", default=(), help="labels, draws: what the server also knows")
    parser.add_argument("--device", default="auto")
    given = parser.parse_args()
    for steps in given.steps:
        for data in given.data:
            for batch in given.batch:
                one(data, batch, steps, given)


def one(data: str, batch: int, steps: int, given: argparse.Namespace) -> None:
    """One setting: played, attacked, recorded."""
    began = time.perf_counter()
    run = play(data, batch, steps, given.images, given.runs, given.device)
    for budget in budgets(batch, given):
        found = audit(run, budget, device=given.device)
        record(found, given.results, given.device)
        write_page([found], write(found, given.device) / f"{budget.attacks[0]}.html")
        best: dict[int, float] = {}
        for leak in found.leaks:
            if leak.metric == "psnr":
                best[leak.image] = max(best.get(leak.image, 0.0), leak.value)
        labels = [leak.value for leak in found.leaks if leak.attack == "labels"]
        mean = sum(best.values()) / max(len(best), 1)
        seconds = time.perf_counter() - began
        print(
            f"{data} batch {batch} steps {steps} {budget.attacks[0]}: {len(best)} images, mean of the best {mean:.1f} dB, "
            f"{sum(v >= 20 for v in best.values())} at 20 dB, labels {sum(labels) / len(labels):.0f} %, {seconds:.1f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
