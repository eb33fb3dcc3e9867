"""Weights & Biases: offline unless `mode` or WANDB_MODE is set; `wandb sync` uploads an offline run."""

from __future__ import annotations

import os

from unskew.config.track_config import TrackConfig
from unskew.runner.callbacks import Round
from unskew.runner.trackers import TrackedRun, scores


class WandbTracker:
    """Settings at the start, scores by round; a resumed run continues under the same id."""

    def __init__(self, config: TrackConfig, tracked: TrackedRun) -> None:
        import wandb

        self._run = wandb.init(
            project=config.project,
            id=tracked.run,
            name=tracked.run,
            dir=config.dir,
            config=tracked.settings,
            mode=config.mode or os.environ.get("WANDB_MODE") or "offline",
            resume="allow",
        )

    def __call__(self, done: Round) -> None:
        self._run.log(scores(done), step=done.round)

    def close(self, failed: bool) -> None:
        self._run.finish(exit_code=int(failed))
