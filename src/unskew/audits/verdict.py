"""The conclusion about each kind of artefact: recovered, resisted at this budget, or not attacked."""

from __future__ import annotations

from dataclasses import dataclass

from unskew.audits.budget import Budget
from unskew.audits.leak import KindVerdict, Leak

RECOGNISABLE_PSNR = 20.0  # dB with pixels in [0, 1] at which an image is recognisable; tests hold attacks to it
RECOVERED_MSE = 0.1  # for rows that are not pixels, whose variance is about 1
RECOVERED_CONTEXT_ACCURACY = 90.0  # percent, the threshold of the FLea paper
CAVEAT = "a failed attack proves nothing: more tries, more iterations or another attack may succeed"


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


def verdicts(attempts: list[Attempt], budget: Budget, method: str) -> list[KindVerdict]:
    """One verdict for each kind of artefact that left the clients."""
    by_kind = []
    for kind in dict.fromkeys(attempt.kind for attempt in attempts):
        each = [_judge(attempt, budget) for attempt in attempts if attempt.kind == kind]
        states = [state for state, _ in each]
        state = next(s for s in ("recovered", "resisted", "unknown") if s in states)
        by_kind.append(KindVerdict(kind, state, "; ".join(words for _, words in each), method))
    return by_kind


def _judge(attempt: Attempt, budget: Budget) -> tuple[str, str]:
    """State and text of one artefact."""
    if attempt.reason:
        return "unknown", f"{attempt.name}: {attempt.reason}"
    if attempt.sent_as_is:
        return "recovered", f"{attempt.name}: {attempt.sent_as_is} were sent as they are"
    context_accuracy = max((leak.value for leak in attempt.leaks if leak.metric == "context accuracy"), default=0.0)
    identified = context_accuracy >= RECOVERED_CONTEXT_ACCURACY
    context = f"the marker was identified in {RECOVERED_CONTEXT_ACCURACY:g} % of items or more; " if identified else ""
    if not any(leak.image >= 0 for leak in attempt.leaks):
        text = f"{attempt.name}: {context}attacker: {budget.threat.name}, {attempt.effort}"
        return ("recovered", text) if identified else ("resisted", f"{text}; {CAVEAT}")
    best = _best_by_image(attempt.leaks, "psnr", "unit, range 1", max)
    unit, recovered = "dB", {image: value for image, value in best.items() if value >= RECOGNISABLE_PSNR}
    closest = f"best {max(best.values()):.1f} dB" if best else ""
    if not best:
        best = _best_by_image(attempt.leaks, "mse", "normalised", min)
        unit, recovered = "MSE", {image: value for image, value in best.items() if value <= RECOVERED_MSE}
        closest = f"lowest normalised MSE {min(best.values()):.2g}"
    limit = f"{RECOGNISABLE_PSNR:g} dB or more" if unit == "dB" else f"a normalised MSE of {RECOVERED_MSE:g} or less"
    effort = attempt.effort or ", ".join(budget.describe(name) for name in budget.attacks)
    images = f"{len(recovered)} of {len(best)} images recovered at {limit}, {closest}"
    text = f"{attempt.name}: {images}; {context}attacker: {budget.threat.name}, {effort}"
    return ("recovered", text) if recovered or identified else ("resisted", f"{text}; {CAVEAT}")


def _best_by_image(leaks: tuple[Leak, ...], metric: str, space: str, choose: object) -> dict[int, float]:
    """The best of all tries on each image."""
    values: dict[int, list[float]] = {}
    for leak in leaks:
        if (leak.metric, leak.space) == (metric, space) and leak.value == leak.value:
            values.setdefault(leak.image, []).append(leak.value)
    return {image: choose(tries) for image, tries in values.items()}  # type: ignore[operator]
