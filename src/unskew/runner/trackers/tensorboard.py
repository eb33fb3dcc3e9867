"""TensorBoard: event files in the run's folder, or in `dir`; view them with `tensorboard --logdir runs`."""

from __future__ import annotations

from unskew.config.track_config import TrackConfig
from unskew.runner.callbacks import Round
from unskew.runner.trackers import TrackedRun, scores


class TensorBoardTracker:
    """Scalars by round."""

    def __init__(self, config: TrackConfig, tracked: TrackedRun) -> None:
        from torch.utils.tensorboard import SummaryWriter

        folder = config.dir or str(tracked.folder / "tensorboard")
        # After a resume, hide the rounds logged after the checkpoint, because they are run again.
        self._writer = SummaryWriter(folder, purge_step=tracked.first + 1 if tracked.first else None)
        lines = (f"    {key}: {value}" for key, value in tracked.settings.items())
        self._writer.add_text(tracked.run, "\n".join(lines), tracked.first)

    def __call__(self, done: Round) -> None:
        for name, value in scores(done).items():
            self._writer.add_scalar(name, value, done.round)
        self._writer.flush()

    def close(self, failed: bool) -> None:
        self._writer.close()
