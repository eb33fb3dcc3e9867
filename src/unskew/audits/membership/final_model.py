"""Membership inference on the final model of a run: by loss, and by shadow models trained on fresh rows.

Fresh rows (test rows) are split in two: the attacker trains shadow models on one half, the other half are the
non-members. A shadow model sees as many rows as the run did, or 80 % of the attacker's rows if these are too few, which
weakens the attack.
"""

from __future__ import annotations

import numpy as np
import torch

from unskew import models
from unskew.audits.membership.loss_scores import LabelledRows
from unskew.audits.membership.membership_attack import MembershipResult, attack_model
from unskew.audits.membership.shadow_models import train_shadows
from unskew.audits.membership.shadow_training import run_trainer
from unskew.base.errors import UserError
from unskew.models.model import Model
from unskew.results.load_run import LoadedRun

MAX_ROWS = 2000  # members, and non-members: enough to resolve 0.1 % false positives


def attack_run(
    run: LoadedRun, members: LabelledRows, fresh: LabelledRows, count: int = 8, seed: int = 0
) -> list[MembershipResult]:
    """Attack the final model of a run by loss and, if count > 0, by shadow models.

    members: rows that were trained on; fresh: rows that were not; both as returned by `run.prepare`.
    A network passed from Python cannot be initialised again, so it is attacked by loss only, as with count=0.
    """
    if len(fresh) < 4:
        raise UserError(f"membership: expected at least 4 rows that were not trained on, found {len(fresh)}")
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(fresh))
    known, others = fresh.take(order[: len(fresh) // 2]), fresh.take(order[len(fresh) // 2 :][:MAX_ROWS])
    share = min(0.8, len(members) / len(known))
    members = members.take(rng.permutation(len(members))[:MAX_ROWS])
    config = run.config
    dtype = torch.float64 if config.precision == "float64" else torch.float32
    # With "group" the loaded layers already contain GroupNorm, so Model must not convert them again.
    policy = "average" if config.model.batchnorm == "group" else config.model.batchnorm
    model = Model(run.model, config.model.name, dtype, policy)
    trained = []
    if count and config.model.name != "custom":
        shape, classes = tuple(run.about["shape"]), len(run.about["classes"])
        start = models.build(config.model.name, shape, classes, seed + 1, dtype, config.model.batchnorm).initial
        work = config.local.work(1, config.rounds)
        train = run_trainer(model, start, work, run.summary.last_round, config.participation)
        trained = train_shadows(train, known, count, share, seed)
    return attack_model(model, model.initial, members, others, trained)
