"""Draw the recorded learning curves of FedLMD's Table 3 and print the tables of docs/lab/results-log.md.

python benchmarks/curves.py results/fedlmd docs/figures/fedlmd-shards.png
"""

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import pandas as pd

from unskew.reproductions.paper_numbers import read

RELEASED_DRAW = 19940817  # the split seed of the authors' code


def paper_bests() -> dict[tuple[str, str], float]:
    """Best accuracy over 200 rounds by (method, setting), CIFAR-10 with the cnn."""
    files = ("fedlmd_table3_sharding.csv", "fedlmd_table1.csv", "fedlmd_table2.csv", "fedlmd_table3_lda.csv")
    cells = [(key, cell) for file in files for key, cell in read(file).items()]
    return {(method, cell.setting): cell.mean for (method, column), cell in cells if column.startswith("cifar10-")}


def best_by_rounds(curves: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Best accuracy after some numbers of rounds, mean over seeds, with the paper's best."""
    lines, paper_best = [], paper_bests()
    for key, runs in curves.groupby(by, sort=False):
        line = dict(zip(by, key)) | {"seeds": runs["seed"].nunique()}
        for until in (100, 150, 200):
            best = runs[runs["round"].between(1, until)].groupby("seed")["accuracy"].max()
            line[f"best by {until}"] = f"{best.mean():.2f}" if runs["round"].max() >= until else ""
        line["paper"] = paper_best.get((line["method"], line["setting"].split(";")[0]), "")
        lines.append(line)
    return pd.DataFrame(lines)


def gaps(lines: pd.DataFrame, method: str) -> pd.DataFrame:
    """The method's lead over every other method on each draw, with mean and deviation; only methods with all draws."""
    best = lines.pivot(index="method", columns="draw", values="best by 200").astype(float).dropna()
    gap = (best.loc[method] - best).drop(method)
    spread = gap.std(axis=1).map("{:.2f}".format)
    return gap.assign(mean=gap.mean(axis=1)).map("{:+.2f}".format).assign(std=spread).reset_index()


def markdown(lines: pd.DataFrame) -> str:
    rows = [lines.columns, ["---"] * len(lines.columns), *lines.itertuples(index=False)]
    return "".join("| " + " | ".join(str(cell) for cell in row) + " |\n" for row in rows) + "\n"


def draw(curves: pd.DataFrame, path: Path) -> None:
    """Thin lines are runs, thick ones their mean, dashed ones the paper's best."""
    cutout = "s=2;data.augment.cutout=16"  # the released code uses cutout, which the paper does not mention
    shown = [("fedavg", cutout, "paper"), ("scaffold", cutout, "paper")]
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for (method, setting, preset), colour in zip(shown, ("tab:blue", "tab:orange")):
        runs = curves[(curves.method == method) & (curves.setting == setting) & (curves.preset == preset)]
        for _, run in runs.groupby("seed"):
            axes.plot(run["round"], run["accuracy"], color=colour, alpha=0.25, linewidth=0.8)
        mean = runs.groupby("round")["accuracy"].mean().rolling(10, min_periods=1).mean()
        name = f"{method}, mean of {runs.seed.nunique()} seeds, 10 rounds"
        best = paper_bests()[(method, setting.split(";")[0])]
        axes.plot(mean.index, mean, color=colour, linewidth=2, label=name)
        axes.axhline(best, color=colour, linestyle="--", linewidth=1, label=f"{method}, best in the paper")
    axes.set(xlabel="round", ylabel="test accuracy (%)", title="CIFAR-10, 100 clients, two shards each, ten a round")
    axes.legend(frameon=False)
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)


def main() -> None:
    folder, picture = Path(sys.argv[1]), Path(sys.argv[2])
    curves = pd.read_csv(folder / "curves.csv").rename(columns={"partition_seed": "draw"})
    shards, lda = (curves[curves["table"] == name] for name in ("table3-sharding", "table3-lda"))
    sys.stdout.write(markdown(best_by_rounds(shards, ["method", "setting", "preset"])))
    drawn = best_by_rounds(lda, ["method", "setting", "draw"])
    sys.stdout.write(markdown(drawn.sort_values(["draw", "best by 200"], ascending=False)))
    for until in (100, 150, 200):
        first = drawn[drawn["draw"] == RELEASED_DRAW]
        off = first[f"best by {until}"].astype(float) - first["paper"]
        sys.stdout.write(
            f"best by {until} minus the paper's: mean {off.mean():+.2f}, mean absolute {off.abs().mean():.2f}\n"
        )
    sys.stdout.write("\n" + markdown(gaps(drawn, "fedlmd")))
    draw(shards, picture)


if __name__ == "__main__":
    main()
