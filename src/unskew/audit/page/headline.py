"""What the page says first: who gave how much away, and what that does not mean."""

from __future__ import annotations

import math

import pandas as pd

from unskew.audit.leak import KindVerdict
from unskew.audit.page.metric_titles import RECOGNISABLE
from unskew.audit.page.summarise_leaks import contexts_named, recognised
from unskew.results.finding import Finding
from unskew.results.format_numbers import listed

CAUTION = (
    "The best of all tries on an image counts. That an attack failed proves nothing: another one or a larger budget "
    "may succeed."
)
STATES = {
    "recovered": "attacked and recovered",
    "resisted": "attacked and resisted, at this budget",
    "unknown": "no attack known here",
}
ROOM = 4  # outcomes in the headline


def found(best: pd.DataFrame, verdicts: tuple[KindVerdict, ...]) -> Finding:
    """Headline and detail, by pictures where there are any, else by verdicts. best: of `best_tries`."""
    back = recognised(best)
    if back.empty:
        return Finding(_by_verdicts(verdicts), CAUTION)
    rows = back.sort_values("found", ascending=False, kind="stable")
    where = rows["label"] + (" on " + rows["dataset"] if rows["dataset"].nunique() > 1 else "")
    groups: dict[str, list[str]] = {}
    for hits, images, name in zip(rows["found"], rows["images"], where):
        groups.setdefault(share(int(hits), int(images)), []).append(name)
    (first, names), *others = groups.items()
    said = [f"{first} image{'s' * (first[-2:] != ' 1')} came back from what {listed(names)} sent"]
    said += [f"{count} from {listed(names)}" for count, names in others]
    if len(said) > ROOM:  # the worst and the best are what one wants to know
        said = [*said[: ROOM - 1], "…", said[-1]]
    if named := contexts_named(best):
        said.append(f"where pictures were taken can be told from what {listed(named)} sent")
    top = rows.iloc[int(rows["top"].fillna(-1.0).to_numpy().argmax())]
    closest = (
        ""
        if math.isnan(top["top"])
        else f"The closest picture has {top['top']:.1f} dB, from {top['label']} by {top['attack']}. "
    )
    known = f"An image counts as back from {RECOGNISABLE:g} dB on, in pixels from 0 to 1. "
    return Finding(f"{_capital('; '.join(said))}.", closest + known + CAUTION)


def share(hits: int, images: int) -> str:
    """How many of how many.

    >>> share(0, 12), share(5, 12), share(12, 12)
    ('none of 12', '5 of 12', 'all 12')
    """
    return f"all {images}" if hits == images > 1 else f"{hits or 'none'} of {images}"


def _by_verdicts(verdicts: tuple[KindVerdict, ...]) -> str:
    by_state = {state: [v.kind for v in verdicts if v.state == state] for state in STATES}
    said = [f"{listed(list(dict.fromkeys(kinds)))}: {STATES[state]}" for state, kinds in by_state.items() if kinds]
    return f"{_capital('; '.join(said) or 'nothing was attacked')}."


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
