"""Membership inference on the model that a finished run left: by loss, and by shadow models trained on fresh rows.

Fresh rows (test rows) are dealt in two: one half is the attacker's, who trains shadows on it, the other half are the
non-members. A shadow sees as many rows as the run did, or most of the attacker's where these are fewer, which makes
the attack weaker than it could be.
"""

from __future__ import annotations

import numpy as np
import torch

from unskew import models
from unskew.audit.membership.loss_scores import LabelledRows
from unskew.audit.membership.membership_attack import MembershipResult, on_model
from unskew.audit.membership.shadow_models import shadows
from unskew.audit.membership.shadow_training import like_a_run
from unskew.base.errors import UserError
from unskew.models.model import Model
from unskew.results.load_run import LoadedRun

MOST = 2000  # rows of each side: enough for 0.1 % false positives


def on_run(
    run: LoadedRun, members: LabelledRows, fresh: LabelledRows, count: int = 8, seed: int = 0
) -> list[MembershipResult]:
    """members: rows that were trained on; fresh: rows that were not; both as `run.prepare` gives them.

    A network that was given from Python cannot be made anew, so that it is attacked by loss alone, as with count 0.
    """
    if len(fresh) < 4:
        raise UserError(f"membership: expected at least 4 rows that were not trained on, found {len(fresh)}")
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(fresh))
    known, others = fresh.take(order[: len(fresh) // 2]), fresh.take(order[len(fresh) // 2 :][:MOST])
    share = min(0.8, len(members) / len(known))
    members = members.take(rng.permutation(len(members))[:MOST])
    config = run.config
    dtype = torch.float64 if config.precision == "float64" else torch.float32
    # GroupNorm is already in the loaded layers where the run put it there.
    policy = "average" if config.model.batchnorm == "group" else config.model.batchnorm
    model = Model(run.model, config.model.name, dtype, policy)
    trained = []
    if count and config.model.name != "custom":
        shape, classes = tuple(run.about["shape"]), len(run.about["classes"])
        start = models.build(config.model.name, shape, classes, seed + 1, dtype, config.model.batchnorm).initial
        work = config.local.work(1, config.rounds)
        train = like_a_run(model, start, work, run.summary.last_round, config.participation)
        trained = shadows(train, known, count, share, seed)
    return on_model(model, model.initial, members, others, trained)
