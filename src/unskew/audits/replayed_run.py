"""A finished run set up again: what the attacker may use of it, and the ground truth that it is scored against."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor, nn

from unskew.audits.problem import PixelRange
from unskew.base.errors import UserError
from unskew.config.experiment import EngineConfig
from unskew.config.user_code import check_available
from unskew.data import Dataset
from unskew.engines.engine import EngineContext
from unskew.results.load_run import LoadedRun
from unskew.results.run_folder import read_manifest
from unskew.runner.prepare_run import PreparedRun, prepare


class NoAttackError(Exception):
    """Why an artefact cannot be attacked: part of the audit's result, not a failure of the program."""


class NoImplementedAttackError(NoAttackError):
    """No attack on this kind of artefact exists in unskew, whatever the budget."""

    def __init__(self) -> None:
        super().__init__("unskew implements no attack on this kind")


@dataclass(frozen=True)
class ReplayedRun:
    """A finished run with its rows, plan, method and model, on the device of the audit."""

    run: LoadedRun
    prepared: PreparedRun
    data_dir: Path | None = None

    @property
    def context(self) -> EngineContext:
        return self.prepared.federation.engine.context

    @property
    def weigh_by_rows(self) -> bool:
        return self.prepared.federation.weigh_by_rows

    @cached_property
    def trained(self) -> dict[int, list[int]]:
        """Round -> the clients that sent a message after training in it, from the ledger."""
        ledger = self.run.ledger
        uploads = ledger[(ledger["direction"] == "up") & (ledger["phase"] == "train")]
        by_round: dict[int, set[int]] = {}
        for round, client in zip(uploads["round"], uploads["client"]):
            by_round.setdefault(int(round), set()).add(int(client))
        return {round: sorted(clients) for round, clients in by_round.items()}

    def true_rows(self, round: int, client: int) -> tuple[Tensor, Tensor, list[int]]:
        """Model inputs, labels and row indices of the rows that the client trained on in a round."""
        context = self.context
        _, work = context.at_round(round)
        index = context.client_rows.index[client]
        used = torch.unique(context.plan.order(round, client, len(index), work).index)
        rows = index[used].to(context.device)
        return context.client_rows.prepare(context.client_rows.x[rows]), context.client_rows.y[rows], rows.tolist()

    @cached_property
    def pixels(self) -> bool:
        """Whether rows are pixels: bytes of any shape, or float images with values in [0, 1]."""
        x = self.context.client_rows.x
        return x.dtype == torch.uint8 or (x.ndim == 4 and bool(x.min() >= 0) and bool(x.max() <= 1))

    def unit(self, x: Tensor) -> Tensor | None:
        """Model inputs [N, ...] as pixels, clamped to [0, 1]; None for rows that are not pixels."""
        limits = self.pixel_range(x)
        return None if limits is None else ((x - limits.low) / (limits.high - limits.low)).clamp(0, 1)

    def pixel_range(self, like: Tensor) -> PixelRange | None:
        """The range of pixels after normalisation; None for rows that are not pixels."""
        if not self.pixels:
            return None
        client_rows = self.context.client_rows
        ends = torch.zeros_like(client_rows.x[:1]).expand(2, *client_rows.x.shape[1:]).clone()
        ends[1] = 255 if client_rows.x.dtype == torch.uint8 else 1
        low, high = (
            e.flatten(1)[:, :1].view(-1, *(1 for _ in e.shape[1:])) for e in client_rows.prepare(ends).to(like)
        )
        return PixelRange(low, high)


def replay_run(
    run: LoadedRun,
    device: str = "auto",
    data: Dataset | None = None,
    model: nn.Sequential | None = None,
    data_dir: Path | None = None,
) -> ReplayedRun:
    """Set a finished run up again; data, partition and model must be the ones it was run with."""
    check_available(run.config.imports, run.folder, "an audit")
    config = run.config.model_copy(
        update={"engine": EngineConfig(name="loop", workers=1), "device": device, "stop": None, "track": ()}
    )
    prepared = prepare(config, data=data, model=model, data_dir=data_dir)
    recorded = (read_manifest(run.folder) or {}).get("world", {})
    changed = [name for name, current in prepared.fingerprints.items() if recorded.get(name) != current]
    if changed:
        raise UserError(
            f"{run.folder}: expected the same {' and '.join(changed)} as in the original run, found different "
            "contents; point --data-dir to the dataset folder of that run"
        )
    return ReplayedRun(run, prepared, data_dir)
