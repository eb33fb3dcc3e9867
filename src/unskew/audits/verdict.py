"""The conclusion about each kind of artefact: recovered, sent in clear, resisted at this budget, or not attacked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from unskew.audits.budget import Budget
from unskew.audits.leak import KindVerdict, Leak, State

RECOGNISABLE_PSNR = 20.0  # dB with pixels in [0, 1] at which an image is recognisable; tests hold attacks to it
RECOVERED_MSE = 0.1  # for rows that are not pixels, whose variance is about 1
RECOVERED_CONTEXT_ACCURACY = 90.0  # percent, the threshold of the FLea paper
CAVEAT = "a failed attack proves nothing: more tries, more iterations or another attack may succeed"
# From the largest leak to the smallest, with the words that users read.
STATES: dict[State, str] = {
    "recovered": "recovered",
    "leaked": "sent in clear",
    "identified": "stamped square identified",
    "resisted": "not recovered, at this budget",
    "unknown": "not attacked",
    "unattackable": "no attack implemented",
}


@dataclass(frozen=True)
class Attempt:
    """The attacks on one artefact: notes and leak values, or the reason why there are none."""

    kind: str
    name: str  # part/artefact
    notes: tuple[str, ...]
    reason: str
    leaks: tuple[Leak, ...] = ()
    effort: str = ""  # what was tried, if not the budget's attacks on updates
    sent_as_is: str = ""  # the private data that was sent unprotected, which needs no attack
    attackable: bool = True  # False: unskew implements no attack on this kind


def verdicts(attempts: list[Attempt], budget: Budget, method: str) -> list[KindVerdict]:
    """One verdict for each kind of artefact that left the clients."""
    by_kind = []
    for kind in dict.fromkeys(attempt.kind for attempt in attempts):
        each = [_judge(attempt, budget, method) for attempt in attempts if attempt.kind == kind]
        top = max(each, key=_rank)
        by_kind.append(replace(top, words="; ".join(verdict.words for verdict in each)))
    return by_kind


def strongest(audits: Iterable[Sequence[KindVerdict]]) -> list[KindVerdict]:
    """The strongest verdict on each kind over several audits of a run; `also` lists what else was tried.

    A weaker attack that came later never hides a stronger one.
    """
    by_kind: dict[str, list[KindVerdict]] = {}
    for verdict in (verdict for audit in audits for verdict in audit):
        by_kind.setdefault(verdict.kind, []).append(verdict)
    return [_strongest_of(several) for several in by_kind.values()]


def _strongest_of(several: list[KindVerdict]) -> KindVerdict:
    top = max(several, key=_rank)
    tried = [f"{STATES[other.state]}: {other.words}".removesuffix(f"; {CAVEAT}") for other in several
             if other.state not in ("unknown", "unattackable") and other.words != top.words]  # fmt: skip
    return replace(top, also=tuple(dict.fromkeys(tried)))


def _rank(verdict: KindVerdict) -> tuple[float, ...]:
    return (-list(STATES).index(verdict.state), *verdict.strength)


def _judge(attempt: Attempt, budget: Budget, method: str) -> KindVerdict:
    """The verdict on one artefact."""
    attacker = f"attacker: {budget.threat.summary}"
    if attempt.reason:
        state: State = "unknown" if attempt.attackable else "unattackable"
        return KindVerdict(attempt.kind, state, f"{attempt.name}: {attempt.reason}", method)
    if attempt.sent_as_is:
        words = f"{attempt.name}: {attempt.sent_as_is} left the clients as they are, which needs no attack; {attacker}"
        return KindVerdict(attempt.kind, "leaked", words, method)
    accuracy = max((leak.value for leak in attempt.leaks if leak.metric == "context accuracy"), default=0.0)
    identified = accuracy >= RECOVERED_CONTEXT_ACCURACY
    square = f"a square stamped on half of the images was told apart in {accuracy:.0f} % of the items; "
    context = square if identified else ""
    if not any(leak.image >= 0 for leak in attempt.leaks):
        words = f"{attempt.name}: {context}{attacker}, {attempt.effort}"
        if identified:
            return KindVerdict(attempt.kind, "identified", words, method, (accuracy,))
        return KindVerdict(attempt.kind, "resisted", f"{words}; {CAVEAT}", method, (accuracy,))
    best = _best_by_image(attempt.leaks, "psnr", "unit, range 1", max)
    if best:
        limit, closest = f"{RECOGNISABLE_PSNR:g} dB or more", f"best {max(best.values()):.1f} dB"
        recovered, quality = [v for v in best.values() if v >= RECOGNISABLE_PSNR], max(best.values())
    else:
        best = _best_by_image(attempt.leaks, "mse", "normalised", min)
        limit, closest = f"a normalised MSE of {RECOVERED_MSE:g} or less", f"lowest {min(best.values()):.2g}"
        recovered, quality = [v for v in best.values() if v <= RECOVERED_MSE], -min(best.values())
    effort = attempt.effort or ", ".join(budget.describe(name) for name in budget.attacks)
    images = f"{len(recovered)} of {len(best)} images recovered at {limit}, {closest}"
    words = f"{attempt.name}: {images}; {context}{attacker}, {effort}"
    strength = (len(recovered), len(recovered) / len(best), quality)
    if recovered:
        return KindVerdict(attempt.kind, "recovered", words, method, strength)
    if identified:
        return KindVerdict(attempt.kind, "identified", words, method, (accuracy, quality))
    return KindVerdict(attempt.kind, "resisted", f"{words}; {CAVEAT}", method, strength)


def _best_by_image(leaks: tuple[Leak, ...], metric: str, space: str, choose: object) -> dict[int, float]:
    """The best of all tries on each image."""
    values: dict[int, list[float]] = {}
    for leak in leaks:
        if (leak.metric, leak.space) == (metric, space) and leak.value == leak.value:
            values.setdefault(leak.image, []).append(leak.value)
    return {image: choose(tries) for image, tries in values.items()}  # type: ignore[operator]
