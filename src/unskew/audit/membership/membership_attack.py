"""The two attacks on a model or on an update, each as a curve with its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from unskew.audit.membership.loss_scores import LabelledRows, by_gain, by_loss, joined
from unskew.audit.membership.roc import Array, Roc, roc
from unskew.audit.membership.shadow_models import by_shadow
from unskew.base.tree import State
from unskew.models.model import Model


@dataclass(frozen=True, eq=False)
class MembershipResult:
    """What one attack tells members and non-members apart by, and how well."""

    attack: str
    roc: Roc

    @property
    def words(self) -> str:
        """In a line."""
        area = self.roc.auc
        return f"{self.attack}: AUC {area.value:.3f} [{area.low:.3f}, {area.high:.3f}]; {self.roc.rates[-1].words}"


def on_model(
    model: Model, state: State, members: LabelledRows, others: LabelledRows, trained: list[State] | None = None
) -> list[MembershipResult]:
    """By loss, and by shadow models where these were trained."""
    found = [_told("loss threshold", lambda rows: by_loss(model, state, rows), members, others)]
    if trained:
        found.append(_told("shadow models", lambda rows: by_shadow(model, state, rows, trained), members, others))
    return found


def on_update(
    model: Model,
    before: State,
    after: State,
    members: LabelledRows,
    others: LabelledRows,
    trained: list[State] | None = None,
) -> list[MembershipResult]:
    """By the gain in loss, and by shadow updates where these were trained from `before`."""
    found = [_told("loss gain", lambda rows: by_gain(model, before, after, rows), members, others)]
    if trained:
        shadow = _told("shadow updates", lambda rows: by_shadow(model, after, rows, trained, before), members, others)
        found.append(shadow)
    return found


def _told(
    attack: str, score: Callable[[LabelledRows], Array], members: LabelledRows, others: LabelledRows
) -> MembershipResult:
    # All candidates at once: a score may depend on the whole set, which must not tell whose row it is.
    scores = score(joined(members, others))
    return MembershipResult(attack, roc(scores[: len(members)], scores[len(members) :]))
