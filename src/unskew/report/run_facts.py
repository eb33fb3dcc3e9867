"""What was run and on what, from the headers that the runs printed; and how the settings of runs differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

from unskew.base.config_base import dotted
from unskew.report.group_runs import Setting
from unskew.results.format_numbers import listed
from unskew.results.load_run import LoadedRun

SHOWN = ("data", "partition", "model", "work", "stop", "engine")
DEPARTURES = ("differs", "batchnorm")
WIDTH = 11  # of the first column of a header


@dataclass(frozen=True)
class Fact:
    """A name and what is to be said under it, a line each."""

    name: str
    lines: tuple[str, ...]


def facts(setting: Setting) -> list[Fact]:
    """Data to device, rounds and seeds, versions, and the settings that are not the same for all methods."""
    methods = [_text(line) for e in setting.entries for line in e.first.about["header"] if line.startswith("method ")]
    said = [Fact("methods", tuple(dict.fromkeys(methods)))]
    said += [Fact(key, lines) for key in SHOWN if (lines := tuple(_lines(setting, key)))]
    seeds = f"{setting.first.config.rounds}; seeds {', '.join(map(str, setting.seeds))}"
    uneven = [f"{e.label}: {', '.join(str(r.config.seed) for r in e.runs)}" for e in setting.entries]
    if any(sorted(r.config.seed for r in e.runs) != setting.seeds for e in setting.entries):
        seeds += f" ({'; '.join(uneven)})"
    said.append(Fact("rounds", (seeds, *_stopped(setting))))
    said.append(
        Fact(
            "device", _environments(setting, lambda e: f"{e.get('device')} ({e.get('device_type')}), {e.get('system')}")
        )
    )
    said.append(Fact("versions", _environments(setting, _versions)))
    own = tuple(own_settings(setting))
    return [*said, *([Fact("not the same for all", own)] if own else [])]


def _stopped(setting: Setting) -> list[str]:
    """Which runs ended before their last round."""
    ended = {e.label: [r.summary.last_round for r in e.runs if r.summary.stopped] for e in setting.entries}
    return [f"{label} stopped after round {listed(list(map(str, at)))}" for label, at in ended.items() if at]


def departures(setting: Setting) -> list[str]:
    """Every departure from a paper that some run printed."""
    runs = [run for entry in setting.entries for run in entry.runs]
    lines = [line for run in runs for line in run.about["header"] if line.startswith(DEPARTURES)]
    return list(
        dict.fromkeys(_text(line) if line.startswith("differs") else f"BatchNorm: {_text(line)}" for line in lines)
    )


def own_settings(setting: Setting) -> list[str]:
    """Settings other than the method's that differ between methods."""
    plain = [
        dotted({k: v for k, v in e.first.config.counting().items() if k not in ("seed", "method")})
        for e in setting.entries
    ]
    keys = [k for k in dict.fromkeys(k for p in plain for k in p) if len({repr(p.get(k)) for p in plain}) > 1]
    lines = []
    for key in keys:
        values: dict[str, list[str]] = {}
        for entry, mine in zip(setting.entries, plain):
            values.setdefault(str(mine.get(key)), []).append(entry.label)
        lines.append(f"{key}: " + "; ".join(f"{value} for {listed(names)}" for value, names in values.items()))
    return lines


@dataclass(frozen=True)
class RunSummary:
    """A run at the end of the page: its folder's name, its header, its settings."""

    name: str
    header: str
    settings: str


def shown(setting: Setting) -> list[RunSummary]:
    """Every run; the settings of the first in full, of the others what they change."""
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
    old, new = dotted(before), dotted(after)
    lines = [f"{k}: {_flow(new.get(k))}" for k in {**old, **new} if old.get(k) != new.get(k)]
    return "\n".join(lines) or "the same"


def _flow(value: Any) -> str:
    return (
        yaml.safe_dump(value, default_flow_style=True, width=10**6, allow_unicode=True).removesuffix("\n...\n").strip()
    )


def _lines(setting: Setting, key: str) -> list[str]:
    """Lines of the headers under one key, with the methods they hold for where not for all. Of the first seed."""
    by_line: dict[str, list[str]] = {}
    for entry in setting.entries:
        for line in entry.first.about["header"]:
            if line[:WIDTH].strip() == key:
                by_line.setdefault(_text(line), []).append(entry.label)
    every = len(setting.entries)
    return [line if len(names) == every else f"{line} ({listed(names)})" for line, names in by_line.items()]


def _text(line: str) -> str:
    return line[WIDTH:].strip()


def _environments(setting: Setting, written: Any) -> tuple[str, ...]:
    runs: list[LoadedRun] = [run for entry in setting.entries for run in entry.runs]
    return tuple(dict.fromkeys(written(run.environment) for run in runs))


def _versions(environment: dict[str, Any]) -> str:
    named = [f"{name} {environment.get(name, 'unknown')}" for name in ("unskew", "torch", "numpy")]
    commit = str(environment.get("commit", "unknown"))
    return ", ".join([*named, f"Python {environment.get('python', 'unknown')}", f"commit {commit[:12]}"])
