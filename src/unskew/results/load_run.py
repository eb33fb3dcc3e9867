"""`load`: a run's folder as tables and a model, for reports, comparisons and notebooks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unskew.base.errors import UserError
from unskew.config.experiment import Experiment
from unskew.config.recipe import read_recorded
from unskew.results.run_folder import check_hashes, read_config, read_manifest, read_summary
from unskew.results.run_tables import Summary

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor, nn


@dataclass(frozen=True)
class LoadedRun:
    """A finished run. Each table is read on first access."""

    folder: Path
    config: Experiment
    summary: Summary
    about: dict[str, Any]  # header lines, class names, shape of a row
    environment: dict[str, Any]
    custom_model: nn.Sequential | None = None  # the network of a run whose model was passed from Python

    given = property(lambda self: self.custom_model)  # the old name, for one version

    def __repr__(self) -> str:
        return f"<LoadedRun {self.summary.describe()}>"

    def _repr_html_(self) -> str:
        return self.summary._repr_html_()

    @property
    def test_set(self) -> tuple[int, int]:
        """Rows of the test set, and of its largest class; zeros in runs of older versions."""
        rows = self.about.get("test_rows", [])
        return sum(rows), max(rows, default=0)

    @cached_property
    def model(self) -> nn.Sequential:
        """The server's last model as ordinary layers, in eval mode on the CPU; its inputs come from `prepare`.

        With `model.batchnorm: local` its BatchNorm layers are those of the untrained model, since trained ones never
        left the clients: `model_of(client)` has them, and the recorded accuracy is measured with those models.
        """
        from unskew.results.trained_model import server_model

        return server_model(self)

    def model_of(self, client: int) -> nn.Sequential:
        """One client's model: with its own BatchNorm layers if they are local."""
        from unskew.results.trained_model import client_model

        return client_model(self, client)

    def prepare(self, x: Tensor) -> Tensor:
        """Inputs of the model from stored rows of the dataset, [B, ...]: uint8 divided by 255, then standardised."""
        from unskew.results.trained_model import prepare

        return prepare(self, x)

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """Rows: run, method, seed, round, who, split, metric, value."""
        return self._table("metrics")

    @cached_property
    def ledger(self) -> pd.DataFrame:
        """Rows: round, phase, client, direction, part, artefact, kind, bytes."""
        return self._table("ledger")

    @cached_property
    def times(self) -> pd.DataFrame:
        """Rows: round, what (train, evaluate), seconds."""
        return self._table("times")

    @cached_property
    def clients(self) -> pd.DataFrame:
        """Class counts of the clients. Rows: client, class, rows."""
        return self._table("clients")

    def read_tables(self) -> None:
        """Read all tables now, so that a damaged one is refused here."""
        _ = self.metrics, self.ledger, self.times, self.clients

    def _table(self, name: str) -> pd.DataFrame:
        import pandas as pd

        path = self.folder / f"{name}.parquet"
        try:
            return pd.read_parquet(path)
        except (OSError, ValueError) as error:
            raise UserError(f"{path}: not readable as a table; run it again") from error


def load(run: str | Path, *, model: nn.Sequential | None = None) -> LoadedRun:
    """Load a finished run, after checking its files, or raise a UserError that names what is missing.

    model: the network of a run whose model was passed from Python; it is copied, not changed.
    """
    folder = Path(run)
    if not (folder / "config.yaml").is_file():
        raise UserError(
            f"{folder}: expected the folder of a run, found no config.yaml in it; runs are saved under runs/"
        )
    manifest = read_manifest(folder)
    if manifest and manifest["finished"]:  # before any file is read
        check_hashes(folder, manifest["kept"])
    if manifest is None:
        raise UserError(
            f"{folder}: expected a finished run, found no checkpoint; if the run stopped before its first checkpoint, "
            "repeat its command with --resume"
        )
    config = read_recorded(read_config(folder), f"{folder}/config.yaml")
    if not manifest["finished"]:
        raise UserError(
            f"{folder}: expected a finished run, found one that stopped after round {manifest['round']} of "
            f"{config.rounds}; repeat its command with --resume to finish it"
        )
    summary = read_summary(manifest, folder)
    return LoadedRun(
        folder, config, summary, _read_json(folder / "about.json"), _read_json(folder / "environment.json"), model
    )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: not readable ({error}); run it again") from error
    if not isinstance(content, dict):
        raise UserError(f"{path}: expected an object, found {type(content).__name__}; run it again")
    return content
