"""The papers' splits: exact sizes with released draws, and the distributions in their figures."""

import random

import numpy as np
import pytest

from unskew.data import rng_checkpoints
from unskew.data.label_skew import counts, summary
from unskew.data.partition import Classes, Dirichlet, Shards, split
from unskew.data.split_cache import ClientRowNumbers

CIFAR = np.random.default_rng(5).permutation(np.repeat(np.arange(10), 5000))
FLEA_SIZES = [6630, 3448, 6186, 3102, 1060, 6377, 8199, 2853, 5184, 6961]


def sizes(parts: ClientRowNumbers) -> np.ndarray:
    return np.array([len(row) for row in parts.rows])


@pytest.mark.parametrize("labels", [CIFAR, np.sort(CIFAR)])
def test_flea_ten_clients_have_the_sizes_of_its_figure(labels: np.ndarray) -> None:
    parts = split(Dirichlet(clients=10, alpha=0.1, min=10, draws="released"), labels, 10, 1)
    assert sizes(parts).tolist() == FLEA_SIZES


@pytest.mark.parametrize("draws", ["counts", "released"])
def test_flea_500_clients_in_blocks_have_a_median_near_90(draws: str) -> None:
    parts = split(Dirichlet(clients=500, alpha=0.1, min=3, block=100, draws=draws), CIFAR, 10, 1)
    assert 80 <= np.median(sizes(parts)) <= 95
    assert sizes(parts).min() >= 3
    assert 0.03 < (sizes(parts) < 10).mean() < 0.12


PUBLISHED = Dirichlet(clients=100, alpha=0.05, min=10, draws="released")


