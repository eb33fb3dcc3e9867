"""The headline of the page: how much each run leaked, and a caution about failed attacks."""

from __future__ import annotations

import math

import pandas as pd

from unskew.audits.leak import KindVerdict
from unskew.audits.page.metric_titles import RECOGNISABLE
from unskew.audits.page.summarise_leaks import recovered_images, runs_with_identified_context
from unskew.audits.verdict import STATES
from unskew.results.finding import Finding
from unskew.results.format_numbers import listed

CAUTION = (
    "For each image the best of all tries counts. A failed attack proves nothing: another attack or a larger budget "
    "may succeed."
)
MAX_OUTCOMES = 4  # clauses in the headline


def headline(best: pd.DataFrame, verdicts: tuple[KindVerdict, ...]) -> Finding:
    """Headline and detail from recovered images, or from the verdicts if no image was attacked.

    best: as returned by `best_tries`.
    """
    recovered = recovered_images(best)
    if recovered.empty:
        return Finding(_headline_from_verdicts(verdicts), CAUTION)
    rows = recovered.sort_values("recovered", ascending=False, kind="stable")
    where = rows["label"] + (" on " + rows["dataset"] if rows["dataset"].nunique() > 1 else "")
    groups: dict[str, list[str]] = {}
    for hits, images, name in zip(rows["recovered"], rows["images"], where):
        groups.setdefault(fraction(int(hits), int(images)), []).append(name)
    (first, names), *others = groups.items()
    images_were = "image was" if first.endswith(" 1") else "images were"
    clauses = [f"{first} {images_were} recovered from what {listed(names)} sent"]
    clauses += [f"{count} from {listed(names)}" for count, names in others]
    if len(clauses) > MAX_OUTCOMES:  # keep both ends: the largest and the smallest leak
        clauses = [*clauses[: MAX_OUTCOMES - 1], "…", clauses[-1]]
    if with_context := runs_with_identified_context(best):
        clauses.append(f"a square stamped on images can be told apart in what {listed(with_context)} sent")
    clear = [verdict for verdict in verdicts if verdict.state == "leaked" and verdict.kind != "counts"]
    for kind in dict.fromkeys(verdict.kind for verdict in clear):
        senders = [verdict.method for verdict in clear if verdict.kind == kind]
        clauses.append(f"{kind} left the clients of {listed(list(dict.fromkeys(senders)))} in clear")
    top = rows.iloc[int(rows["top"].fillna(-1.0).to_numpy().argmax())]
    closest = (
        ""
        if math.isnan(top["top"])
        else f"The closest image reaches {top['top']:.1f} dB ({top['label']}, attack {top['attack']}). "
    )
    threshold = f"An image counts as recovered from {RECOGNISABLE:g} dB PSNR upwards, with pixels in [0, 1]. "
    return Finding(f"{_capital('; '.join(clauses))}.", closest + threshold + CAUTION)


def fraction(hits: int, images: int) -> str:
    """A fraction in words.

    >>> fraction(0, 12), fraction(5, 12), fraction(12, 12)
    ('none of 12', '5 of 12', 'all 12')
    """
    return f"all {images}" if hits == images > 1 else f"{hits or 'none'} of {images}"


def _headline_from_verdicts(verdicts: tuple[KindVerdict, ...]) -> str:
    by_state = {state: [v.kind for v in verdicts if v.state == state] for state in STATES}
    clauses = [f"{listed(list(dict.fromkeys(kinds)))}: {STATES[state]}" for state, kinds in by_state.items() if kinds]
    return f"{_capital('; '.join(clauses) or 'nothing was attacked')}."


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
