"""Runs sorted for comparison: a setting is what must be equal, an entry is a method in it with its seeds.

Runs on other data, partitions or models belong to other settings: their accuracies are never averaged or paired, but
one page may show them side by side, since a grid over data sets is one question. Runs that claim to be equal and are
not (one name and seed, other contents) are refused, because a paired difference between them would mean nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unskew.base.config_base import dotted
from unskew.base.errors import UserError
from unskew.results.baseline import reference_of
from unskew.results.load_run import LoadedRun
from unskew.results.run_folder import manifest_of
from unskew.results.statistics import Scores

ACCURACIES = ("best", "final", "mean_last10")  # of a summary
KEYS = ("data", "partition", "model", "rounds", "participation", "weights", "absence", "preset")


@dataclass(frozen=True)
class MethodRuns:
    """A method as it was run in a setting: one run per seed."""

    label: str
    runs: tuple[LoadedRun, ...]
    scores: Mapping[str, Scores]  # measure -> seed -> percent
    whole: bool = True  # else seeds of it failed, and its means are means of something else
    printed: str = ""  # what a paper prints for it

    @property
    def first(self) -> LoadedRun:
        return self.runs[0]

    @property
    def method(self) -> str:
        """Its own name, whatever the label."""
        return self.first.config.label


@dataclass(frozen=True)
class Setting:
    """Entries that may be compared; the reference comes first."""

    name: str
    entries: tuple[MethodRuns, ...]
    notes: tuple[str, ...] = ()  # to be read with the numbers

    @property
    def first(self) -> LoadedRun:
        return self.entries[0].first

    @property
    def reference(self) -> MethodRuns:
        """The one that differences are taken to."""
        return self.entries[0]

    @property
    def measures(self) -> list[str]:
        """The accuracies of its entries, in the order of their columns."""
        return list(self.entries[0].scores)

    @property
    def selected(self) -> bool:
        """Whether rounds were chosen on held-out rows, so that test curves had no say."""
        return "selected" in self.measures

    @property
    def seeds(self) -> list[int]:
        return sorted({run.config.seed for entry in self.entries for run in entry.runs})

    @property
    def classes(self) -> list[str]:
        return [str(name) for name in self.first.about["classes"]]


def settings_of(runs: Iterable[LoadedRun]) -> list[Setting]:
    """Sort runs into settings, in the order in which these first appear."""
    unique = list({run.folder.resolve(): run for run in runs}.values())
    if not unique:
        raise UserError("expected at least one run, found none; name a run's folder")
    groups = [part for group in _grouped(unique, _common) for part in _by_work(group)]
    told = [_told(group[0]) for group in groups]
    names = [_name(plain, told) for plain in told]
    seen = [f"{name}: {_data(group[0])}" if names.count(name) > 1 else name for name, group in zip(names, groups)]
    return [Setting(name, _entries(group)) for name, group in zip(seen, groups)]


def reference_first(entries: Sequence[MethodRuns]) -> tuple[MethodRuns, ...]:
    """The reference, then the others in their order."""
    at = reference_of([entry.method for entry in entries])
    return (entries[at], *entries[:at], *entries[at + 1 :])


def _told(run: LoadedRun) -> dict[str, Any]:
    """The settings that tell one setting from another, with the work in case that splits them."""
    plain = run.config.counting()
    return dotted({key: plain[key] for key in (*KEYS, "local")})


def _common(run: LoadedRun) -> Any:
    """What must be equal; also what data from Python look like, whose name says nothing."""
    plain = run.config.counting()
    return [{key: plain[key] for key in KEYS}, run.about["classes"], run.about["shape"], _data(run)]


def _data(run: LoadedRun) -> str:
    """What the header says about the data."""
    lines = [line.removeprefix("data").strip() for line in run.about["header"] if line.startswith("data ")]
    return f"{' '.join(lines)} ({len(run.about['classes'])} classes of shape {run.about['shape']})"


def _by_work(runs: list[LoadedRun]) -> list[list[LoadedRun]]:
    """Split where a method was run with several kinds of local work.

    Otherwise work is a method's own (SCAFFOLD without momentum) and the page says so beside it.
    """
    works = _grouped(runs, lambda run: run.config.counting()["local"])
    labels = [{json.dumps(run.config.counting()["method"]) for run in group} for group in works]
    several = any(a & b for i, a in enumerate(labels) for b in labels[:i])
    return works if several else [runs]


def _entries(runs: list[LoadedRun]) -> tuple[MethodRuns, ...]:
    groups = _grouped(runs, _own)
    labels = _labels([group[0] for group in groups])
    entries = [_entry(name, sorted(group, key=lambda run: run.config.seed)) for name, group in zip(labels, groups)]
    for entry in entries:
        _one_per_seed(entry)
    _same_world(runs)
    return reference_first(entries)


def _entry(label: str, runs: list[LoadedRun]) -> MethodRuns:
    scores = {name: {run.config.seed: float(getattr(run.summary, name)) for run in runs} for name in ACCURACIES}
    return MethodRuns(label, tuple(runs), scores)


def _own(run: LoadedRun) -> dict[str, Any]:
    """What makes an entry: every setting that may change a result, but the setting's and the seed."""
    plain = run.config.counting()
    return {key: value for key, value in plain.items() if key not in (*KEYS, "seed")}


