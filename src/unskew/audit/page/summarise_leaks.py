"""Leaks summed up: the best of all tries on an image counts, then the mean over images and seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
import pandas as pd

from unskew.audit.leak import Leak
from unskew.audit.page.metric_titles import NO_LEAKS, RECOGNISABLE, known
from unskew.audit.page.page_input import RunUtility, label
from unskew.audit.verdict import NAMED

RUN = ["dataset", "label", "attack"]
COLUMNS = ["method", "defence", "attack", "dataset", "image", "restart", "metric", "space", "value", "seed"]


def best_tries(leaks: Sequence[Leak]) -> pd.DataFrame:
    """dataset, label, attack, metric, space, seed, image, value: what leaked most over the tries on each image.

    What is not finite is no try. What concerns no single image is a mean over messages, which are not tries.
    """
    rows = [asdict(leak) for leak in leaks if leak.metric not in NO_LEAKS]
    frame = pd.DataFrame(rows, columns=COLUMNS)
    frame["label"] = [label(m, d) for m, d in zip(frame["method"], frame["defence"])]
    frame["value"] = frame["value"].astype(float).where(np.isfinite(frame["value"].astype(float)))
    keys = [*RUN, "metric", "space", "seed", "image"]
    parts = []
    for metric, several in frame.groupby("metric", sort=False):
        whole, tries = (several[mask].groupby(keys, sort=False)["value"] for mask in _by_image(several))
        parts += [whole.mean(), tries.max() if known(str(metric)).rises else tries.min()]
    found = [part.reset_index() for part in parts if len(part)]
    return pd.concat(found, ignore_index=True) if found else frame[[*keys, "value"]]


def _by_image(rows: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Rows about no single image, and the others."""
    return rows["image"] < 0, rows["image"] >= 0


def by_attack(best: pd.DataFrame) -> pd.DataFrame:
    """dataset, label, attack, metric, space, value, images: means over images and seeds."""
    groups = best.groupby([*RUN, "metric", "space"], sort=False)
    images = groups["image"].agg(lambda ids: int((ids >= 0).sum()))
    return groups["value"].mean().to_frame().assign(images=images).reset_index()


def recognised(best: pd.DataFrame) -> pd.DataFrame:
    """dataset, label, images, found, top, attack: by run, images that the strongest attack on each brought back.

    Of PSNR in unit pixels alone: 20 dB in another space are not the same picture.
    """
    rows = best[(best["metric"] == "psnr") & best["space"].str.startswith("unit") & (best["image"] >= 0)]
    out = []
    for (dataset, name), run in rows.groupby(["dataset", "label"], sort=False):
        top = run.groupby(["seed", "image"])["value"].max()
        means = run.groupby("attack", sort=False)["value"].mean()
        attack = str(means.index[int(means.fillna(-np.inf).to_numpy().argmax())])
        out.append((dataset, name, len(top), int((top >= RECOGNISABLE).sum()), float(top.max()), attack))
    return pd.DataFrame(out, columns=["dataset", "label", "images", "found", "top", "attack"])


def contexts_named(best: pd.DataFrame) -> list[str]:
    """Labels of the runs whose contexts an attack named as often as counts as recovered."""
    rows = best[(best["metric"] == "context accuracy") & (best["value"] >= NAMED)]
    return [str(name) for name in rows["label"].unique()]


def utilities(runs: Sequence[RunUtility]) -> pd.DataFrame:
    """dataset, label, accuracy, bytes: means over seeds."""
    rows = [(run.dataset, label(run.method, run.defence), run.accuracy, run.bytes) for run in runs]
    frame = pd.DataFrame(rows, columns=["dataset", "label", "accuracy", "bytes"])
    return frame.groupby(["dataset", "label"], sort=False).mean().reset_index()


def strongest(means: pd.DataFrame, metric: str) -> pd.DataFrame:
    """dataset, label, space, value, attack: of each run the attack with the largest leak by a metric."""
    rows = means[(means["metric"] == metric) & means["value"].notna()]
    if rows.empty:
        return rows
    groups = rows.groupby(["dataset", "label", "space"], sort=False)["value"]
    return rows.loc[groups.idxmax() if known(metric).rises else groups.idxmin()]
