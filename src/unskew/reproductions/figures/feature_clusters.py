"""FLea's figure 3: features by class before and after local training, and their Davies-Bouldin scores.

    (1)  DB = mean_c max_{d != c} (S_c + S_d) / M_cd     S_c: mean distance to the centre of class c;
                                                         M_cd: distance between the centres of c and d

Clients with few and with many randomly drawn rows train the run's final model, with the run's local settings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from unskew.audits.replayed_run import ReplayedRun, replay_run
from unskew.base.tree import State
from unskew.engines.engine import EngineContext, no_clients
from unskew.engines.loop.loop_engine import LoopEngine
from unskew.engines.stacked.stacked_engine import StackedEngine
from unskew.protocol.step_view import FrozenModel
from unskew.reproductions.figures.figure_style import INK, legend_right, panels, with_figure_style
from unskew.reproductions.figures.paper_figure import caption, check_not_empty
from unskew.reproductions.target_cells import FinishedCell
from unskew.results.trained_model import server_model
from unskew.wire.requests_and_replies import Received, replies_one_by_one

COLUMNS = ["dataset", "series", "seed", "panel", "case", "when", "split", "label", "x", "y"]
# name: rows per client, clients, rows that all clients share
CASES = {"5000 rows": (5000, 10, 0), "100 rows": (100, 50, 0), "100 + 1000 shared": (100, 50, 1000)}
ROWS, POINTS = 2000, 800  # rows for a score, rows in a map
BARS = (("before", "test"), ("after", "train"), ("after", "test"), ("aggregated", "test"))
AddRow = Callable[..., None]


def data(runs: list[FinishedCell]) -> pd.DataFrame:
    """The table with the columns COLUMNS.

    Panel db: y is the score, averaged over the clients. Panel map: x, y are the t-SNE coordinates of test rows.
    """
    rows: list[tuple] = []
    for cell in runs:
        key = (cell.run.config.data.name, cell.method, cell.seed)

        def add_row(
            panel: str, case: str, when: str, split: str, y: float, x: float = 0.0, label: int = -1, key: tuple = key
        ) -> None:
            rows.append((*key, panel, case, when, split, label, round(float(x), 2), round(float(y), 3)))

        replayed = replay_run(cell.run, data_dir=cell.data_dir)
        start = dict(server_model(cell.run).state_dict())
        start = {n: start.get(n, t).to(replayed.context.device) for n, t in replayed.context.model.initial.items()}
        _add_map(replayed, start, "before", "", add_row)
        for case in CASES:
            _score_case(replayed, start, case, add_row)
    return pd.DataFrame(rows, columns=COLUMNS)


def _score_case(replayed: ReplayedRun, start: State, case: str, add_row: AddRow) -> None:
    context = replayed.context
    index = _assign_rows(len(context.client_rows.x), *CASES[case], seed=replayed.run.config.seed)
    if not index:  # the dataset has too few rows
        return
    round = (replayed.run.summary.last_round or replayed.run.config.rounds) + 1
    # These clients exist only in this round, so there is no next round to prefetch.
    context = replace(context, client_rows=replace(context.client_rows, index=index), upcoming=no_clients)
    engine = StackedEngine(context) if context.device.type == "cuda" else LoopEngine(context, 1)
    replies = replies_one_by_one(engine.train(round, Received(start, {}), list(index), context.newcomer_state))
    # Clone, because an engine may reuse its memory for the next client.
    states = [{n: t.clone() for n, t in reply.message["average"]["weights"].items()} for reply in replies]  # type: ignore[union-attr]
    engine.close()
    add_row("db", case, "before", "test", _score(context, start, *context.splits["test"][:2]))
    own = [(context.client_rows.x[i], context.client_rows.y[i]) for i in index.values()]
    after = {"train": [_score(context, s, *rows) for s, rows in zip(states, own)],
             "test": [_score(context, s, *context.splits["test"][:2]) for s in states]}  # fmt: skip
    for split, values in after.items():
        add_row("db", case, "after", split, np.nanmean(values))
    # All clients have the same number of rows, so the plain mean is FedAvg's.
    mean = {n: torch.stack([s[n].double() for s in states]).mean(0).to(t.dtype) for n, t in states[0].items()}
    add_row("db", case, "aggregated", "test", _score(context, start | mean, *context.splits["test"][:2]))
    if case == "100 rows":
        _add_map(replayed, start | states[0], "after", case, add_row)


def _assign_rows(total: int, rows: int, clients: int, shared: int, seed: int) -> dict[int, Tensor]:
    """Row indices by client: its own rows, then the shared rows, which are the same for all."""
    order = torch.from_numpy(np.random.default_rng(seed).permutation(total))
    own = order[shared:]
    return {
        k: torch.cat([own[k * rows : (k + 1) * rows], order[:shared]]) for k in range(min(clients, len(own) // rows))
    }


def _features(context: EngineContext, state: State, x: Tensor) -> np.ndarray:
    with torch.no_grad():
        parts = [FrozenModel(context.model, state, context.client_rows.prepare(chunk)).at(context.model.feature)
                 for chunk in torch.split(x, 500)]  # fmt: skip
    return torch.cat(parts).flatten(1).float().cpu().numpy()


def _score(context: EngineContext, state: State, x: Tensor, y: Tensor) -> float:
    """Equation (1)."""
    from sklearn.metrics import davies_bouldin_score

    return float(davies_bouldin_score(_features(context, state, x[:ROWS]), y[:ROWS].cpu().numpy()))


def _add_map(replayed: ReplayedRun, state: State, when: str, case: str, add_row: AddRow) -> None:
    from sklearn.manifold import TSNE

    x, y = (t[:POINTS] for t in replayed.context.splits["test"][:2])
    features = _features(replayed.context, state, x)
    positions = TSNE(perplexity=min(30, len(x) // 4), random_state=0, init="pca").fit_transform(features)
    for (a, b), label in zip(positions, y.tolist()):
        add_row("map", case, when, "test", b, a, label)


@with_figure_style
def draw(frame: pd.DataFrame, name: str, title: str, note: str = "") -> Figure:
    """Two maps of test rows, and a bar chart of the scores."""
    check_not_empty(frame, name)
    frame = frame[frame["seed"] == frame["seed"].iloc[0]]
    content = (
        "Davies-Bouldin score: lower means better separated; mean over clients that train the run's model for a round."
    )
    cases = [case for case in CASES if case in set(frame["case"])]
    absent = ", ".join(case for case in CASES if case not in cases)
    figure, panel_axes = panels(1, 3, (300.0, 280.0), title, caption(frame, content, absent, note), right=140)
    maps = frame[frame["panel"] == "map"]
    titles = {"before": "test rows, the run's model", "after": "test rows, a client with 100 rows"}
    for axes, when in zip(panel_axes, titles):
        rows = maps[maps["when"] == when]
        axes.scatter(rows["x"], rows["y"], c=rows["label"], cmap="tab10", s=6, linewidths=0, gid=f"map {when}")
        axes.set(xticks=[], yticks=[])
        axes.set_title(titles[when], loc="left", pad=8, color=INK)
    _draw_bars(panel_axes[2], frame[frame["panel"] == "db"], cases)
    return figure


def _draw_bars(axes: Axes, rows: pd.DataFrame, cases: list[str]) -> None:
    colours = ("#9aa0a6", "#9cc7e6", "#1f77b4", "#08305c")
    for number, ((when, split), colour) in enumerate(zip(BARS, colours)):
        scores = rows[(rows["when"] == when) & (rows["split"] == split)].set_index("case")["y"]
        positions = [i + 0.2 * (number - 1.5) for i in range(len(cases))]
        bars = axes.bar(positions, [scores[c] for c in cases], width=0.18, color=colour, label=f"{when}, {split}")
        bars[0].set_gid(f"bars {when} {split}")
    axes.set_xticks(range(len(cases)), [case.replace(" + ", "\n+ ") for case in cases])
    axes.set_title("Davies-Bouldin score", loc="left", pad=8, color=INK)
    axes.grid(axis="y")
    legend_right(axes)
