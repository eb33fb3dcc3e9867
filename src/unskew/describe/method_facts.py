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
from typing import TYPE_CHECKING

from unskew.describe.describe_method import shipped
from unskew.describe.method_cost import measure
from unskew.protocol import method_registry

if TYPE_CHECKING:
    import pandas as pd

FILE = "methods.csv"
SAME = ["table", "setting", "model", "preset", "rounds"]  # what recorded rows must share to be repetitions
REPETITION = ["partition_seed", "seed"]


@dataclass(frozen=True)
class MethodFacts:
    """One method; all texts, as they are shown."""

    name: str
    traffic: str  # bytes beside FedAvg
    work: str
    tested: str  # what tests of its own hold it to
    recorded: str  # best accuracy in percent, mean over seeds, and FedAvg's in the same setting with the same seeds

    @property
    def status(self) -> str:
        """Tests and results in one line."""
        return "; ".join(word for word in (self.tested, self.recorded) if word) or "contract tests only"


def table() -> dict[str, MethodFacts]:
    """By name, from the package."""
    text = (resources.files("unskew.describe") / FILE).read_text()
    return {row["name"]: MethodFacts(**row) for row in csv.DictReader(io.StringIO(text))}


def gather(repository: Path) -> str:
    """The table as it should be, measured and read from the repository."""
    rows = [_known(name, repository) for name in shipped()]
    out = io.StringIO()
    writer = csv.DictWriter(out, [field.name for field in fields(MethodFacts)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    return out.getvalue()


def _known(name: str, repository: Path) -> MethodFacts:
    cost = measure(name)
    file = method_registry.PARTS[list(method_registry.resolve(name))[-1]].__module__.rpartition(".")[2]
    tested = _tested(repository / "tests" / "oracle" / f"test_{file}.py")
    return MethodFacts(name, cost.traffic, cost.effort, tested, "; ".join(_recorded(name, repository / "results")))


def _tested(file: Path) -> str:
    """What the tests of a method's last part say of themselves: a mark on those with numbers from its paper."""
    if not file.is_file():
        return ""
    marked = "\n@pytest.mark.papers\n" in file.read_text(encoding="utf-8")
    return "papers' numbers tested" if marked else "worked examples tested"


def _recorded(name: str, results: Path) -> list[str]:
    """One line a dataset: the setting with most repetitions; of several with as many the paper's preset, then the one
    that most methods were played in, or the first."""
    import pandas as pd  # slow, and only the repository's own helper comes here

    lines = []
    for path in sorted(results.glob("*/accuracy.csv")):
        rows = pd.read_csv(path, dtype={"partition_seed": str}, keep_default_na=False)
        for dataset, mine in rows[rows["method"] == name].groupby("dataset", sort=False):
            beside = rows[rows["dataset"] == dataset].groupby(SAME)["method"].nunique().to_dict()
            groups = mine.groupby(SAME, sort=False)
            key, most = max(groups, key=lambda each: (len(each[1]), each[0][3] == "paper", beside[each[0]]))
            setting = str(key[1])
            where = dict(zip(SAME, key)) | {"dataset": dataset, "method": "fedavg", "setting": _shared(setting)}
            base = rows[(rows[list(where)] == pd.Series(where)).all(axis=1)].merge(most[REPETITION], on=REPETITION)
            told = _count(most)
            if name != "fedavg" and len(base) == len(most):
                told = f"FedAvg {base['best'].mean():.2f}, {told}"
            lines.append(f"{dataset} {_short(setting)}: {most['best'].mean():.2f} % ({told})")
    return lines


def _shared(setting: str) -> str:
    """A setting without what was changed in the method's own parts, which FedAvg does not have."""
    return ";".join(word for word in setting.split(";") if word.partition(".")[0] not in method_registry.PARTS)


def _short(setting: str) -> str:
    """Without the sections of the keys: `s=2, cutout=16`."""
    return ", ".join(
        word if "=" not in word else word[word[: word.index("=")].rfind(".") + 1 :] for word in setting.split(";")
    )


def _count(rows: pd.DataFrame) -> str:
    """Repetitions: seeds, or draws of the split."""
    what, n = ("draw", rows["partition_seed"].nunique()) if rows["seed"].nunique() == 1 else ("seed", len(rows))
    what, n = ("seed", 1) if n == 1 else (what, n)
    return f"{n} {what}{'s' if n > 1 else ''}"
