"""Tidy tables of a setting, one per figure. Each docstring lists the columns; `method` is the label of an entry."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from unskew.reports.group_runs import MethodRuns, Setting
from unskew.results.client_accuracy import final_client_accuracy
from unskew.results.load_run import LoadedRun
from unskew.results.run_tables import test_accuracy
from unskew.wire.ledger import REFUSED

Frame = pd.DataFrame
END_OF_RUN = "end of run "  # prefix of the metrics of the model after the exchanges at the end of a run


def accuracy(setting: Setting) -> pd.DataFrame:
    """method, seed, round, value: test accuracy in percent."""
    return _concat_runs(setting, lambda run: test_accuracy(run.metrics)[["round", "value"]])


def by_class(entry: MethodRuns, metric: str) -> pd.DataFrame:
    """Rounds × classes, mean over seeds, of `accuracy` (percent) or `predicted` (share of the predictions, percent)."""
    tables = [_class_table(run, metric) for run in entry.runs]
    if metric == "predicted":
        tables = [100 * table.div(table.sum(axis=1), axis=0) for table in tables]
    return pd.concat(tables).groupby(level=0).mean()


def final_by_class(run: LoadedRun) -> pd.Series:
    """Class -> accuracy in percent of the saved model; classes without test rows are left out."""
    end_of_run = _class_table(run, f"{END_OF_RUN}accuracy")
    return (end_of_run if len(end_of_run) else _class_table(run, "accuracy")).iloc[-1].dropna()


def final_accuracy(setting: Setting) -> pd.DataFrame:
    """Methods × classes: accuracy of the final model, mean over seeds."""
    rows = {e.label: pd.concat([final_by_class(run) for run in e.runs], axis=1).mean(axis=1) for e in setting.entries}
    return pd.DataFrame(rows).T.reindex(columns=range(len(setting.classes)))


def accuracy_by_client(setting: Setting) -> pd.DataFrame:
    """method, seed, client, value: accuracy of the final model for each client, as recorded by `evaluate.clients`.

    If some runs have none: on the test set weighted by the client's class mix, for all runs.
    """
    recorded = all(run.config.evaluate.clients for entry in setting.entries for run in entry.runs)
    return _concat_runs(setting, _recorded_by_client if recorded else _own_classes)


def _recorded_by_client(run: LoadedRun) -> pd.DataFrame:
    return final_client_accuracy(run.metrics)


def _own_classes(run: LoadedRun) -> pd.DataFrame:
    accuracy, counts = final_by_class(run), label_counts_by_client(run)
    known = counts[[c for c in counts.columns if c in accuracy.index]]
    known = known[known.sum(axis=1) > 0]  # a client without rows has no mix
    value = known.mul(accuracy[known.columns], axis=1).sum(axis=1) / known.sum(axis=1)
    return pd.DataFrame({"client": known.index, "value": value.to_numpy()})


def label_counts_by_client(run: LoadedRun) -> pd.DataFrame:
    """Clients × classes: number of rows."""
    return run.clients.pivot(index="client", columns="class", values="rows").fillna(0).astype(int)


def traffic(setting: Setting) -> pd.DataFrame:
    """method, direction, kind, bytes: per run, mean over seeds."""
    rows = _concat_runs(setting, lambda run: run.ledger.groupby(["direction", "kind"])["bytes"].sum().reset_index())
    rows = rows[(rows["kind"] != REFUSED) | (rows["bytes"] > 0)]  # the ledger may list a refused reply by kind instead
    rows["seeds"] = rows["method"].map({entry.label: len(entry.runs) for entry in setting.entries})
    rows["bytes"] = rows["bytes"] / rows["seeds"]
    return rows.groupby(["method", "direction", "kind"], sort=False)["bytes"].sum().reset_index()


def losses(setting: Setting) -> pd.DataFrame:
    """method, part, round, value: loss terms, mean over clients and seeds; non-finite values are left out."""
    rows = _concat_runs(setting, _terms)
    return rows.groupby(["method", "part", "round"], sort=False)["value"].mean().reset_index()


def _terms(run: LoadedRun) -> pd.DataFrame:
    rows = run.metrics[run.metrics["metric"].str.startswith("loss/") & np.isfinite(run.metrics["value"])]
    rows = rows.assign(part=rows["metric"].str.removeprefix("loss/"))
    return rows.groupby(["part", "round"], sort=False)["value"].mean().reset_index()


def dropped(setting: Setting) -> pd.DataFrame:
    """method, seed, round, value: clients whose reply was refused."""
    return _concat_runs(
        setting,
        lambda run: run.metrics[run.metrics["metric"] == "dropped"].groupby("round")["value"].sum().reset_index(),
    )


def refused(setting: Setting) -> pd.DataFrame:
    """method, seed, round, phase, client, reason: refused replies."""

    def rows(run: LoadedRun) -> pd.DataFrame:
        replies = run.ledger[run.ledger["kind"] == REFUSED]
        return replies[["round", "phase", "client", "artefact"]].rename(columns={"artefact": "reason"})

    return _concat_runs(setting, rows)


def below_quorum(setting: Setting) -> pd.DataFrame:
    """method, seed, round: rounds with too few answers, which left the model unchanged."""
    return _concat_runs(setting, lambda run: run.metrics[run.metrics["metric"] == "below quorum"][["round"]])


def times(setting: Setting) -> pd.DataFrame:
    """method, what, seconds: median over rounds and seeds."""
    rows = _concat_runs(setting, lambda run: run.times[["what", "seconds"]])
    return rows.groupby(["method", "what"], sort=False)["seconds"].median().reset_index()


def round_times(setting: Setting) -> pd.DataFrame:
    """method, seed, seconds: median of a round, training and evaluation together."""
    rows = _concat_runs(setting, lambda run: run.times.groupby("round")["seconds"].sum().reset_index())
    return rows.groupby(["method", "seed"], sort=False)["seconds"].median().reset_index()


def time_ratio(setting: Setting) -> float:
    """Largest ratio of round times between two seeds of the same method; 1 with a single seed."""
    by_method = round_times(setting).groupby("method")["seconds"]
    return float((by_method.max() / by_method.min()).max())


def _class_table(run: LoadedRun, metric: str) -> pd.DataFrame:
    """Rounds (from 1) × classes: a per-class metric."""
    metrics, prefix = run.metrics, f"{metric}/"
    selected = (metrics["who"] == "server") & (metrics["split"] == "test") & metrics["metric"].str.startswith(prefix)
    rows = metrics[selected & (metrics["round"] > 0)]
    rows = rows.assign(which=rows["metric"].str.removeprefix(prefix).astype(int))
    table = rows.pivot(index="round", columns="which", values="value")
    return table.reindex(columns=np.arange(len(run.about["classes"])))


def _concat_runs(setting: Setting, table: Callable[[LoadedRun], pd.DataFrame]) -> pd.DataFrame:
    """Concatenate a table of every run, with columns for method and seed."""
    parts = [
        table(run).assign(method=entry.label, seed=run.config.seed) for entry in setting.entries for run in entry.runs
    ]
    return pd.concat(parts, ignore_index=True)
