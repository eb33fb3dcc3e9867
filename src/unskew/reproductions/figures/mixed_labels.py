"""FLea's figure 7: labels of the feature buffer, of one client, and of the batches mixed from both."""

from __future__ import annotations

import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn import functional as F

from unskew.audits.replayed_run import ReplayedRun, replay_run
from unskew.client.feed import BatchFeed, SingleClientFeed
from unskew.reproductions.figures.figure_style import INK, panels, with_figure_style
from unskew.reproductions.figures.paper_figure import caption, check_not_empty
from unskew.reproductions.target_cells import FinishedCell
from unskew.results import recorded_messages
from unskew.results.recorded_messages import RecordedRound
from unskew.wire.requests_and_replies import Received

COLUMNS = ["dataset", "series", "seed", "panel", "batch", "label", "count"]
EPOCHS = 2


def data(runs: list[FinishedCell]) -> pd.DataFrame:
    """The table with the columns COLUMNS, for the first recorded client that received a buffer.

    Panels: buffer; client; epoch 1 and 2, where the counts are sums of the batch's mixed labels.
    """
    rows: list[tuple] = []
    for p in runs:
        replayed = replay_run(p.run, "cpu", data_dir=p.data_dir)
        for panel, batch, counts in _counts(replayed, recorded_messages.read(p.run.folder)):
            at = (p.run.config.data.name, p.method, p.seed, panel, batch)
            rows += [(*at, label, round(float(count), 2)) for label, count in enumerate(counts)]
    return pd.DataFrame(rows, columns=COLUMNS)


def _counts(replayed: ReplayedRun, recorded: list[RecordedRound]) -> list[tuple[str, int, Tensor]]:
    """(panel, batch, rows by label); empty if no buffer was recorded."""
    context, classes = replayed.context, replayed.context.task.classes
    for one in recorded:
        for client in one.senders:
            down = one.of(client, "down")
            if "flea" not in down:
                continue
            parts = {name: sent for name, sent in down.items() if name != "model"}
            received = Received(down["model"]["weights"], parts)  # type: ignore[arg-type]
            client_state = context.newcomer_state(client)
            feed = SingleClientFeed(
                BatchFeed(context, context.client_rows, one.round, received, [client], [client_state])
            )
            counts = [("buffer", 0, torch.bincount(down["flea"]["labels"], minlength=classes))]  # type: ignore[arg-type]
            counts.append(("client", 0, context.client_rows.facts(client).counts))
            per_epoch = feed.work.steps_per_epoch(len(context.client_rows.index[client]))
            for step in range(min(feed.steps, EPOCHS * per_epoch)):
                epoch, batch = divmod(step, per_epoch)
                counts.append((f"epoch {epoch + 1}", batch, _mixed_label_sums(feed, step, classes)))
            return counts
    return []


def _mixed_label_sums(feed: SingleClientFeed, step: int, classes: int) -> Tensor:
    """The sum of a batch's mixed labels; padding of a partial batch has weight 0."""
    inputs = feed.at(step)
    beta, w = inputs.draws["flea"]["beta"][:, None], inputs.batch["w"][:, None]
    _, buffer_labels = inputs.streams["flea"]["buffer"]
    own, received = (F.one_hot(y, classes).to(beta) for y in (inputs.batch["y"], buffer_labels))
    return (w * (beta * own + (1 - beta) * received)).sum(0)


@with_figure_style
def draw(frame: pd.DataFrame, name: str, title: str, note: str = "") -> Figure:
    """Bars by label; the batches of an epoch are stacked."""
    check_not_empty(frame, name)
    frame = frame[frame["seed"] == frame["seed"].iloc[0]]
    titles = {"buffer": "feature buffer", "client": "rows of the client"}
    shown = list(frame["panel"].unique())
    content = "Mixed batches of one client: sums of β y + (1 − β) y' over each batch, stacked."
    figure, panel_axes = panels(1, len(shown), (200.0, 220.0), title, caption(frame, content, "", note), right=20)
    for axes, panel in zip(panel_axes, shown):
        table = frame[frame["panel"] == panel].pivot(index="batch", columns="label", values="count")
        bottom = 0 * table.iloc[0]
        for number, (batch, counts) in enumerate(table.iterrows()):
            shade = 1 - 0.6 * number / max(len(table), 2)
            bars = axes.bar(table.columns, counts, bottom=bottom, color="#1f77b4", alpha=shade, width=0.8)
            bars[0].set_gid(f"bars {panel} {batch}")
            bottom = bottom + counts
        mixed = panel not in titles
        axes.set_title(f"mixed batches, {panel}" if mixed else titles[panel], loc="left", pad=8, color=INK)
        axes.set_xticks(list(table.columns))
        axes.set_xlabel("label")
    panel_axes[0].set_ylabel("rows")
    return figure
