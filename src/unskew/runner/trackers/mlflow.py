"""MLflow: one MLflow run per process, so a resumed run becomes two of the same name; `dir` is for its database."""

from __future__ import annotations

from pathlib import Path

from unskew.config.track_config import TrackConfig
from unskew.runner.callbacks import Round
from unskew.runner.trackers import TrackedRun, scores


class MlflowTracker:
    """Parameters at the start, metrics by round."""

    def __init__(self, config: TrackConfig, tracked: TrackedRun) -> None:
        import mlflow

        self._mlflow = mlflow
        if config.dir:
            folder = Path(config.dir).resolve()
            folder.mkdir(parents=True, exist_ok=True)
            mlflow.set_tracking_uri(f"sqlite:///{folder / 'mlflow.db'}")
        mlflow.set_experiment(config.project)
        mlflow.start_run(run_name=tracked.run)
        mlflow.log_params(tracked.settings)

    def __call__(self, done: Round) -> None:
        self._mlflow.log_metrics(scores(done), step=done.round)

    def close(self, failed: bool) -> None:
        self._mlflow.end_run("FAILED" if failed else "FINISHED")
