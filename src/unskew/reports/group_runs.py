"""Group runs by setting: a `Setting` has the runs with the same data, partition, model and rounds, by method and seed.

Runs on different data, partitions or models belong to different settings. Their accuracies are never averaged or
paired, but one page may show several settings, for instance a grid over datasets. Runs with the same settings and seed
but different data or split are refused, because a paired difference between them would mean nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unskew.base.config_base import dotted_keys
from unskew.base.errors import UserError
from unskew.results.baseline import baseline_index
from unskew.results.load_run import LoadedRun
from unskew.results.run_folder import read_manifest
from unskew.results.statistics import Scores

ACCURACIES = ("best", "final", "mean_last10")  # fields of a run's summary
CLIENT_ACCURACIES = ("clients_mean", "worst_tenth")  # the same, with `evaluate.clients`
SETTING_KEYS = ("data", "partition", "model", "rounds", "participation", "weights", "absence", "rules")


@dataclass(frozen=True)
class MethodRuns:
    """A method as it was run in a setting: one run per seed."""

    label: str
    runs: tuple[LoadedRun, ...]
    scores: Mapping[str, Scores]  # measure -> seed -> percent
    complete: bool = True  # False: some seeds failed, so its means are not comparable
    paper_value: str = ""  # the paper's number for it

    @property
    def first(self) -> LoadedRun:
        return self.runs[0]

    @property
    def method(self) -> str:
        """Name of the method itself, which may differ from the label."""
        return self.first.config.label


@dataclass(frozen=True)
class Setting:
    """Methods that may be compared with each other; the baseline comes first."""

    name: str
    entries: tuple[MethodRuns, ...]
    notes: tuple[str, ...] = ()  # remarks on the numbers

    @property
    def first(self) -> LoadedRun:
        return self.entries[0].first

    @property
    def baseline(self) -> MethodRuns:
        """The method that the others are compared with."""
        return self.entries[0]

    @property
    def measures(self) -> list[str]:
        """The accuracies of its entries, in the order of their columns."""
        return [name for name in self.entries[0].scores if all(name in entry.scores for entry in self.entries)]

    @property
    def rounds_selected(self) -> bool:
        """Whether rounds were chosen on held-out rows and not from the test curves."""
        return "selected" in self.measures

    @property
    def seeds(self) -> list[int]:
        return sorted({run.config.seed for entry in self.entries for run in entry.runs})

    @property
    def classes(self) -> list[str]:
        return [str(name) for name in self.first.about["classes"]]


def group_by_setting(all_runs: Iterable[LoadedRun]) -> list[Setting]:
    """Group runs into settings, in order of first appearance."""
    unique = list({run.folder.resolve(): run for run in all_runs}.values())
    if not unique:
        raise UserError("expected at least one run, found none; give the folder of a run")
    groups = [runs for group in _group(unique, _setting_key) for runs in _split_by_work(group)]
    keys = [_naming_keys(group[0]) for group in groups]
    names = [_name(of_setting, keys) for of_setting in keys]
    titles = [f"{name}: {_data(group[0])}" if names.count(name) > 1 else name for name, group in zip(names, groups)]
    return [Setting(title, _entries(group)) for title, group in zip(titles, groups)]


def baseline_first(entries: Sequence[MethodRuns]) -> tuple[MethodRuns, ...]:
    """The baseline, then the others in their order."""
    at = baseline_index([entry.method for entry in entries])
    return (entries[at], *entries[:at], *entries[at + 1 :])


def _naming_keys(run: LoadedRun) -> dict[str, Any]:
    """Dotted keys that may name a setting; `local` is one of them because local work can split a setting."""
    settings = run.config.identity_settings()
    return dotted_keys({key: settings[key] for key in (*SETTING_KEYS, "local")})


def _setting_key(run: LoadedRun) -> Any:
    """Equal for all runs of a setting. Classes and shape count too: data passed from Python have no real name."""
    settings = run.config.identity_settings()
    return [{key: settings[key] for key in SETTING_KEYS}, run.about["classes"], run.about["shape"], _data(run)]


def _data(run: LoadedRun) -> str:
    """The data as the run's header describes them."""
    lines = [line.removeprefix("data").strip() for line in run.about["header"] if line.startswith("data ")]
    return f"{' '.join(lines)} ({len(run.about['classes'])} classes of shape {run.about['shape']})"


