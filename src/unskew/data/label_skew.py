"""Label skew as a table of counts, measured and described."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


def counts(rows: Sequence[np.ndarray], labels: np.ndarray, classes: int) -> Rows:
    """Counts the rows of each class at each client.

    rows: K arrays [n_k]; labels [N]; returns [K, C].
    """
    return np.array([np.bincount(labels[row], minlength=classes) for row in rows], np.int64).reshape(-1, classes)


def summary(table: Rows) -> dict[str, Any]:
    """Measures a count table; empty clients count in the sizes and nowhere else.

    table [K, C]. emd is the mean over clients of sum_c |p_kc - p_c|, with p_k the class shares of client k and p
    those of all rows together: 0 for equal mixes, below 2 always; emd_weighted weighs client k by its rows.
    """
    sizes = table.sum(axis=1)
    full = table[sizes > 0]
    weight = full.sum(axis=1, keepdims=True)
    total = max(int(sizes.sum()), 1)
    distance = np.abs(full / weight - table.sum(axis=0) / total).sum(axis=1)
    held = (full > 0).sum(axis=1)
    some = len(full) > 0
    return {
        "clients": len(table),
        "size_min": int(sizes.min()),
        "size_median": float(np.median(sizes)),
        "size_max": int(sizes.max()),
        "classes_mean": float(held.mean()) if some else 0.0,
        "missing_mean": float(table.shape[1] - held.mean()) if some else float(table.shape[1]),
        "emd": float(distance.mean()) if some else 0.0,
        "emd_weighted": float((distance * weight[:, 0]).sum() / total),
        "empty": int((sizes == 0).sum()),
        "empty_ids": np.flatnonzero(sizes == 0).tolist(),
    }


def describe(table: Rows, notes: Sequence[str] = (), batch: int | None = None, clients: int | None = None) -> list[str]:
    """Says in a few lines what a run header should tell about the split.

    table [K, C]; notes: lines of the split, kept last; batch: names the clients with rows but fewer than this;
    clients: how many there are, where the table has only some of them.
    """
    found = summary(table)
    some = clients is not None and clients > len(table)
    who = f"{clients:,} clients, {len(table):,} of them counted, evenly spaced" if some else f"{len(table)} clients"
    lines = [
        f"{who}, {int(table.sum())} rows: {found['size_min']} to {found['size_max']} each, "
        f"median {found['size_median']:g}",
        f"classes per client {found['classes_mean']:.1f} of {table.shape[1]}, missing {found['missing_mean']:.1f}, "
        f"distance to the overall mix {found['emd']:.2f} (by size {found['emd_weighted']:.2f})",
    ]
    if some:  # lines of the table are not numbers of clients
        return lines + list(notes)
    if found["empty"]:
        lines.append(f"empty clients ({found['empty']}): {_named(found['empty_ids'])}")
    sizes = table.sum(axis=1)
    small = np.flatnonzero((sizes > 0) & (sizes < batch)).tolist() if batch else []
    if small:
        lines.append(f"clients smaller than a batch of {batch} ({len(small)}): {_named(small)}")
    return lines + list(notes)


def _named(ids: list[int]) -> str:
    more = f" and {len(ids) - 10} more" if len(ids) > 10 else ""
    return ", ".join(map(str, ids[:10])) + more