def test_fedlmd_published_split_is_released_draw_19126(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same split from all draws and from the checkpoint after the failed ones."""
    parts = split(PUBLISHED, CIFAR, 10, 19940817)
    with monkeypatch.context() as patch:
        patch.setattr(rng_checkpoints, "_checkpoints", dict)
        drawn = split(PUBLISHED, CIFAR, 10, 19940817)
        assert _equal(parts, [row.tolist() for row in drawn.rows])
    stats = summary(counts(parts.rows, CIFAR, 10))
    assert (stats["size_min"], stats["size_median"], stats["size_max"]) == (12, 341.5, 2731)
    assert round(stats["classes_mean"], 1) == 2.9
    assert parts.notes == ("dirichlet: min 10 reached at draw 19126",)


def test_failed_draws_are_skipped_only_within_the_limit() -> None:
    key = ([5000] * 10, 100, 0.05, True, 10)
    for seed, failed in ((19940817, 19125), (1, 31406), (2, 17703)):
        assert rng_checkpoints.skip_failed_draws(np.random.RandomState(seed), key, failed) == failed
        reused, fresh = (np.random.RandomState(seed) for _ in range(2))
        assert rng_checkpoints.skip_failed_draws(reused, key, failed - 1) == 0
        assert reused.randint(2**31) == fresh.randint(2**31)
    assert rng_checkpoints.skip_failed_draws(np.random.RandomState(3), key, 10**6) == 0
    assert rng_checkpoints.skip_failed_draws(np.random.RandomState(1), ([5000] * 10, 100, 0.1, True, 10), 10**6) == 0


def test_a_checkpoint_is_the_state_before_the_successful_draw() -> None:
    random_state, values = np.random.RandomState(4), list[float]()

    def draw() -> bool:
        values.append(random_state.normal())
        return len(values) == 4

    checkpoint = rng_checkpoints.make_checkpoint(random_state, draw)
    again = np.random.RandomState(9)
    with pytest.MonkeyPatch.context() as patch:
        name = rng_checkpoints.checkpoint_name(again, ("a",))
        patch.setattr(rng_checkpoints, "_checkpoints", lambda: {name: checkpoint})
        assert rng_checkpoints.skip_failed_draws(again, ("a",), 3) == 3
    assert again.normal() == values[3]


def test_fedlmd_split_by_counts_has_the_same_shape() -> None:
    parts = split(Dirichlet(clients=100, alpha=0.05, min=10), CIFAR, 10, 1)
    stats = summary(counts(parts.rows, CIFAR, 10))
    assert stats["size_min"] >= 10
    assert 250 < stats["size_median"] < 450
    assert 2.6 < stats["classes_mean"] < 3.2


@pytest.mark.parametrize("seed", range(6))
def test_hfmds_severe_split_ends_with_and_without_a_minimum(seed: int) -> None:
    assert len(split(Dirichlet(clients=20, alpha=0.01), CIFAR, 10, seed).rows) == 20
    parts = split(Dirichlet(clients=20, alpha=0.01, min=10, retries=5), CIFAR, 10, seed)
    reached = sizes(parts).min() >= 10
    assert reached or "not reached in 5 draws" in parts.notes[-1]


def test_hfmds_balanced_classes_give_2500_rows_each() -> None:
    table = counts(split(Classes(clients=20, per_client=2, balanced=True), CIFAR, 10, 1).rows, CIFAR, 10)
    assert np.unique(table).tolist() == [0, 1250]
    assert (table > 0).sum(axis=0).tolist() == [4] * 10
    assert (table > 0).sum(axis=1).tolist() == [2] * 20


def test_fedlmd_shards_give_500_rows_each_in_file_order() -> None:
    for draws in ("counts", "released"):
        parts = split(Shards(clients=100, per_client=2, draws=draws), np.sort(CIFAR), 10, 1)
        assert (sizes(parts) == 500).all()
        assert all((np.diff(np.sort(row)) == 1).sum() >= 498 for row in parts.rows)
        assert "file order" in parts.notes[0]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_released_draws_equal_plain_loops_call_for_call(seed: int) -> None:
    """Compared with plain loops that make the same calls in the specified order, independent of the package's code."""
    labels = np.random.default_rng(seed).integers(0, 4, 403)
    assert _equal(split(Dirichlet(clients=9, alpha=0.3, min=4, draws="released"), labels, 4, seed), _lda(labels, seed))
    assert _equal(
        split(Classes(clients=9, per_client=2, draws="released"), labels, 4, seed), _split_by_classes(labels, seed)
    )
    assert _equal(
        split(Shards(clients=8, per_client=3, draws="released"), labels, 4, seed), _split_into_shards(labels, seed)
    )


def _equal(parts: ClientRowNumbers, expected: list[list[int]]) -> bool:
    return [row.tolist() for row in parts.rows] == expected


def _lda(labels: np.ndarray, seed: int) -> list[list[int]]:
    rng = np.random.RandomState(seed)
    clients: list[list[int]] = [[]]
    while min(map(len, clients)) < 4:
        clients = [[] for _ in range(9)]
        for label in range(4):
            rows = np.flatnonzero(labels == label)
            rng.shuffle(rows)
            share = rng.dirichlet([0.3] * 9) * [len(held) < len(labels) / 9 for held in clients]
            cut = (np.cumsum(share / share.sum()) * len(rows)).astype(int)[:-1]
            for held, run in zip(clients, np.split(rows, cut), strict=True):
                held.extend(run.tolist())
    for held in clients:
        rng.shuffle(held)
    return clients


def _split_by_classes(labels: np.ndarray, seed: int) -> list[list[int]]:
    rng = np.random.RandomState(seed)
    chosen = []
    for client in range(9):
        held = [client % 4]
        while len(held) < 2:
            label = rng.randint(4)
            if label not in held:
                held.append(label)
        chosen.append(held)
    clients: list[list[int]] = [[] for _ in range(9)]
    for label in range(4):
        rows = np.flatnonzero(labels == label)
        rng.shuffle(rows)
        holders = [client for client in range(9) if label in chosen[client]]
        for client, run in zip(holders, np.array_split(rows, len(holders)), strict=True):
            clients[client].extend(run.tolist())
    return clients


def _split_into_shards(labels: np.ndarray, seed: int) -> list[list[int]]:
    rng, deck = np.random.RandomState(seed), [0, 1, 2, 3] * 6
    random.Random(seed).shuffle(deck)
    shards = []
    for label in range(4):
        rows = np.flatnonzero(labels == label).tolist()
        size = len(rows) // 6
        runs = [rows[n * size : (n + 1) * size] for n in range(6)]
        for run, extra in zip(runs, rows[6 * size :]):
            run.append(extra)
        shards.append(runs)
    clients: list[list[int]] = [[] for _ in range(8)]
    for index, label in enumerate(deck):
        clients[index // 3] += shards[label].pop(rng.choice(len(shards[label]), replace=False))
    return clients
