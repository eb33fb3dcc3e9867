"""Summarises leaks: the best of all tries on each image, then the mean over images and seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
import pandas as pd

from unskew.audits.leak import Leak
from unskew.audits.page.metric_titles import NO_LEAKS, RECOGNISABLE, metric_title
from unskew.audits.page.page_input import RunUtility, label
from unskew.audits.verdict import RECOVERED_CONTEXT_ACCURACY

RUN = ["dataset", "label", "attack"]
COLUMNS = ["method", "defence", "attack", "dataset", "image", "restart", "metric", "space", "value", "seed"]


def best_tries(leaks: Sequence[Leak]) -> pd.DataFrame:
    """dataset, label, attack, metric, space, seed, image, value: the largest leak over the tries on each image.

    Values that are not finite are ignored. Leaks that are not about a single image are averaged over messages.
    """
    rows = [asdict(leak) for leak in leaks if leak.metric not in NO_LEAKS]
    frame = pd.DataFrame(rows, columns=COLUMNS)
    frame["label"] = [label(m, d) for m, d in zip(frame["method"], frame["defence"])]
    frame["value"] = frame["value"].astype(float).where(np.isfinite(frame["value"].astype(float)))
    keys = [*RUN, "metric", "space", "seed", "image"]
    parts = []
    for metric, rows_of in frame.groupby("metric", sort=False):
        masks = rows_of["image"] < 0, rows_of["image"] >= 0
        by_message, by_image = (rows_of[mask].groupby(keys, sort=False)["value"] for mask in masks)
        parts += [by_message.mean(), by_image.max() if metric_title(str(metric)).rises else by_image.min()]
    tables = [part.reset_index() for part in parts if len(part)]
    return pd.concat(tables, ignore_index=True) if tables else frame[[*keys, "value"]]


def mean_by_attack(best: pd.DataFrame) -> pd.DataFrame:
    """dataset, label, attack, metric, space, value, images: means over images and seeds."""
    groups = best.groupby([*RUN, "metric", "space"], sort=False)
    images = groups["image"].agg(lambda ids: int((ids >= 0).sum()))
    return groups["value"].mean().to_frame().assign(images=images).reset_index()


def recovered_images(best: pd.DataFrame) -> pd.DataFrame:
    """dataset, label, images, recovered, top, attack: how many images of each run some attack recovered.

    Only from PSNR in unit pixels, since the threshold of 20 dB means something else in another space. top: the highest
    PSNR; attack: the one with the best mean.
    """
    rows = best[(best["metric"] == "psnr") & best["space"].str.startswith("unit") & (best["image"] >= 0)]
    out = []
    for (dataset, name), run in rows.groupby(["dataset", "label"], sort=False):
        top = run.groupby(["seed", "image"])["value"].max()
        means = run.groupby("attack", sort=False)["value"].mean()
        attack = str(means.index[int(means.fillna(-np.inf).to_numpy().argmax())])
        out.append((dataset, name, len(top), int((top >= RECOGNISABLE).sum()), float(top.max()), attack))
    return pd.DataFrame(out, columns=["dataset", "label", "images", "recovered", "top", "attack"])


def runs_with_identified_context(best: pd.DataFrame) -> list[str]:
    """Labels of the runs for which the context attack is accurate enough to count as recovered."""
    rows = best[(best["metric"] == "context accuracy") & (best["value"] >= RECOVERED_CONTEXT_ACCURACY)]
    return [str(name) for name in rows["label"].unique()]


def utilities(runs: Sequence[RunUtility]) -> pd.DataFrame:
    """dataset, label, accuracy, bytes: means over seeds."""
    rows = [(run.dataset, label(run.method, run.defence), run.accuracy, run.bytes) for run in runs]
    frame = pd.DataFrame(rows, columns=["dataset", "label", "accuracy", "bytes"])
    return frame.groupby(["dataset", "label"], sort=False).mean().reset_index()


def strongest(means: pd.DataFrame, metric: str) -> pd.DataFrame:
    """dataset, label, space, value, attack: for each run the attack with the largest leak by a metric."""
    rows = means[(means["metric"] == metric) & means["value"].notna()]
    if rows.empty:
        return rows
    groups = rows.groupby(["dataset", "label", "space"], sort=False)["value"]
    return rows.loc[groups.idxmax() if metric_title(metric).rises else groups.idxmin()]