def _split_by_work(runs: list[LoadedRun]) -> list[list[LoadedRun]]:
    """Split the runs if a method was run with several kinds of local work.

    Otherwise different work belongs to the method (SCAFFOLD runs without momentum), and the page points it out.
    """
    works = _group(runs, lambda run: run.config.identity_settings()["local"])
    labels = [{json.dumps(run.config.identity_settings()["method"]) for run in group} for group in works]
    several = any(a & b for i, a in enumerate(labels) for b in labels[:i])
    return works if several else [runs]


def _entries(runs: list[LoadedRun]) -> tuple[MethodRuns, ...]:
    groups = _group(runs, _entry_key)
    labels = _labels([group[0] for group in groups])
    entries = [_entry(name, sorted(group, key=lambda run: run.config.seed)) for name, group in zip(labels, groups)]
    for entry in entries:
        _check_one_run_per_seed(entry)
    _check_same_data(runs)
    return baseline_first(entries)


def _entry(label: str, runs: list[LoadedRun]) -> MethodRuns:
    names = [*ACCURACIES, *(name for name in CLIENT_ACCURACIES if all(run.config.evaluate.clients for run in runs))]
    scores = {name: {run.config.seed: float(getattr(run.summary, name)) for run in runs} for name in names}
    return MethodRuns(label, tuple(runs), scores)


def _entry_key(run: LoadedRun) -> dict[str, Any]:
    """Equal for all runs of an entry: every key that may change results, except the setting's keys and the seed."""
    settings = run.config.identity_settings()
    return {key: value for key, value in settings.items() if key not in (*SETTING_KEYS, "seed")}


def _labels(firsts: list[LoadedRun]) -> list[str]:
    """Names of the methods; if a name occurs twice, with the keys that differ."""
    labels = []
    for run in firsts:
        same = [
            dotted_keys(_entry_key(other) | _parts(other)) for other in firsts if other.config.label == run.config.label
        ]
        own = dotted_keys(_entry_key(run) | _parts(run))
        keys = [k for k in own if k != "method" and any(other.get(k) != own[k] for other in same)]
        detail = ", ".join(f"{k.rpartition('.')[2]} {own[k]}" for k in keys)
        labels.append(f"{run.config.label} ({detail})" if detail else run.config.label)
    return labels


def _parts(run: LoadedRun) -> dict[str, Any]:
    """Hyper-parameters by part, for methods that the settings give as a list of parts."""
    return {part: fields for item in run.config.method if isinstance(item, dict) for part, fields in item.items()}


def _check_one_run_per_seed(entry: MethodRuns) -> None:
    by_seed = _group(entry.runs, lambda run: run.config.seed)
    twice = next((group for group in by_seed if len(group) > 1), None)
    if twice:
        raise UserError(
            f"expected one run of {entry.label} with seed {twice[0].config.seed}, found {len(twice)}: "
            f"{', '.join(str(run.folder) for run in twice)}; give only one of them"
        )


def _check_same_data(runs: list[LoadedRun]) -> None:
    """Runs with the same settings and seed must have the same rows at the same clients."""
    for group in _group(runs, lambda run: run.config.seed):
        fingerprints = [(read_manifest(run.folder) or {}).get("world", {}) for run in group]
        for run, own in zip(group[1:], fingerprints[1:]):
            changed = [k for k in ("data", "partition") if own.get(k) != fingerprints[0].get(k)]
            if changed:
                raise UserError(
                    f"{run.folder}: expected the same {' and '.join(changed)} as {group[0].folder}, which has the same "
                    "settings and seed, found other contents; report on them separately or rerun one of them"
                )


def _name(keys_of_setting: dict[str, Any], all_keys: list[dict[str, Any]]) -> str:
    """Name a setting by the keys in which settings differ; a single setting by its data and partition."""
    own, unique = keys_of_setting, dict.fromkeys(key for keys in all_keys for key in keys)
    different = [key for key in unique if len({repr(keys.get(key)) for keys in all_keys}) > 1]
    if not different:
        return f"{own['data.name']}, {own['partition.name']}"
    return ", ".join(f"{key.removesuffix('.name')} {own[key]}" for key in different if own.get(key) is not None)


def _group(runs: Iterable[LoadedRun], key: Callable[[LoadedRun], Any]) -> list[list[LoadedRun]]:
    groups: dict[str, list[LoadedRun]] = {}
    for run in runs:
        groups.setdefault(json.dumps(key(run), sort_keys=True), []).append(run)
    return list(groups.values())
