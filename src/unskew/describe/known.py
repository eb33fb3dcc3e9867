"""What is known of each method without playing it: its cost on the digits, its tests, its recorded results.

`results/` and `tests/` are in the repository and not in the installed package, so the table travels as `methods.csv`,
which `benchmarks/pages.py` writes and a test compares with what it would write now.
"""

from __future__ import annotations

import csv
import io
from dataclasses import asdict, dataclass, fields
from importlib import resources
from pathlib import Path

from unskew.core import registry
from unskew.describe.cost import measure
from unskew.describe.method import shipped

FILE = "methods.csv"


@dataclass(frozen=True)
class Known:
    """One method; all texts, as they are shown."""

    name: str
    traffic: str  # bytes beside FedAvg
    work: str
    tested: str  # whether numbers from the papers are in the tests
    recorded: str  # best accuracy in percent, mean over seeds, and FedAvg's in the same setting with the same seeds

    @property
    def status(self) -> str:
        """Tests and results in one line."""
        return "; ".join(word for word in (self.tested, self.recorded) if word) or "contract tests only"


def table() -> dict[str, Known]:
    """By name, from the package."""
    text = (resources.files("unskew.describe") / FILE).read_text()
    return {row["name"]: Known(**row) for row in csv.DictReader(io.StringIO(text))}


def gather(repository: Path) -> str:
    """The table as it should be, measured and read from the repository."""
    rows = [_known(name, repository) for name in shipped()]
    out = io.StringIO()
    writer = csv.DictWriter(out, [field.name for field in fields(Known)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    return out.getvalue()


def _known(name: str, repository: Path) -> Known:
    cost = measure(name)
    file = registry.PARTS[list(registry.resolve(name))[-1]].__module__.rpartition(".")[2]
    tests = {path.stem for path in (repository / "tests" / "oracle").glob("test_*.py")}
    tested = "papers' numbers tested" if {f"test_{name}", f"test_{file}"} & tests else ""
    return Known(name, cost.traffic, cost.effort, tested, "; ".join(_recorded(name, repository / "results")))


def _recorded(name: str, results: Path) -> list[str]:
    """One line a dataset: the setting with most seeds, the first of them where several have as many."""
    import pandas as pd  # slow, and only the repository's own helper comes here

    lines = []
    for path in sorted(results.glob("*/accuracy.csv")):
        rows = pd.read_csv(path)
        for dataset, mine in rows[rows["method"] == name].groupby("dataset", sort=False):
            groups = mine.groupby(["table", "setting", "preset"], sort=False)
            key, most = max(groups, key=lambda each: each[1]["seed"].nunique())
            seeds = most["seed"].unique()
            told = f"{len(seeds)} seeds" if len(seeds) > 1 else "1 seed"
            base = rows[(rows["method"] == "fedavg") & (rows["dataset"] == dataset) & rows["seed"].isin(seeds)]
            for column, value in zip(("table", "setting", "preset"), key):
                base = base[base[column] == value]
            if name != "fedavg" and len(base) == len(seeds):
                told = f"FedAvg {base['best'].mean():.2f}, {told}"
            lines.append(f"{dataset} {key[1]}: {most['best'].mean():.2f} % ({told})")
    return lines
