"""FLea's figure 7: labels of the feature buffer, of one client, and of the batches that it mixes from both."""

from __future__ import annotations

import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn import functional as F

from unskew.audit.replayed_run import ReplayedRun, set_up
from unskew.client.feed import BatchFeed, SingleClientFeed
from unskew.reproduce.figures.figure_style import INK, panels, styled
from unskew.reproduce.figures.paper_figure import caption, check_some
from unskew.reproduce.target_cells import FinishedCell
from unskew.results import recorded_messages
from unskew.results.recorded_messages import RecordedRound
from unskew.wire.message import Received

COLUMNS = ["dataset", "series", "seed", "panel", "batch", "label", "count"]
EPOCHS = 2


def data(runs: list[FinishedCell]) -> pd.DataFrame:
    """dataset, series, seed, panel, batch, label, count: of the first recorded client that was sent a buffer.

    Panels: buffer; client; epoch 1 and 2, whose batches count in sums of mixed labels.
    """
    rows: list[tuple] = []
    for p in runs:
        world = set_up(p.run, "cpu", data_dir=p.data_dir)
        for panel, batch, counts in _counts(world, recorded_messages.read(p.run.folder)):
            at = (p.run.config.data.name, p.method, p.seed, panel, batch)
            rows += [(*at, label, round(float(count), 2)) for label, count in enumerate(counts)]
    return pd.DataFrame(rows, columns=COLUMNS)


def _counts(world: ReplayedRun, recorded: list[RecordedRound]) -> list[tuple[str, int, Tensor]]:
    """(panel, batch, rows by label); nothing where no buffer was recorded."""
    context, classes = world.context, world.context.task.classes
    for one in recorded:
        for client in one.senders:
            down = one.of(client, "down")
            if "flea" not in down:
                continue
            parts = {name: sent for name, sent in down.items() if name != "model"}
            received = Received(down["model"]["weights"], parts)  # type: ignore[arg-type]
            mine = context.newcomer(client)
            feed = SingleClientFeed(BatchFeed(context, context.client_rows, one.round, received, [client], [mine]))
            found = [("buffer", 0, torch.bincount(down["flea"]["labels"], minlength=classes))]  # type: ignore[arg-type]
            found.append(("client", 0, context.client_rows.facts(client).counts))
            per_epoch = feed.work.steps_per_epoch(len(context.client_rows.index[client]))
            for step in range(min(feed.steps, EPOCHS * per_epoch)):
                epoch, batch = divmod(step, per_epoch)
                found.append((f"epoch {epoch + 1}", batch, _mixed(feed, step, classes)))
            return found
    return []


def _mixed(feed: SingleClientFeed, step: int, classes: int) -> Tensor:
    """Sums of the mixed labels of a batch; filler of a partial batch has no weight."""
    now = feed.at(step)
    beta, w = now.draws["flea"]["beta"][:, None], now.batch["w"][:, None]
    _, other = now.streams["flea"]["buffer"]
    own, theirs = (F.one_hot(y, classes).to(beta) for y in (now.batch["y"], other))
    return (w * (beta * own + (1 - beta) * theirs)).sum(0)


@styled
def draw(frame: pd.DataFrame, name: str, title: str, note: str = "") -> Figure:
    """Bars by label; in an epoch's panel its batches lie on one another."""
    check_some(frame, name)
    frame = frame[frame["seed"] == frame["seed"].iloc[0]]
    names = {"buffer": "feature buffer", "client": "rows of the client"}
    shown = list(frame["panel"].unique())
    what = "Mixed batches of one client: sums of β y + (1 − β) y' over a batch, batches on one another."
    figure, places = panels(1, len(shown), (200.0, 220.0), title, caption(frame, what, "", note), right=20)
    for axes, panel in zip(places, shown):
        table = frame[frame["panel"] == panel].pivot(index="batch", columns="label", values="count")
        bottom = 0 * table.iloc[0]
        for number, (batch, counts) in enumerate(table.iterrows()):
            shade = 1 - 0.6 * number / max(len(table), 2)
            bars = axes.bar(table.columns, counts, bottom=bottom, color="#1f77b4", alpha=shade, width=0.8)
            bars[0].set_gid(f"bars {panel} {batch}")
            bottom = bottom + counts
        mixed = panel not in names
        axes.set_title(f"mixed batches, {panel}" if mixed else names[panel], loc="left", pad=8, color=INK)
        axes.set_xticks(list(table.columns))
        axes.set_xlabel("label")
    places[0].set_ylabel("rows")
    return figure
