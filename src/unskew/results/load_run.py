"""A run's folder as tables and a model: what reports, comparisons and notebooks read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unskew.base.errors import UserError
from unskew.config.experiment import Experiment
from unskew.config.recipe import validate
from unskew.results.run_folder import check_whole, manifest_of, read_config, summary_in
from unskew.results.run_tables import Summary

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor, nn


@dataclass(frozen=True)
class LoadedRun:
    """A finished run. Tables are read when somebody asks for them."""

    folder: Path
    config: Experiment
    summary: Summary
    about: dict[str, Any]  # header lines, class names, shape of a row
    environment: dict[str, Any]
    given: nn.Sequential | None = None  # the network of a run whose model came from Python

    @cached_property
    def model(self) -> nn.Sequential:
        """The server's last model as ordinary layers, in eval mode on the CPU; it takes rows from `prepare`.

        With `model.batchnorm: local` its BatchNorm layers are those of the untrained model, since trained ones never
        left the clients: `model_of(client)` has them, and the recorded accuracy is that of those models together.
        """
        from unskew.results.trained_model import server_model

        return server_model(self)

    def model_of(self, client: int) -> nn.Sequential:
        """The model as one client has it: with its own BatchNorm layers where these are local."""
        from unskew.results.trained_model import client_model

        return client_model(self, client)

    def prepare(self, x: Tensor) -> Tensor:
        """Inputs of the model from rows as the dataset stores them, [B, ...]: uint8 over 255, then standardised."""
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
        """Who holds what. Rows: client, class, rows."""
        return self._table("clients")

    def read_tables(self) -> None:
        """All of them now, so that one that is not readable is refused here."""
        _ = self.metrics, self.ledger, self.times, self.clients

    def _table(self, name: str) -> pd.DataFrame:
        import pandas as pd

        path = self.folder / f"{name}.parquet"
        try:
            return pd.read_parquet(path)
        except (OSError, ValueError) as error:
            raise UserError(f"{path}: not readable as a table; play the run again") from error


def load(run: str | Path, *, model: nn.Sequential | None = None) -> LoadedRun:
    """The run in a folder, finished and whole, or a UserError that says what is missing.

    model: the network of a run whose model was given from Python; its own weights are left alone.
    """
    folder = Path(run)
    if not (folder / "config.yaml").is_file():
        raise UserError(f"{folder}: expected the folder of a run, found no config.yaml there; runs lie under runs/")
    manifest = manifest_of(folder)
    if manifest and manifest["finished"]:  # before anything in them is believed
        check_whole(folder, manifest["kept"])
    if manifest is None:
        raise UserError(
            f"{folder}: expected a finished run, found no checkpoint: one that stopped before its first round was "
            "saved, which the same command with --resume begins again, or something else"
        )
    config = validate(read_config(folder), f"{folder}/config.yaml")
    if not manifest["finished"]:
        raise UserError(
            f"{folder}: expected a finished run, found one that stopped after round {manifest['round']} of "
            f"{config.rounds}; finish it with the same command and --resume"
        )
    summary = summary_in(manifest, folder)
    return LoadedRun(folder, config, summary, _json(folder / "about.json"), _json(folder / "environment.json"), model)


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: not readable ({error}); play the run again") from error
    if not isinstance(found, dict):
        raise UserError(f"{path}: expected an object, found {type(found).__name__}; play the run again")
    return found
