"""The papers' splits: exact sizes with released draws, and the shapes their figures show."""

import random

import numpy as np
import pytest

from unskew.data import rng_checkpoints
from unskew.data.label_skew import counts, summary
from unskew.data.partition import Classes, Dirichlet, Shards, split
from unskew.data.split_cache import ClientRowNumbers

CIFAR = np.random.default_rng(5).permutation(np.repeat(np.arange(10), 5000))
FLEA = [6630, 3448, 6186, 3102, 1060, 6377, 8199, 2853, 5184, 6961]


def sizes(parts: ClientRowNumbers) -> np.ndarray:
    return np.array([len(row) for row in parts.rows])


@pytest.mark.parametrize("labels", [CIFAR, np.sort(CIFAR)])
def test_flea_ten_clients_have_the_sizes_of_its_figure(labels: np.ndarray) -> None:
    parts = split(Dirichlet(clients=10, alpha=0.1, min=10, draws="released"), labels, 10, 1)
    assert sizes(parts).tolist() == FLEA


@pytest.mark.parametrize("draws", ["counts", "released"])
def test_flea_500_clients_in_blocks_have_a_median_near_90(draws: str) -> None:
    parts = split(Dirichlet(clients=500, alpha=0.1, min=3, block=100, draws=draws), CIFAR, 10, 1)
    assert 80 <= np.median(sizes(parts)) <= 95
    assert sizes(parts).min() >= 3
    assert 0.03 < (sizes(parts) < 10).mean() < 0.12


PUBLISHED = Dirichlet(clients=100, alpha=0.05, min=10, draws="released")


def test_fedlmd_published_split_comes_out_of_19126_released_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the draws before it, and from where they are known to leave the generator."""
    parts = split(PUBLISHED, CIFAR, 10, 19940817)
    with monkeypatch.context() as patch:
        patch.setattr(rng_checkpoints, "_known", dict)
        drawn = split(PUBLISHED, CIFAR, 10, 19940817)
        assert _equal(parts, [row.tolist() for row in drawn.rows])
    found = summary(counts(parts.rows, CIFAR, 10))
    assert (found["size_min"], found["size_median"], found["size_max"]) == (12, 341.5, 2731)
    assert round(found["classes_mean"], 1) == 2.9
    assert parts.notes == ("dirichlet: min 10 reached at draw 19126",)


def test_known_draws_are_skipped_only_where_one_of_those_asked_for_comes_out() -> None:
    key = ([5000] * 10, 100, 0.05, True, 10)
    for seed, failed in ((19940817, 19125), (1, 31406), (2, 17703)):
        assert rng_checkpoints.skip(np.random.RandomState(seed), key, failed) == failed
        old, fresh = (np.random.RandomState(seed) for _ in range(2))
        assert rng_checkpoints.skip(old, key, failed - 1) == 0
        assert old.randint(2**31) == fresh.randint(2**31)
    assert rng_checkpoints.skip(np.random.RandomState(3), key, 10**6) == 0
    assert rng_checkpoints.skip(np.random.RandomState(1), ([5000] * 10, 100, 0.1, True, 10), 10**6) == 0


def test_an_entry_is_the_state_before_the_draw_that_comes_out() -> None:
    old, seen = np.random.RandomState(4), list[float]()

    def draw() -> bool:
        seen.append(old.normal())
        return len(seen) == 4

    entry = rng_checkpoints.entry(old, draw)
    again = np.random.RandomState(9)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rng_checkpoints, "_known", lambda: {rng_checkpoints.name(again, ("a",)): entry})
        assert rng_checkpoints.skip(again, ("a",), 3) == 3
    assert again.normal() == seen[3]


def test_fedlmd_split_by_counts_has_the_same_shape() -> None:
    parts = split(Dirichlet(clients=100, alpha=0.05, min=10), CIFAR, 10, 1)
    found = summary(counts(parts.rows, CIFAR, 10))
    assert found["size_min"] >= 10
    assert 250 < found["size_median"] < 450
    assert 2.6 < found["classes_mean"] < 3.2


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


def test_fedlmd_shards_give_500_rows_each_of_whole_runs() -> None:
    for draws in ("counts", "released"):
        parts = split(Shards(clients=100, per_client=2, draws=draws), np.sort(CIFAR), 10, 1)
        assert (sizes(parts) == 500).all()
        assert all((np.diff(np.sort(row)) == 1).sum() >= 498 for row in parts.rows)
        assert "file order" in parts.notes[0]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_released_draws_call_for_call(seed: int) -> None:
    """Plain loops with the same calls in the order the specification gives, kept apart from the package's code."""
    labels = np.random.default_rng(seed).integers(0, 4, 403)
    assert _equal(split(Dirichlet(clients=9, alpha=0.3, min=4, draws="released"), labels, 4, seed), _lda(labels, seed))
    assert _equal(split(Classes(clients=9, per_client=2, draws="released"), labels, 4, seed), _qua(labels, seed))
    assert _equal(split(Shards(clients=8, per_client=3, draws="released"), labels, 4, seed), _sharded(labels, seed))


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


def _qua(labels: np.ndarray, seed: int) -> list[list[int]]:
    rng = np.random.RandomState(seed)
    chosen = []
    for client in range(9):
        mine = [client % 4]
        while len(mine) < 2:
            label = rng.randint(4)
            if label not in mine:
                mine.append(label)
        chosen.append(mine)
    clients: list[list[int]] = [[] for _ in range(9)]
    for label in range(4):
        rows = np.flatnonzero(labels == label)
        rng.shuffle(rows)
        holders = [client for client in range(9) if label in chosen[client]]
        for client, run in zip(holders, np.array_split(rows, len(holders)), strict=True):
            clients[client].extend(run.tolist())
    return clients


def _sharded(labels: np.ndarray, seed: int) -> list[list[int]]:
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
    for place, label in enumerate(deck):
        clients[place // 3] += shards[label].pop(rng.choice(len(shards[label]), replace=False))
    return clients
