"""What a comparison allows one to say, in a sentence per setting."""

from __future__ import annotations

from unskew.compare.table import Row, Table
from unskew.results.statistics import verdict

NAMES = {
    "best": "best round",
    "final": "last round",
    "mean_last10": "mean of the last ten rounds",
    "selected": "test accuracy at the round that validation chose",
}


def finding(table: Table, setting: str) -> str:
    """Who wins, or who leads and who is too close to tell; methods with failed seeds have no say."""
    rows = [row for row in table.of(setting) if not row.failed]
    out = [_left_out(row, len(table.seeds)) for row in table.of(setting) if row.failed]
    return "; ".join([_said(table, rows), *out]) + "."


def in_words(table: Table) -> str:
    """A line per setting."""
    return "\n".join(f"{setting}: {finding(table, setting)}".removeprefix(": ") for setting in table.settings)


def _said(table: Table, rows: list[Row]) -> str:
    if not rows:
        return "no winner: no method finished with every seed"
    found = verdict({row.label: row.scores[table.metric] for row in rows})
    means = {row.label: row.spread(table.metric)[0] for row in rows}
    score = f"{means[found.leader]:.2f} % ({NAMES[table.metric]})"
    others = sorted((name for name in means if name != found.leader), key=lambda name: -means[name])
    if not others:
        return f"{found.leader} reaches {score}; there is nothing to compare it with"
    lead = f"{means[found.leader] - means[others[0]]:.2f} points ahead of {others[0]}"
    seeds = len(table.seeds)
    if seeds == 1:
        return f"no clear winner: {found.leader} leads with {score}, {lead}, but one seed proves nothing"
    if found.clear:
        return f"{found.leader} wins: {score}, {lead}; clear over {seeds} seeds"
    level = [name for name in others if name in found.level]
    verb = "is" if len(level) == 1 else "are"
    return (
        f"no clear winner: {found.leader} leads with {score}, {lead}, but {_listed(level)} {verb} within the interval "
        f"over {seeds} seeds"
    )


def _left_out(row: Row, seeds: int) -> str:
    return f"{row.label} is left out, {len(row.failed)} of {seeds} seeds failed"


def _listed(names: list[str]) -> str:
    """
    >>> _listed(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
