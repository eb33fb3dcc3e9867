"""Facts about each method that need no run: its cost on the digits, its tests, its recorded results.

`results/` and `tests/` are in the repository but not in the installed package, so the table is shipped as
`methods.csv`. `benchmarks/pages.py` writes it, and a test checks that it is up to date.
"""

from __future__ import annotations

import csv
import io
from dataclasses import asdict, dataclass, fields
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from unskew.describe.describe_method import shipped
from unskew.describe.method_cost import measure
from unskew.protocol import method_registry

if TYPE_CHECKING:
    import pandas as pd

FILE = "methods.csv"
# Columns that are equal for repetitions of one experiment.
SAME_EXPERIMENT = ["table", "setting", "model", "preset", "rounds"]
REPETITION = ["partition_seed", "seed"]


@dataclass(frozen=True)
class MethodFacts:
    """The facts about one method, as text to show."""

    name: str
    traffic: str  # bytes relative to FedAvg
    work: str
    tested: str  # kind of the method's own tests
    recorded: str  # best accuracy in percent, mean over seeds, and FedAvg's in the same setting with the same seeds

    @property
    def status(self) -> str:
        """Tests and recorded results in one line."""
        return "; ".join(word for word in (self.tested, self.recorded) if word) or "contract tests only"


def table() -> dict[str, MethodFacts]:
    """The packaged table, by method."""
    text = (resources.files("unskew.describe") / FILE).read_text()
    return {row["name"]: MethodFacts(**row) for row in csv.DictReader(io.StringIO(text))}


def gather(repository: Path) -> str:
    """Measure the costs and read tests and results from the repository; returns the table as CSV."""
    rows = [_facts(name, repository) for name in shipped()]
    out = io.StringIO()
    writer = csv.DictWriter(out, [field.name for field in fields(MethodFacts)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    return out.getvalue()


def _facts(name: str, repository: Path) -> MethodFacts:
    cost = measure(name)
    file = method_registry.PARTS[list(method_registry.resolve(name))[-1]].__module__.rpartition(".")[2]
    tested = _tested(repository / "tests" / "oracle" / f"test_{file}.py")
    return MethodFacts(name, cost.traffic, cost.effort, tested, "; ".join(_recorded(name, repository / "results")))


def _tested(file: Path) -> str:
    """The kind of tests of a method's last part; tests of the paper's numbers have the marker `papers`."""
    if not file.is_file():
        return ""
    marked = "\n@pytest.mark.papers\n" in file.read_text(encoding="utf-8")
    return "papers' numbers tested" if marked else "worked examples tested"


def _recorded(name: str, results: Path) -> list[str]:
    """One line per dataset, for the setting with the most repetitions.

    Ties are broken by the paper's preset, then by the number of methods with rows in the setting, then by order.
    """
    import pandas as pd  # imported here because it is slow and only `gather` needs it

    lines = []
    for path in sorted(results.glob("*/accuracy.csv")):
        rows = pd.read_csv(path, dtype={"partition_seed": str}, keep_default_na=False)
        for dataset, own in rows[rows["method"] == name].groupby("dataset", sort=False):
            methods = rows[rows["dataset"] == dataset].groupby(SAME_EXPERIMENT)["method"].nunique().to_dict()
            groups = own.groupby(SAME_EXPERIMENT, sort=False)
            key, repetitions = max(groups, key=lambda each: (len(each[1]), each[0][3] == "paper", methods[each[0]]))
            setting = str(key[1])
            same = dict(zip(SAME_EXPERIMENT, key)) | {
                "dataset": dataset,
                "method": "fedavg",
                "setting": _without_method_settings(setting),
            }
            base = rows[(rows[list(same)] == pd.Series(same)).all(axis=1)].merge(repetitions[REPETITION], on=REPETITION)
            counted = _format_repetitions(repetitions)
            if name != "fedavg" and len(base) == len(repetitions):
                counted = f"FedAvg {base['best'].mean():.2f}, {counted}"
            lines.append(f"{dataset} {_without_sections(setting)}: {repetitions['best'].mean():.2f} % ({counted})")
    return lines


def _without_method_settings(setting: str) -> str:
    """A setting without changes to the method's own parts, which FedAvg does not have."""
    return ";".join(word for word in setting.split(";") if word.partition(".")[0] not in method_registry.PARTS)


def _without_sections(setting: str) -> str:
    """A setting without the sections of its keys, such as `s=2, cutout=16`."""
    return ", ".join(
        word if "=" not in word else word[word[: word.index("=")].rfind(".") + 1 :] for word in setting.split(";")
    )


def _format_repetitions(rows: pd.DataFrame) -> str:
    """The number of seeds, or of draws of the split."""
    unit, n = ("draw", rows["partition_seed"].nunique()) if rows["seed"].nunique() == 1 else ("seed", len(rows))
    unit, n = ("seed", 1) if n == 1 else (unit, n)
    return f"{n} {unit}{'s' if n > 1 else ''}"
