"""Properties of every split: each row is assigned once, drawing ends, and sizes are as promised."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from unskew.base.errors import UserError
from unskew.data import partition as module
from unskew.data.label_skew import counts
from unskew.data.partition import Classes, Dirichlet, Group, Iid, Partition, Shards, split
from unskew.data.split_cache import ClientRowNumbers

SEEDS = st.integers(0, 2**32 - 1)
CLIENTS = st.integers(1, 12)
DRAWS = st.sampled_from(["counts", "released"])
FAST = settings(max_examples=60, deadline=None)


@st.composite
def tasks(draw: st.DrawFn) -> tuple[np.ndarray, int]:
    classes = draw(st.integers(1, 6))
    labels = draw(st.lists(st.integers(0, classes - 1), min_size=1, max_size=120))
    return np.array(labels), classes


def sizes(parts: ClientRowNumbers) -> np.ndarray:
    return np.array([len(row) for row in parts.rows])


def check_complete(parts: ClientRowNumbers, total: int, clients: int) -> None:
    assert len(parts.rows) == clients
    assert all(row.dtype == np.int64 for row in parts.rows)
    assert np.array_equal(np.sort(np.concatenate(parts.rows)), np.arange(total))


def same(a: ClientRowNumbers, b: ClientRowNumbers) -> bool:
    return a.notes == b.notes and all(np.array_equal(x, y) for x, y in zip(a.rows, b.rows, strict=True))


@FAST
@given(tasks(), CLIENTS, SEEDS)
def test_iid_gives_equal_sizes_and_equal_shares_of_each_class(
    task: tuple[np.ndarray, int], clients: int, seed: int
) -> None:
    labels, classes = task
    clients = min(clients, len(labels))
    parts = split(Iid(clients=clients), labels, classes, seed)
    check_complete(parts, len(labels), clients)
    assert np.ptp(sizes(parts)) <= 1
    assert (np.ptp(counts(parts.rows, labels, classes), axis=0) <= 1).all()


@pytest.mark.filterwarnings("error")
@settings(max_examples=150, deadline=None)
@given(tasks(), st.integers(1, 5), st.integers(0, 4), st.data())
def test_dirichlet_always_ends_and_reaches_or_reports_the_minimum(
    task: tuple[np.ndarray, int], block: int, blocks: int, data: st.DataObject
) -> None:
    labels, classes = task
    clients = block * max(blocks, 1)
    draws = data.draw(DRAWS)
    partition = Dirichlet(
        clients=clients,
        alpha=data.draw(st.sampled_from([1e-6, 1e-3, 0.01, 0.1, 1.0, 100.0])),
        min=data.draw(st.integers(0, len(labels) // clients)) if blocks < 2 else 0,
        cap=data.draw(st.booleans()),
        over="clients" if draws == "released" else data.draw(st.sampled_from(["clients", "classes"])),
        block=block if blocks else 0,
        blocks_by=data.draw(st.sampled_from(["class", "order"])),
        retries=20,
        draws=draws,
    )
    seed = data.draw(SEEDS)
    parts = split(partition, labels, classes, seed)
    check_complete(parts, len(labels), clients)
    reported = any("not reached" in note for note in parts.notes)
    assert (sizes(parts).min() < partition.min) == reported
    assert same(parts, split(partition, labels, classes, seed))
    if draws == "counts":
        assert all((np.diff(row) > 0).all() for row in parts.rows)


@FAST
@given(tasks(), CLIENTS, st.floats(1e-3, 10), SEEDS)
def test_a_full_client_gets_no_rows_of_later_classes(
    task: tuple[np.ndarray, int], clients: int, alpha: float, seed: int
) -> None:
    labels, classes = task
    table = counts(split(Dirichlet(clients=clients, alpha=alpha), labels, classes, seed).rows, labels, classes)
    held = np.cumsum(table, axis=1)[:, :-1]
    assert not table[:, 1:][held >= len(labels) / clients].any()


@FAST
@given(tasks(), CLIENTS, st.floats(1e-3, 10), SEEDS)
def test_a_class_mix_per_client_gives_equal_sizes(
    task: tuple[np.ndarray, int], clients: int, alpha: float, seed: int
) -> None:
    labels, classes = task
    parts = split(Dirichlet(clients=clients, alpha=alpha, over="classes"), labels, classes, seed)
    check_complete(parts, len(labels), clients)
    assert np.ptp(sizes(parts)) <= 1


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 8), CLIENTS, st.booleans(), DRAWS, SEEDS, st.data())
def test_classes_gives_every_client_exactly_its_number_of_classes(
    classes: int, clients: int, balanced: bool, draws: str, seed: int, data: st.DataObject
) -> None:
    per = data.draw(st.integers(-(-classes // clients), classes))
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(classes), 2 * clients + 1))
    draws = "counts" if balanced or clients < classes else draws
    partition = Classes(clients=clients, per_client=per, balanced=balanced, draws=draws)
    parts = split(partition, labels, classes, seed)
    check_complete(parts, len(labels), clients)
    table = counts(parts.rows, labels, classes)
    assert ((table > 0).sum(axis=1) == per).all()
    for column in table.T:
        assert np.ptp(column[column > 0]) <= 1
    if balanced:
        assert np.ptp((table > 0).sum(axis=0)) <= 1
    else:
        assert table[np.arange(clients), np.arange(clients) % classes].all() or clients < classes


@FAST
@given(tasks(), st.integers(1, 6), st.integers(1, 3), DRAWS, SEEDS)
def test_shards_give_at_most_s_classes_and_even_sizes(
    task: tuple[np.ndarray, int], per: int, times: int, draws: str, seed: int
) -> None:
    labels, classes = task
    clients = classes * times
    parts = split(Shards(clients=clients, per_client=per, draws=draws), labels, classes, seed)
    check_complete(parts, len(labels), clients)
    assert ((counts(parts.rows, labels, classes) > 0).sum(axis=1) <= per).all()
    even = np.repeat(np.arange(classes), per * times * 3)
    assert np.ptp(sizes(split(Shards(clients=clients, per_client=per, draws=draws), even, classes, seed))) == 0


@FAST
@given(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=80), SEEDS, st.data())
def test_group_never_splits_a_group(names: list[str], seed: int, data: st.DataObject) -> None:
    group = np.array(names)
    clients = data.draw(st.none() | st.integers(1, len(set(names))))
    parts = split(Group(clients=clients), np.zeros(len(names), int), 1, seed, group=group)
    check_complete(parts, len(names), clients or len(set(names)))
    assert sizes(parts).min() > 0
    held = [name for row in parts.rows for name in set(group[row])]
    assert len(held) == len(set(held))


def test_by_default_each_group_is_one_client_in_sorted_order() -> None:
    parts = split(Group(), np.zeros(5, int), 1, 0, group=np.array([30, 10, 20, 10, 30]))
    assert [row.tolist() for row in parts.rows] == [[1, 3], [2], [0, 4]]


def test_groups_are_assigned_evenly_by_size() -> None:
    group = np.repeat(np.arange(6), [10, 9, 6, 5, 3, 3])
    assert sorted(sizes(split(Group(clients=3), np.zeros(36, int), 1, 0, group=group))) == [11, 12, 13]


def test_rows_of_a_class_are_shuffled_before_they_are_cut() -> None:
    """If the file is sorted within a class, the first clients must not get the first rows."""
    labels = np.repeat(np.arange(2), 500)
    for partition in (
        Iid(clients=5),
        Dirichlet(clients=5, alpha=100),
        Dirichlet(clients=4, alpha=100, block=2),
        Dirichlet(clients=5, alpha=100, over="classes"),
        Classes(clients=4, per_client=2),
    ):
        middle = [np.median(row % 500) for row in split(partition, labels, 2, 3).rows]
        assert 150 < min(middle) < max(middle) < 350, partition


def test_blocks_never_share_rows() -> None:
    labels = np.tile(np.arange(4), 100)
    order = split(Dirichlet(clients=6, alpha=0.5, block=3, blocks_by="order"), labels, 4, 1)
    assert max(np.concatenate(order.rows[:3])) < 200 <= min(np.concatenate(order.rows[3:]))
    released = split(Dirichlet(clients=6, alpha=0.5, block=3, draws="released"), labels, 4, 1)
    assert max(np.concatenate(released.rows[:3])) < 200  # tiled labels: the first run of each class is the first half
    table = counts(split(Dirichlet(clients=6, alpha=0.5, block=3), labels, 4, 1).rows, labels, 4)
    assert table[:3].sum(axis=0).tolist() == [50] * 4


def test_seeds_change_the_split_and_the_partitions_seed_takes_precedence() -> None:
    labels = np.tile(np.arange(5), 40)
    for kind in (Iid(clients=4), Dirichlet(clients=4, alpha=0.5), Classes(clients=5, per_client=2)):
        assert not same(split(kind, labels, 5, 1), split(kind, labels, 5, 2))
        assert same(split(kind, labels, 5, 1), split(kind.model_copy(update={"seed": 1}), labels, 5, 2))


@pytest.mark.parametrize(
    ("partition", "hint"),
    [
        (Iid(clients=61), "clients: 60"),
        (Dirichlet(clients=10, alpha=1, min=7), "min: 6"),
        (Dirichlet(clients=5, alpha=1, block=2), "clients: 4 or 6"),
        (Dirichlet(clients=5, alpha=1, over="classes", draws="released"), "draws: counts"),
        (Classes(clients=5, per_client=7), "per_client: 6"),
        (Classes(clients=2, per_client=2), "per_client: 3"),
        (Classes(clients=6, per_client=2, balanced=True, draws="released"), "draws: counts"),
        (Classes(clients=2, per_client=3, seed=0, draws="released"), "draws: counts"),
        (Shards(clients=4, per_client=2), "clients: 3 or 6, or per_client: 3"),
        (Group(), "another partition"),
    ],
)
def test_impossible_requests_name_a_valid_value(partition: Partition, hint: str) -> None:
    with pytest.raises(UserError, match=hint):
        split(partition, np.arange(60) % 6, 6, 1)


@pytest.mark.parametrize("labels", [np.zeros(0, int), np.zeros((3, 1), int), np.zeros(3), np.array([0, 9])])
def test_unusable_labels_are_refused(labels: np.ndarray) -> None:
    with pytest.raises(UserError, match="expected"):
        split(Iid(clients=1), labels, 3, 0)


def test_more_clients_than_groups_and_wrong_seeds_are_refused() -> None:
    with pytest.raises(UserError, match="clients: 2"):
        split(Group(clients=3), np.zeros(4, int), 1, 0, group=np.array([0, 0, 1, 1]))
    with pytest.raises(UserError, match="seed"):
        split(Iid(clients=1), np.zeros(4, int), 1, -1)


def test_the_name_chooses_the_model_and_unknown_keys_are_refused() -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(Partition)
    assert adapter.validate_python({"name": "shards", "clients": 4, "per_client": 2}) == Shards(clients=4, per_client=2)
    for wrong in ({"name": "iid", "clients": 2, "alpha": 1}, {"name": "dirichlet", "clients": 2}, {"name": "sorted"}):
        with pytest.raises(ValidationError):
            adapter.validate_python(wrong)


def test_a_cached_split_is_read_back_and_a_damaged_file_is_redrawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = np.arange(200) % 4
    partition = Dirichlet(clients=8, alpha=0.2, min=3, draws="released")
    first = split(partition, labels, 4, 5, cache=tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:100])
    assert same(first, split(partition, labels, 4, 5, cache=tmp_path))
    assert not same(first, split(partition, labels, 4, 6, cache=tmp_path))
    monkeypatch.setattr(module, "_draw", lambda *_: pytest.fail("drawn although cached"))
    assert same(first, split(partition, labels, 4, 5, cache=tmp_path))
    assert len(list(tmp_path.iterdir())) == 2
