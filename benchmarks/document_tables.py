"""The tables of docs/ that are computed from results/: each follows a mark that says how it is made.

    <!-- table: reproduce fedlmd/table3-sharding --preset fitted -->
    ... replaced by `make pages`, compared by a test ...
    <!-- end of table -->

reproduce TARGET: recorded rows next to the paper, options as for `unskew reproduce`, and --folder for other rows;
last-ten FOLDER: methods of a comparison by their last ten rounds; leaks DATASET: the recorded attacks on updates.
"""

from __future__ import annotations

import math
import re
import shlex
import tempfile
from collections.abc import Callable
from pathlib import Path

import pandas as pd

import unskew as us
from unskew.reproductions.reproduce_target import Reproduction
from unskew.results.format_numbers import spread
from unskew.results.statistics import difference

RESULTS = Path(__file__).parent.parent / "results"
BLOCK = re.compile(r"(<!-- table: (.*?) -->\n).*?(<!-- end of table -->)", re.DOTALL)
REPETITION = ["partition_seed", "seed"]


def fill(text: str) -> str:
    """The text with every marked table computed again."""
    return BLOCK.sub(lambda block: f"{block[1]}{make(block[2])}{block[3]}", text)


def make(words: str) -> str:
    """The table that a mark describes."""
    kind, *arguments = shlex.split(words)
    return MAKERS[kind](arguments)


def reproduced(arguments: list[str]) -> Reproduction:
    """Recorded rows next to the paper's numbers."""
    target, options, overrides, folder = arguments[0], {}, [], RESULTS
    rest = iter(arguments[1:])
    for word in rest:
        if word == "--folder":
            folder = RESULTS / next(rest)
        elif word.startswith("--"):
            options[word[2:]] = next(rest)
        else:
            overrides.append(word)
    with tempfile.TemporaryDirectory() as out:
        done = us.reproduce(target, recorded=folder, out=out, overrides=overrides, **options)
    assert isinstance(done, Reproduction)
    assert done.comparison is not None
    return done


def _reproduce(arguments: list[str]) -> str:
    table = reproduced(arguments).comparison
    assert table is not None
    head = ["column", "method", "best", "last round", "last ten", "seeds", "paper", "difference"]
    leads = any(table.lead(cell) for cell in table.cells)
    rows, column = [], ""
    for cell in table.cells:
        lead = table.lead(cell)
        paper = f"{cell.printed.mean:.2f}" if cell.printed else "–"
        gap = "–" if math.isnan(cell.difference) else f"{_signed(cell.difference)}{' *' if cell.outside else ''}"
        row = [cell.column if cell.column != column else "", cell.method, spread(*cell.spread, 2), f"{cell.final:.2f}"]
        row += [f"{cell.late:.2f}", str(len(cell.scores)), paper, gap]
        rows.append(row + [_format_lead(lead.mean, lead.low, lead.high) if lead else ""] * leads)
        column = cell.column
    return markdown(head + [f"{table.proposed} − method"] * leads, rows)


def _last_ten(arguments: list[str]) -> str:
    """Methods by the mean of their last ten rounds, with the paired difference from FedAvg."""
    rows = pd.read_csv(RESULTS / arguments[0] / "accuracy.csv")
    scores = {name: dict(zip(own["seed"], own["mean_last10"])) for name, own in rows.groupby("method")}
    best = rows.groupby("method")["best"]
    table = []
    for name in sorted(scores, key=lambda name: -pd.Series(scores[name]).mean()):
        gap = difference(scores[name], scores["fedavg"])
        late = pd.Series(scores[name])
        row = [name, spread(best.mean()[name], best.std()[name], 2), spread(late.mean(), late.std(), 2), str(len(late))]
        table.append([*row, "" if name == "fedavg" else _format_lead(gap.mean, gap.low, gap.high)])
    return markdown(["method", "best", "last ten", "seeds", "last ten: method − fedavg"], table)


def leaks(dataset: str) -> pd.DataFrame:
    """Recorded attacks on updates: by batch, steps and attack the mean over images of the tries with the best PSNR."""
    rows = pd.read_csv(RESULTS / "audit" / "leak.csv")
    rows = rows[rows["dataset"] == dataset]
    rows = rows.assign(steps=rows["local"].str.split().str[0].astype(int))
    out = []
    for (batch, steps), setting in rows.groupby(["batch", "steps"]):
        for attack in ("idlg", "ig"):
            own = setting[setting["attack"] == attack]
            psnr = own[(own["metric"] == "psnr") & (own["space"] == "unit, range 1")]
            if psnr.empty:
                continue
            tries = psnr.loc[psnr.groupby("image")["value"].idxmax(), ["image", "restart", "value"]]
            chosen = {name: own[own["metric"] == name].merge(tries[["image", "restart"]])["value"].mean()
                      for name in ("ssim", "lpips")}  # fmt: skip
            labels = setting[(setting["attack"] == "labels") & (setting["metric"] == "label accuracy")]["value"].mean()
            gain = setting[(setting["attack"] == "loss gain of updates") & (setting["metric"] == "auc")]["value"].mean()
            out.append({"batch": batch, "steps": steps, "attack": attack, "images": len(tries)}
                       | {"psnr": tries["value"].mean(), "recovered": int((tries["value"] >= 20).sum())}
                       | chosen | {"labels": labels, "auc": gain})  # fmt: skip
    return pd.DataFrame(out)


def _leaks(arguments: list[str]) -> str:
    head = ["batch", "steps", "attack", "PSNR", "images at 20 dB", "SSIM", "LPIPS-Alex", "labels"]
    rows = [
        [
            *(str(r.batch), str(r.steps), {"idlg": "iDLG", "ig": "IG"}[r.attack], f"{r.psnr:.1f} dB"),
            *(f"{r.recovered} of {r.images}", f"{r.ssim:.2f}", f"{r.lpips:.2f}", f"{r.labels:.0f} %", f"{r.auc:.2f}"),
        ]
        for r in leaks(arguments[0]).itertuples()
    ]
    return markdown([*head, "membership from the update (AUC)"], rows)


def markdown(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def _format_lead(mean: float, low: float, high: float) -> str:
    interval = f" [{_signed(low)}, {_signed(high)}]" if math.isfinite(low) else ""
    return f"{_signed(mean)}{interval}"


MAKERS: dict[str, Callable[[list[str]], str]] = {"reproduce": _reproduce, "last-ten": _last_ten, "leaks": _leaks}
