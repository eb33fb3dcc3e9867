"""TensorBoard: event files in the run's folder, or in `dir`; look at them with `tensorboard --logdir runs`."""

from __future__ import annotations

from unskew.config.track_config import TrackConfig
from unskew.runner.callbacks import Round
from unskew.runner.trackers import TrackedRun, scores


class TensorBoardTracker:
    """Scalars by round."""

    def __init__(self, config: TrackConfig, subject: TrackedRun) -> None:
        from torch.utils.tensorboard import SummaryWriter

        folder = config.dir or str(subject.folder / "tensorboard")
        # After a resume, what was logged beyond the checkpoint is hidden: those rounds are played again.
        self._writer = SummaryWriter(folder, purge_step=subject.first + 1 if subject.first else None)
        lines = (f"    {key}: {value}" for key, value in subject.settings.items())
        self._writer.add_text(subject.run, "\n".join(lines), subject.first)

    def __call__(self, done: Round) -> None:
        for name, value in scores(done).items():
            self._writer.add_scalar(name, value, done.round)
        self._writer.flush()

    def close(self, failed: bool) -> None:
        self._writer.close()
