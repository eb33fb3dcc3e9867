"""Draw the recorded learning curves of FedLMD's Table 3 and print the table beside the paper's numbers.

python benchmarks/curves.py results/fedlmd docs/figures/fedlmd-shards.png
"""

import sys
from importlib import resources
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import pandas as pd


def paper() -> dict[tuple[str, str], float]:
    """Best accuracy over 200 rounds by (method, setting), CIFAR-10 under sharding."""
    rows = pd.read_csv(str(resources.files("unskew.papers") / "fedlmd_table3_sharding.csv"))
    rows = rows[rows["dataset"] == "CIFAR-10"]
    return {(row.method.lower(), row.setting): float(row.mean) for row in rows.itertuples()}


def table(curves: pd.DataFrame) -> pd.DataFrame:
    """Best accuracy by some rounds, mean over seeds, beside the paper's best."""
    lines, known = [], paper()
    for (method, setting, preset), runs in curves.groupby(["method", "setting", "preset"], sort=False):
        line = {"method": method, "setting": setting, "preset": preset, "seeds": runs["seed"].nunique()}
        for until in (100, 150, 200):
            best = runs[runs["round"].between(1, until)].groupby("seed")["accuracy"].max()
            line[f"best by {until}"] = f"{best.mean():.2f}" if runs["round"].max() >= until else ""
        line["paper"] = known.get((method, setting.split(";")[0]), "")
        lines.append(line)
    return pd.DataFrame(lines)


def draw(curves: pd.DataFrame, path: Path) -> None:
    """Thin lines for runs, thick for their mean, dashed for the paper's best."""
    cutout = "s=2;data.augment.cutout=16"  # what the released code does and the paper's text does not say
    shown = [("fedavg", cutout, "paper"), ("scaffold", cutout, "paper")]
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for (method, setting, preset), colour in zip(shown, ("tab:blue", "tab:orange")):
        runs = curves[(curves.method == method) & (curves.setting == setting) & (curves.preset == preset)]
        for _, run in runs.groupby("seed"):
            axes.plot(run["round"], run["accuracy"], color=colour, alpha=0.25, linewidth=0.8)
        mean = runs.groupby("round")["accuracy"].mean().rolling(10, min_periods=1).mean()
        name, best = (
            f"{method}, mean of {runs.seed.nunique()} seeds, 10 rounds",
            paper()[(method, setting.split(";")[0])],
        )
        axes.plot(mean.index, mean, color=colour, linewidth=2, label=name)
        axes.axhline(best, color=colour, linestyle="--", linewidth=1, label=f"{method}, best in the paper")
    axes.set(xlabel="round", ylabel="test accuracy (%)", title="CIFAR-10, 100 clients, two shards each, ten a round")
    axes.legend(frameon=False)
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)


def main() -> None:
    folder, picture = Path(sys.argv[1]), Path(sys.argv[2])
    curves = pd.read_csv(folder / "curves.csv").query("table == 'table3-sharding'")
    lines = table(curves)
    sys.stdout.write("| " + " | ".join(lines.columns) + " |\n|" + "---|" * len(lines.columns) + "\n")
    for row in lines.itertuples(index=False):
        sys.stdout.write("| " + " | ".join(str(cell) for cell in row) + " |\n")
    draw(curves, picture)


if __name__ == "__main__":
    main()
