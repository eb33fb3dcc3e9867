"""The shadow-model attack: is the model more confident in a row than models that have certainly not seen it?

(1) phi = log(p_y / (1 - p_y)), the confidence in the row's label, which is roughly normal over models
(2) shadow models s = 1..S, each trained as the target was on a random half of the attacker's rows
(3) score = (phi of the target - mean_s phi_s) / (std over shadows, pooled over rows)

It is the offline likelihood-ratio attack of Carlini et al. (2022, "LiRA"), with one pooled standard deviation, because
a handful of shadow models is too few to estimate one per row. Unlike the loss, it gives a low score to a row
that is easy for every model. For an update, phi is the change from the model before it, and shadow models start from
that model.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from torch import Tensor

from unskew.audits.membership.loss_scores import LabelledRows, logits
from unskew.audits.membership.roc import Array
from unskew.base.errors import UserError
from unskew.base.tree import State
from unskew.models.model import Model

Train = Callable[[LabelledRows, int], State]  # rows and a seed -> the state trained on them
MIN_SHADOWS = 2


def train_shadows(train: Train, known: LabelledRows, count: int = 8, share: float = 0.5, seed: int = 0) -> list[State]:
    """(2): states trained on random subsets of the attacker's rows, none of which may be a candidate."""
    size = round(share * len(known))
    if count < MIN_SHADOWS or size < 1:
        raise UserError(
            f"membership: expected at least {MIN_SHADOWS} shadow models and rows for each, found {count} models and "
            f"{len(known)} known rows"
        )
    rng = np.random.default_rng(seed)
    draws = [rng.choice(len(known), size, replace=False) for _ in range(count)]
    return [train(known.take(rows), seed + 1 + i) for i, rows in enumerate(draws)]


def score_by_shadows(
    model: Model, state: State, rows: LabelledRows, trained: list[State], before: State | None = None
) -> Array:
    """(3) of each candidate row. before: the model that an update started from."""
    start = np.zeros(len(rows)) if before is None else confidence(model, before, rows)
    target_confidence = confidence(model, state, rows) - start
    shadow_confidences = np.stack([confidence(model, shadow, rows) - start for shadow in trained])
    spread = float(np.sqrt(shadow_confidences.var(axis=0, ddof=1).mean()))
    return (target_confidence - shadow_confidences.mean(axis=0)) / max(spread, 1e-12)


def confidence(model: Model, state: State, rows: LabelledRows) -> Array:
    """(1), computed from logits because probabilities round to 1."""
    scores: Tensor = logits(model, state, rows)
    label = scores.gather(1, rows.y[:, None])[:, 0]
    others = scores.scatter(1, rows.y[:, None], -float("inf")).logsumexp(1)
    return (label - others).cpu().numpy()
