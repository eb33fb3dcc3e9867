"""Facts about the runs (data, model, device, versions) from their headers, and the differences in their settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import yaml

from unskew.base.config_base import dotted_keys
from unskew.reports.group_runs import Setting
from unskew.results.format_numbers import listed
from unskew.results.load_run import LoadedRun

SHOWN = ("data", "partition", "model", "work", "stop", "engine")
DEPARTURES = ("differs", "batchnorm")
WIDTH = 11  # of the first column of a header


@dataclass(frozen=True)
class Fact:
    """A name and the lines under it."""

    name: str
    lines: tuple[str, ...]


def facts(setting: Setting) -> list[Fact]:
    """Methods, data, model, rounds and seeds, device, versions, and the settings that differ between methods."""
    methods = [_text(line) for e in setting.entries for line in e.first.about["header"] if line.startswith("method ")]
    shown = [Fact("methods", tuple(dict.fromkeys(methods)))]
    shown += [Fact(key, lines) for key in SHOWN if (lines := tuple(_lines(setting, key)))]
    seeds = f"{setting.first.config.rounds}; seeds {', '.join(map(str, setting.seeds))}"
    uneven = [f"{e.label}: {', '.join(str(r.config.seed) for r in e.runs)}" for e in setting.entries]
    if any(sorted(r.config.seed for r in e.runs) != setting.seeds for e in setting.entries):
        seeds += f" ({'; '.join(uneven)})"
    shown.append(Fact("rounds", (seeds, *_stopped(setting))))
    shown.append(
        Fact(
            "device", _environments(setting, lambda e: f"{e.get('device')} ({e.get('device_type')}), {e.get('system')}")
        )
    )
    shown.append(Fact("versions", _environments(setting, _versions)))
    differing = tuple(differing_settings(setting))
    return [*shown, *([Fact("differs by method", differing)] if differing else [])]


def _stopped(setting: Setting) -> list[str]:
    """The runs that ended before their last round."""
    ended = {e.label: [r.summary.last_round for r in e.runs if r.summary.stopped] for e in setting.entries}
    return [f"{label} stopped after round {listed(list(map(str, at)))}" for label, at in ended.items() if at]


def departures(setting: Setting) -> list[str]:
    """Every departure from a paper in the headers of the runs."""
    runs = [run for entry in setting.entries for run in entry.runs]
    lines = [line for run in runs for line in run.about["header"] if line.startswith(DEPARTURES)]
    return list(
        dict.fromkeys(_text(line) if line.startswith("differs") else f"BatchNorm: {_text(line)}" for line in lines)
    )


def differing_settings(setting: Setting) -> list[str]:
    """Settings other than the method itself that differ between methods."""
    by_method = [
        dotted_keys({k: v for k, v in e.first.config.identity_settings().items() if k not in ("seed", "method")})
        for e in setting.entries
    ]
    keys = [k for k in dict.fromkeys(k for p in by_method for k in p) if len({repr(p.get(k)) for p in by_method}) > 1]
    lines = []
    for key in keys:
        values: dict[str, list[str]] = {}
        for entry, settings in zip(setting.entries, by_method):
            values.setdefault(str(settings.get(key)), []).append(entry.label)
        lines.append(f"{key}: " + "; ".join(f"{value} for {listed(names)}" for value, names in values.items()))
    return lines


@dataclass(frozen=True)
class RunSummary:
    """A run at the end of the page: name of its folder, header, settings."""

    name: str
    header: str
    settings: str


def run_summaries(setting: Setting) -> list[RunSummary]:
    """Every run: the settings of the first in full, of the others only the differences."""
    runs = [run for entry in setting.entries for run in entry.runs]
    first = runs[0].config.resolved()
    rest = [changes(first, run.config.resolved()) for run in runs[1:]]
    texts = [yaml.safe_dump(first, sort_keys=False, allow_unicode=True), *rest]
    return [RunSummary(run.folder.name, "\n".join(run.about["header"]), text) for run, text in zip(runs, texts)]


def changes(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Dotted keys with their new values.

    >>> changes({"seed": 0, "local": {"lr": 0.1}}, {"seed": 1, "local": {"lr": 0.1}})
    'seed: 1'
    """
    old, new = dotted_keys(before), dotted_keys(after)
    lines = [f"{k}: {_inline_yaml(new.get(k))}" for k in {**old, **new} if old.get(k) != new.get(k)]
    return "\n".join(lines) or "identical"


def _inline_yaml(value: Any) -> str:
    return (
        yaml.safe_dump(value, default_flow_style=True, width=10**6, allow_unicode=True).removesuffix("\n...\n").strip()
    )


def _lines(setting: Setting, key: str) -> list[str]:
    """Header lines of one key in the first run of each method, followed by the methods if not all have the line."""
    by_line: dict[str, list[str]] = {}
    for entry in setting.entries:
        for line in entry.first.about["header"]:
            if line[:WIDTH].strip() == key:
                by_line.setdefault(_text(line), []).append(entry.label)
    every = len(setting.entries)
    return [line if len(names) == every else f"{line} ({listed(names)})" for line, names in by_line.items()]


def _text(line: str) -> str:
    return line[WIDTH:].strip()


def _environments(setting: Setting, describe: Callable[[dict[str, Any]], str]) -> tuple[str, ...]:
    runs: list[LoadedRun] = [run for entry in setting.entries for run in entry.runs]
    return tuple(dict.fromkeys(describe(run.environment) for run in runs))


def _versions(environment: dict[str, Any]) -> str:
    named = [f"{name} {environment.get(name, 'unknown')}" for name in ("unskew", "torch", "numpy")]
    commit = str(environment.get("commit", "unknown"))
    return ", ".join([*named, f"Python {environment.get('python', 'unknown')}", f"commit {commit[:12]}"])
