"""Facts about each method that need no run: its cost on the digits, its tests, its recorded results.

`results/` and `tests/` are in the repository but not in the installed package, so the table is shipped as
`methods.csv`. `benchmarks/pages.py` writes it, and a test checks that it is up to date.
"""

from __future__ import annotations

import csv
import io
import math
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
SAME_EXPERIMENT = ["paper", "setting", "model", "preset", "rounds"]
REPETITION = ["partition_seed", "seed"]


@dataclass(frozen=True)
class MethodFacts:
    """The facts about one method, as text to show."""

    name: str
    traffic: str  # bytes relative to FedAvg
    work: str
    tested: str  # kind of the method's own tests
    recorded: str  # by dataset, the settings in which it was best and worst compared with FedAvg

    @property
    def status(self) -> str:
        """Tests and recorded results in one line."""
        return f"{self.tested or 'contract tests only'}; {self.recorded or 'no recorded runs'}"


@dataclass(frozen=True)
class RecordedSetting:
    """A recorded setting of a method: its best accuracy over the rounds, mean over seeds, and FedAvg's."""

    where: str  # skew, preset and repetitions
    accuracy: float
    fedavg: float  # NaN for FedAvg itself, and where FedAvg was not run with all of the seeds

    @property
    def lead(self) -> float:
        """Points above FedAvg; the accuracy where FedAvg's is unknown."""
        return self.accuracy if math.isnan(self.fedavg) else self.accuracy - self.fedavg

    def __str__(self) -> str:
        accuracy = f"{self.accuracy:.2f} %"
        return f"{accuracy if math.isnan(self.fedavg) else f'{self.lead:+.2f} to {accuracy}'} ({self.where})"


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
    """The kind of tests of a method's last part; none of them compares accuracies with the paper's.

    Tests with the marker `papers` compute the equations on numbers worked out from the paper.
    """
    if not file.is_file():
        return ""
    marked = "\n@pytest.mark.papers\n" in file.read_text(encoding="utf-8")
    return "equations tested" if marked else "worked examples tested"


def _recorded(name: str, results: Path) -> list[str]:
    """For each dataset the recorded settings in which the method is best and worst compared with FedAvg.

    Sweeps over the method's own settings count only if it was not run with its defaults.
    """
    rows = _read(results)
    lines = []
    for dataset, own in rows[rows["method"] == name].groupby("dataset", sort=False):
        of_dataset = rows[rows["dataset"] == dataset]
        defaults = own[[_without_method_settings(setting) == setting for setting in own["setting"]]]
        groups = (own if defaults.empty else defaults).groupby(SAME_EXPERIMENT, sort=False)
        settings = [_setting(name, part, of_dataset) for _, part in groups]
        lines.append(f"{dataset}: {_best_and_worst(settings)}")
    return lines


def _read(results: Path) -> pd.DataFrame:
    """The recorded runs of all papers; one that several tables show counts once."""
    import pandas as pd  # imported here because it is slow and only `gather` needs it

    paths = sorted([*results.glob("*/accuracy.csv"), *results.glob("released/*/accuracy.csv")])
    tables = [pd.read_csv(path, dtype={"partition_seed": str}, keep_default_na=False) for path in paths]
    rows = pd.concat([table.assign(paper=path.parent.name) for path, table in zip(paths, tables)])
    rows = rows[rows["superseded"] == ""]  # to be run again
    return rows.drop_duplicates(["dataset", "method", *SAME_EXPERIMENT, *REPETITION])


def _setting(name: str, own: pd.DataFrame, rows: pd.DataFrame) -> RecordedSetting:
    """A setting's accuracy and FedAvg's with the same seeds; own: its runs; rows: all of the dataset."""
    import pandas as pd

    same = {column: own[column].iloc[0] for column in SAME_EXPERIMENT}
    setting = str(same["setting"])
    same |= {"method": "fedavg", "setting": _without_method_settings(setting)}
    paired = rows[(rows[list(same)] == pd.Series(same)).all(axis=1)].merge(own[REPETITION], on=REPETITION)
    complete = name != "fedavg" and len(paired) == len(own)
    where = f"{_without_sections(setting)}, {same['preset']}, {_format_repetitions(own)}"
    return RecordedSetting(where, float(own["best"].mean()), float(paired["best"].mean()) if complete else math.nan)


def _best_and_worst(settings: list[RecordedSetting]) -> str:
    """The settings with the largest and the smallest lead over FedAvg; without FedAvg's runs, by accuracy."""
    compared = [setting for setting in settings if math.isfinite(setting.fedavg)]
    ordered = sorted(compared or settings, key=lambda setting: setting.lead)
    if len(ordered) == 1:
        return str(ordered[0])
    return f"best {ordered[-1]}, worst {ordered[0]}"


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
