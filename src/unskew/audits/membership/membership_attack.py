"""Membership attacks on a model or on an update; each gives a ROC curve."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from unskew.audits.membership.loss_scores import LabelledRows, concatenate, score_by_gain, score_by_loss
from unskew.audits.membership.roc import Array, Roc, roc
from unskew.audits.membership.shadow_models import score_by_shadows
from unskew.base.tree import State
from unskew.models.model import Model


@dataclass(frozen=True, eq=False)
class MembershipResult:
    """The name of an attack and how well it separates members from non-members."""

    attack: str
    roc: Roc

    @property
    def summary(self) -> str:
        """One line for users."""
        auc = self.roc.auc
        return f"{self.attack}: AUC {auc.value:.3f} [{auc.low:.3f}, {auc.high:.3f}]; {self.roc.rates[-1].summary}"


def attack_model(
    model: Model, state: State, members: LabelledRows, others: LabelledRows, trained: list[State] | None = None
) -> list[MembershipResult]:
    """Attack a model by loss and, if there are any, by shadow models."""
    results = [_evaluate("loss threshold", lambda rows: score_by_loss(model, state, rows), members, others)]
    if trained:
        results.append(
            _evaluate("shadow models", lambda rows: score_by_shadows(model, state, rows, trained), members, others)
        )
    return results


def attack_update(
    model: Model,
    before: State,
    after: State,
    members: LabelledRows,
    others: LabelledRows,
    trained: list[State] | None = None,
) -> list[MembershipResult]:
    """Attack an update by the loss it gained and, if there are any, by shadow models trained from `before`."""
    results = [_evaluate("loss gain", lambda rows: score_by_gain(model, before, after, rows), members, others)]
    if trained:
        shadow = _evaluate(
            "shadow updates", lambda rows: score_by_shadows(model, after, rows, trained, before), members, others
        )
        results.append(shadow)
    return results


def _evaluate(
    attack: str, score: Callable[[LabelledRows], Array], members: LabelledRows, others: LabelledRows
) -> MembershipResult:
    # Score all candidates together: a score may depend on the set, which must not reveal which rows are members.
    scores = score(concatenate(members, others))
    return MembershipResult(attack, roc(scores[: len(members)], scores[len(members) :]))