def _labels(firsts: list[LoadedRun]) -> list[str]:
    """The methods' names; where one name occurs twice, with the keys that differ."""
    labels = []
    for run in firsts:
        same = [dotted(_own(other) | _parts(other)) for other in firsts if other.config.label == run.config.label]
        mine = dotted(_own(run) | _parts(run))
        keys = [k for k in mine if k != "method" and any(other.get(k) != mine[k] for other in same)]
        detail = ", ".join(f"{k.rpartition('.')[2]} {mine[k]}" for k in keys)
        labels.append(f"{run.config.label} ({detail})" if detail else run.config.label)
    return labels


def _parts(run: LoadedRun) -> dict[str, Any]:
    """Hyper-parameters by part, out of the list in which a method is written."""
    return {part: fields for item in run.config.method if isinstance(item, dict) for part, fields in item.items()}


def _one_per_seed(entry: MethodRuns) -> None:
    by_seed = _grouped(entry.runs, lambda run: run.config.seed)
    twice = next((group for group in by_seed if len(group) > 1), None)
    if twice:
        raise UserError(
            f"expected one run of {entry.label} with seed {twice[0].config.seed}, found {len(twice)}: "
            f"{', '.join(str(run.folder) for run in twice)}; name only one of them"
        )


def _same_world(runs: list[LoadedRun]) -> None:
    """The same settings and seed must mean the same rows at the same clients."""
    for group in _grouped(runs, lambda run: run.config.seed):
        worlds = [(manifest_of(run.folder) or {}).get("world", {}) for run in group]
        for run, world in zip(group[1:], worlds[1:]):
            changed = [k for k in ("data", "partition") if world.get(k) != worlds[0].get(k)]
            if changed:
                raise UserError(
                    f"{run.folder}: expected the {' and '.join(changed)} of {group[0].folder}, whose settings and seed "
                    "are the same, found other contents; report on them one by one or play one of them again"
                )


def _name(mine: dict[str, Any], all_told: list[dict[str, Any]]) -> str:
    """The keys in which settings differ; a lone setting is named by its data and partition."""
    keys = [
        k for k in dict.fromkeys(k for told in all_told for k in told) if len({repr(t.get(k)) for t in all_told}) > 1
    ]
    if not keys:
        return f"{mine['data.name']}, {mine['partition.name']}"
    return ", ".join(f"{k.removesuffix('.name')} {mine[k]}" for k in keys if mine.get(k) is not None)


def _grouped(runs: Iterable[LoadedRun], key: Callable[[LoadedRun], Any]) -> list[list[LoadedRun]]:
    groups: dict[str, list[LoadedRun]] = {}
    for run in runs:
        groups.setdefault(json.dumps(key(run), sort_keys=True), []).append(run)
    return list(groups.values())
