"""A finished run set up again: what the attacker may use of it, and the truth that he is scored against."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor, nn

from unskew.audit.problem import PixelRange
from unskew.base.errors import UserError
from unskew.config.experiment import EngineConfig
from unskew.data import Dataset
from unskew.engines.engine import EngineContext
from unskew.results.load_run import LoadedRun
from unskew.results.run_folder import manifest_of
from unskew.runner.prepare_run import PreparedRun, prepare


class NoAttackError(Exception):
    """Why nothing here can be attacked; an answer, not a mistake."""


@dataclass(frozen=True)
class ReplayedRun:
    """Rows, plan, method and model of a run, on the device of the audit."""

    run: LoadedRun
    prepared: PreparedRun
    data_dir: Path | None = None

    @property
    def context(self) -> EngineContext:
        return self.prepared.federation.engine.context

    @property
    def by_rows(self) -> bool:
        return self.prepared.federation.weigh_by_rows

    @cached_property
    def trained(self) -> dict[int, list[int]]:
        """Round -> the clients that sent something after training in it, from the ledger."""
        ledger = self.run.ledger
        mine = ledger[(ledger["direction"] == "up") & (ledger["phase"] == "train")]
        found: dict[int, set[int]] = {}
        for round, client in zip(mine["round"], mine["client"]):
            found.setdefault(int(round), set()).add(int(client))
        return {round: sorted(clients) for round, clients in found.items()}

    def true_rows(self, round: int, client: int) -> tuple[Tensor, Tensor, list[int]]:
        """Rows that the client trained on in a round, ready for the model, their labels and their numbers."""
        context = self.context
        _, work = context.at_round(round)
        index = context.client_rows.index[client]
        used = torch.unique(context.plan.order(round, client, len(index), work).index)
        rows = index[used].to(context.device)
        return context.client_rows.prepare(context.client_rows.x[rows]), context.client_rows.y[rows], rows.tolist()

    @cached_property
    def pixels(self) -> bool:
        """Whether rows are images with values from 0 to 255, or from 0 to 1."""
        x = self.context.client_rows.x
        return x.dtype == torch.uint8 or (x.ndim == 4 and bool(x.min() >= 0) and bool(x.max() <= 1))

    def unit(self, x: Tensor) -> Tensor | None:
        """Model inputs [N, ...] as pixels in 0..1, clamped; None for rows that are no pixels."""
        box = self.box(x)
        return None if box is None else ((x - box.low) / (box.high - box.low)).clamp(0, 1)

    def box(self, like: Tensor) -> PixelRange | None:
        """Where pixels end after standardising; None for rows that are no pixels."""
        if not self.pixels:
            return None
        client_rows = self.context.client_rows
        ends = torch.zeros_like(client_rows.x[:1]).expand(2, *client_rows.x.shape[1:]).clone()
        ends[1] = 255 if client_rows.x.dtype == torch.uint8 else 1
        low, high = (
            e.flatten(1)[:, :1].view(-1, *(1 for _ in e.shape[1:])) for e in client_rows.prepare(ends).to(like)
        )
        return PixelRange(low, high)


def set_up(
    run: LoadedRun,
    device: str = "auto",
    data: Dataset | None = None,
    model: nn.Sequential | None = None,
    data_dir: Path | None = None,
) -> ReplayedRun:
    """The run's world again; data, partition and model must be those that it was played with."""
    config = run.config.model_copy(
        update={"engine": EngineConfig(name="loop", workers=1), "device": device, "stop": None, "track": ()}
    )
    prepared = prepare(config, data=data, model=model, data_dir=data_dir)
    before = (manifest_of(run.folder) or {}).get("world", {})
    other = [name for name, now in prepared.world.items() if before.get(name) != now]
    if other:
        raise UserError(
            f"{run.folder}: expected the {' and '.join(other)} this run was played with, found other contents; "
            "point --data-dir to the rows it had"
        )
    return ReplayedRun(run, prepared, data_dir)
