"""What an audit says about each kind: recovered, resisted at this budget, or no attack known here."""

from __future__ import annotations

from dataclasses import dataclass

from unskew.audit.budget import Budget
from unskew.audit.leak import KindVerdict, Leak

CLEAR = 20.0  # dB of unit pixels at which a picture is recognised; what an attack is held to in the tests
NEAR = 0.1  # squared error of rows that are no pixels, against a variance of about 1
NAMED = 90.0  # percent of contexts, FLea's mark
PROVES = "failing proves nothing: more tries, more iterations or another attack may succeed"


@dataclass(frozen=True)
class Attempt:
    """What was tried on one artefact: notes and rows, or the reason why there are none."""

    kind: str
    name: str  # part/artefact
    notes: tuple[str, ...]
    reason: str
    leaks: tuple[Leak, ...] = ()
    tried: str = ""  # how hard, where it is not the budget's attacks on updates
    plain: str = ""  # what it is that left as it is, so that there is nothing to attack


def verdicts(attempts: list[Attempt], budget: Budget, method: str) -> list[KindVerdict]:
    """One for each kind that left."""
    found = []
    for kind in dict.fromkeys(attempt.kind for attempt in attempts):
        each = [_one(attempt, budget) for attempt in attempts if attempt.kind == kind]
        states = [state for state, _ in each]
        state = next(s for s in ("recovered", "resisted", "unknown") if s in states)
        found.append(KindVerdict(kind, state, "; ".join(words for _, words in each), method))
    return found


def _one(attempt: Attempt, budget: Budget) -> tuple[str, str]:
    if attempt.reason:
        return "unknown", f"{attempt.name}: {attempt.reason}"
    if attempt.plain:
        return "recovered", f"{attempt.name}: {attempt.plain} left, there is nothing to attack"
    named = max((leak.value for leak in attempt.leaks if leak.metric == "context accuracy"), default=0.0) >= NAMED
    told = f"the context was named for {NAMED:g} % or more; " if named else ""
    if not any(leak.image >= 0 for leak in attempt.leaks):
        how = f"{attempt.name}: {told}{budget.threat.name}, {attempt.tried}"
        return ("recovered", how) if named else ("resisted", f"{how}; {PROVES}")
    best = _best(attempt.leaks, "psnr", "unit, range 1", max)
    unit, good = "dB", {image: value for image, value in best.items() if value >= CLEAR}
    figure = f"best {max(best.values()):.1f} dB" if best else ""
    if not best:
        best = _best(attempt.leaks, "mse", "normalised", min)
        unit, good = "MSE", {image: value for image, value in best.items() if value <= NEAR}
        figure = f"least normalised MSE {min(best.values()):.2g}"
    limit = f"{CLEAR:g} dB or more" if unit == "dB" else f"a normalised MSE of {NEAR:g} or less"
    tried = attempt.tried or ", ".join(budget.words(name) for name in budget.attacks)
    images = f"{len(good)} of {len(best)} images at {limit}, {figure}"
    how = f"{attempt.name}: {images}; {told}{budget.threat.name}, {tried}"
    return ("recovered", how) if good or named else ("resisted", f"{how}; {PROVES}")


def _best(leaks: tuple[Leak, ...], metric: str, space: str, choose: object) -> dict[int, float]:
    """The best of all tries of each image."""
    values: dict[int, list[float]] = {}
    for leak in leaks:
        if (leak.metric, leak.space) == (metric, space) and leak.value == leak.value:
            values.setdefault(leak.image, []).append(leak.value)
    return {image: choose(seen) for image, seen in values.items()}  # type: ignore[operator]
