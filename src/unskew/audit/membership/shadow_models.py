"""The shadow-model attack: how sure would models be of this row that have certainly not seen it?

(1) phi = log(p_y / (1 - p_y)), the confidence in the row's label, which is roughly normal over models
(2) shadow models s = 1..S, each trained as the target was on half of the attacker's own rows
(3) score = (phi of the target - mean_s phi_s) / (std over shadows, pooled over rows)

It is the offline likelihood-ratio attack of Carlini et al. (2022, "LiRA"), with one pooled spread because a handful of
shadows cannot give every row its own. A row that is easy for everybody scores low, unlike by loss alone.
Of an update phi is the change from the model before it, and shadows start from that model as the client did.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from torch import Tensor

from unskew.audit.membership.loss_scores import LabelledRows, logits
from unskew.audit.membership.roc import Array
from unskew.base.errors import UserError
from unskew.base.tree import State
from unskew.models.model import Model

Train = Callable[[LabelledRows, int], State]  # rows and a seed -> the state trained on them
LEAST = 2


def shadows(train: Train, known: LabelledRows, count: int = 8, share: float = 0.5, seed: int = 0) -> list[State]:
    """(2): states trained on random shares of the rows that the attacker owns; none of them may be a candidate."""
    size = round(share * len(known))
    if count < LEAST or size < 1:
        raise UserError(
            f"membership: expected at least {LEAST} shadow models and rows for each, found {count} models and "
            f"{len(known)} known rows"
        )
    rng = np.random.default_rng(seed)
    draws = [rng.choice(len(known), size, replace=False) for _ in range(count)]
    return [train(known.take(rows), seed + 1 + i) for i, rows in enumerate(draws)]


def by_shadow(
    model: Model, state: State, rows: LabelledRows, trained: list[State], before: State | None = None
) -> Array:
    """(3) of each candidate row. before: the model that an update started from."""
    start = np.zeros(len(rows)) if before is None else confidence(model, before, rows)
    mine = confidence(model, state, rows) - start
    theirs = np.stack([confidence(model, shadow, rows) - start for shadow in trained])
    spread = float(np.sqrt(theirs.var(axis=0, ddof=1).mean()))
    return (mine - theirs.mean(axis=0)) / max(spread, 1e-12)


def confidence(model: Model, state: State, rows: LabelledRows) -> Array:
    """(1), from logits and never from probabilities, which round to 1."""
    scores: Tensor = logits(model, state, rows)
    right = scores.gather(1, rows.y[:, None])[:, 0]
    others = scores.scatter(1, rows.y[:, None], -float("inf")).logsumexp(1)
    return (right - others).cpu().numpy()
