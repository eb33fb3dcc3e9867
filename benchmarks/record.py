"""Play a recipe with several methods and seeds side by side and keep the tables.

    python benchmarks/record.py fedlmd-shards --methods fedavg,scaffold --seeds 0,1,2 --out results/fedlmd

Writes OUT/accuracy.csv (one row a run) and OUT/curves.csv (accuracy of every round); rows of runs played before stay,
rows of the same run are replaced. Each run is a process of its own, `--jobs` at a time.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd
import yaml

KEY = ["table", "method", "dataset", "setting", "model", "preset", "partition_seed", "seed", "rounds"]
ACCURACY = [
    *KEY[:4],
    "local_size",
    *KEY[4:],
    "best",
    "best_round",
    "final",
    "mean_last10",
    "bytes_up",
    "bytes_down",
    "seconds",
    "engine",
    "precision",
    "device",
    "versions",
    "commit",
]


def play(recipe: str, method: str, seed: int, overrides: list[str], folder: Path) -> Path:
    """One run in a process of its own; its folder."""
    out = folder / f"{recipe}-{method}-{seed}"
    words = [
        sys.executable,
        "-m",
        "unskew.cli",
        "run",
        recipe,
        f"method={method}",
        f"seed={seed}",
        *overrides,
        "--out",
        str(out),
        "--resume",
        "--json",
    ]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"{method} seed {seed} ended with exit code {done.returncode}")
    sys.stdout.write(f"{method} seed {seed}: {done.stdout.strip()}\n")
    sys.stdout.flush()
    return out


def rows(out: Path, table: str, setting: str) -> tuple[dict, pd.DataFrame]:
    """A run's line and its curve."""
    config = yaml.safe_load((out / "config.yaml").read_text())
    environment = json.loads((out / "environment.json").read_text())
    summary = json.loads((out / "checkpoint" / "manifest.json").read_text())["finished"]
    line = {
        "table": table,
        "method": summary["method"],
        "dataset": config["data"]["name"],
        "setting": setting,
        "local_size": "",
        "model": config["model"]["name"],
        "preset": config["preset"],
        "partition_seed": config["partition"]["seed"],
        "seed": config["seed"],
        "rounds": config["rounds"],
        **{
            key: summary[key]
            for key in ("best", "best_round", "final", "mean_last10", "bytes_up", "bytes_down", "seconds")
        },
        "engine": environment["engine"],
        "precision": config["precision"],
        "device": environment["device"],
        "versions": f"unskew {environment['unskew']} torch {environment['torch']}",
        "commit": environment["commit"],
    }
    metrics = pd.read_parquet(out / "metrics.parquet")
    curve = metrics[(metrics.who == "server") & (metrics.split == "test") & metrics.metric.isin(["accuracy", "loss"])]
    curve = curve.pivot_table(index="round", columns="metric", values="value").reset_index().round(4)
    return line, curve.assign(**{key: line[key] for key in KEY})


def keep(path: Path, fresh: pd.DataFrame) -> None:
    """Add rows to a table; those of the same runs are replaced."""
    fresh = fresh.astype(object).where(fresh.notna(), "").astype(str)
    if path.exists():
        old = pd.read_csv(path, dtype=str, keep_default_na=False)
        mine = set(fresh[KEY].agg("|".join, axis=1))
        fresh = pd.concat([old[~old[KEY].agg("|".join, axis=1).isin(mine)], fresh])
    fresh.to_csv(path, index=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("overrides", nargs="*", help="key=value for every run")
    parser.add_argument("--methods", default="fedavg")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--table", default="")
    parser.add_argument("--setting", default="")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", type=Path, default=None, help="keep the run folders here")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    folder = args.runs or Path(tempfile.mkdtemp())
    cells = [(method, int(seed)) for seed in args.seeds.split(",") for method in args.methods.split(",")]
    with ThreadPoolExecutor(args.jobs) as pool:
        outs = pool.map(lambda cell: play(args.recipe, *cell, args.overrides, folder), cells)
        for out in outs:
            line, curve = rows(out, args.table, args.setting)
            keep(args.out / "accuracy.csv", pd.DataFrame([line])[ACCURACY])
            keep(args.out / "curves.csv", curve)


if __name__ == "__main__":
    main()
