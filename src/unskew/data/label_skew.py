"""Label skew: a table of class counts per client, measured and described."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]


def counts(rows: Sequence[np.ndarray], labels: np.ndarray, classes: int) -> IntArray:
    """Count the rows of each class at each client.

    rows: K arrays [n_k]; labels [N]; returns [K, C].
    """
    return np.array([np.bincount(labels[row], minlength=classes) for row in rows], np.int64).reshape(-1, classes)


def summary(table: IntArray) -> dict[str, Any]:
    """Measure a count table; empty clients affect the sizes and no other measure.

    table [K, C]. emd is the mean over clients of sum_c |p_kc - p_c|, with p_k the class shares of client k and p
    those of all rows together: 0 for equal class shares, always below 2; emd_weighted weighs client k by its rows.
    """
    sizes = table.sum(axis=1)
    nonempty = table[sizes > 0]
    weight = nonempty.sum(axis=1, keepdims=True)
    total = max(int(sizes.sum()), 1)
    distance = np.abs(nonempty / weight - table.sum(axis=0) / total).sum(axis=1)
    held = (nonempty > 0).sum(axis=1)
    any_rows = len(nonempty) > 0
    return {
        "clients": len(table),
        "size_min": int(sizes.min()),
        "size_median": float(np.median(sizes)),
        "size_max": int(sizes.max()),
        "classes_mean": float(held.mean()) if any_rows else 0.0,
        "missing_mean": float(table.shape[1] - held.mean()) if any_rows else float(table.shape[1]),
        "emd": float(distance.mean()) if any_rows else 0.0,
        "emd_weighted": float((distance * weight[:, 0]).sum() / total),
        "empty": int((sizes == 0).sum()),
        "empty_ids": np.flatnonzero(sizes == 0).tolist(),
    }


def describe(
    table: IntArray, notes: Sequence[str] = (), batch: int | None = None, clients: int | None = None
) -> list[str]:
    """The lines about the split in a run's header.

    table [K, C]; notes: the split's notes, printed last; batch: lists clients that have rows, but fewer than this;
    clients: total number, if the table has only some of the clients.
    """
    stats = summary(table)
    is_sample = clients is not None and clients > len(table)
    counted = (
        f"{clients:,} clients, {len(table):,} of them counted, evenly spaced" if is_sample else f"{len(table)} clients"
    )
    lines = [
        f"{counted}, {int(table.sum())} rows: {stats['size_min']} to {stats['size_max']} each, "
        f"median {stats['size_median']:g}",
        f"classes per client {stats['classes_mean']:.1f} of {table.shape[1]}, missing {stats['missing_mean']:.1f}, "
        f"distance to the overall mix {stats['emd']:.2f} (by size {stats['emd_weighted']:.2f})",
    ]
    if is_sample:  # row k of the table is not client k
        return lines + list(notes)
    if stats["empty"]:
        lines.append(f"empty clients ({stats['empty']}): {_list_ids(stats['empty_ids'])}")
    sizes = table.sum(axis=1)
    small = np.flatnonzero((sizes > 0) & (sizes < batch)).tolist() if batch else []
    if small:
        lines.append(f"clients smaller than a batch of {batch} ({len(small)}): {_list_ids(small)}")
    return lines + list(notes)


def _list_ids(ids: list[int]) -> str:
    more = f" and {len(ids) - 10} more" if len(ids) > 10 else ""
    return ", ".join(map(str, ids[:10])) + more
