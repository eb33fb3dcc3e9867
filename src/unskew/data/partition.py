"""Partitions of training rows over clients: iid, dirichlet, classes, shards, group and on-demand."""

import hashlib
import math
import random
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from unskew.base.errors import UserError
from unskew.data import draw_split, split_cache
from unskew.data.draw_split import IntArray
from unskew.data.on_demand import OnDemand
from unskew.data.split_cache import ClientRowNumbers

Draws = Literal["counts", "released"]
_CLIENTS = "Number of clients K"
_DRAWS = "counts: this package's own draws; released: the random calls of the papers' code, in its order"
_STREAM = 0x5EED  # stream id: separates these draws from others with the same seed


class _PartitionBase(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    seed: int | None = Field(None, ge=0, lt=2**32, description="Seed of the split; empty means the run's seed")


class Iid(_PartitionBase):
    """Every client gets an equal share of every class (FLea, Sec. 2.3)."""

    name: Literal["iid"] = "iid"
    clients: int = Field(ge=1, description=_CLIENTS)


class Dirichlet(_PartitionBase):
    """One Dirichlet draw per class over clients, or per client over classes (FLea Dir, FedLMD LDA, HFMDS)."""

    name: Literal["dirichlet"] = "dirichlet"
    clients: int = Field(ge=1, description=_CLIENTS)
    alpha: float = Field(ge=1e-6, le=1e6, description="Concentration; FLea 0.1 and 0.5, FedLMD 0.05 to 0.5, HFMDS 0.01")
    min: int = Field(0, ge=0, description="Redraw until every client holds this many rows; FedLMD 10, FLea 10, 6 or 3")
    cap: bool = Field(True, description="A client at N/K rows or more gets nothing of later classes (FLea, FedLMD)")
    over: Literal["clients", "classes"] = Field(
        "clients", description="clients: sizes vary (all papers); classes: one class mix per client, equal sizes"
    )
    block: int = Field(0, ge=0, description="Clients per separately drawn block, 0 for one block; FLea 100, UCI-HAR 75")
    blocks_by: Literal["class", "order"] = Field(
        "class", description="class: blocks hold all classes alike (CIFAR-10); order: blocks in file order (UCI-HAR)"
    )
    retries: int = Field(200_000, ge=1, description="Draws before the best so far is kept; HFMDS advises about 1000")
    draws: Draws = Field("counts", description=_DRAWS)


class Classes(_PartitionBase):
    """Every client holds a fixed number of classes (FLea Qua; balanced: HFMDS)."""

    name: Literal["classes"] = "classes"
    clients: int = Field(ge=1, description=_CLIENTS)
    per_client: int = Field(ge=1, description="Classes per client; FLea 3 (UCI-HAR 2), HFMDS 2 (CIFAR-100: 10)")
    balanced: bool = Field(False, description="Give every class to equally many clients (HFMDS)")
    draws: Draws = Field("counts", description=_DRAWS)


class Shards(_PartitionBase):
    """Every client gets the same number of one-class shards; a class may repeat (FedLMD, FedNTD)."""

    name: Literal["shards"] = "shards"
    clients: int = Field(ge=1, description=_CLIENTS)
    per_client: int = Field(ge=1, description="Shards per client s; FedLMD 2, 3, 5 or 10")
    draws: Draws = Field("counts", description=_DRAWS)


class Group(_PartitionBase):
    """One client per natural group (speaker, site, subject), or several groups per client, of even size."""

    name: Literal["group"] = "group"
    clients: int | None = Field(None, ge=1, description="Number of clients; empty means one per group")


class OnDemandRows(_PartitionBase):
    """Any number of clients, whose rows are drawn when needed; several clients may hold the same row."""

    name: Literal["on-demand"] = "on-demand"
    clients: int = Field(ge=1, description=_CLIENTS)
    rows: int = Field(50, ge=1, description="Rows of every client; 50 in the benchmark of pfl-research")
    per_client: int | None = Field(None, ge=1, description="Classes of every client; empty means all")


Partition = Annotated[Iid | Dirichlet | Classes | Shards | Group | OnDemandRows, Field(discriminator="name")]


def split(
    partition: Partition,
    labels: np.ndarray,
    classes: int,
    seed: int,
    group: np.ndarray | None = None,
    cache: Path | None = None,
) -> ClientRowNumbers:
    """Split rows over clients; a seed in the partition overrides the argument.

    labels [N] in 0..classes-1; group [N], any sortable values. cache: folder for splits that are drawn with retries.
    """
    labels = _check_labels(labels, classes)
    seed = seed if partition.seed is None else partition.seed
    if not 0 <= seed < 2**32:
        raise UserError(f"partition: expected a seed from 0 to 4294967295, found {seed}; type a seed in that range")
    # Only the retry loop is slow enough to be worth a file.
    if cache is None or not isinstance(partition, Dirichlet) or not partition.min:
        return _draw(partition, labels, classes, seed, group)
    file = cache / f"split-{_cache_key(partition, labels, classes, seed)}.npz"
    client_rows = split_cache.load(file, len(labels), partition.clients)
    if client_rows is None:
        client_rows = _draw(partition, labels, classes, seed, group)
        split_cache.store(file, client_rows)
    return client_rows


def _check_labels(labels: np.ndarray, classes: int) -> IntArray:
    array = np.asarray(labels)
    if array.ndim != 1 or not array.size or not np.issubdtype(array.dtype, np.integer):
        raise UserError(
            f"partition: expected one integer label per row, found {array.dtype} of shape {list(array.shape)}; "
            "give the class numbers as one array"
        )
    if array.min() < 0 or array.max() >= classes:
        raise UserError(
            f"partition: expected labels 0 to {classes - 1}, found {array.min()} to {array.max()}; "
            f"number the classes from 0 and give classes={int(array.max()) + 1}"
        )
    return array.astype(np.int64)


def _draw(
    partition: Partition, labels: IntArray, classes: int, seed: int, group: np.ndarray | None
) -> ClientRowNumbers:
    gen = np.random.default_rng([_STREAM, seed])
    if isinstance(partition, Dirichlet):
        return _split_dirichlet(partition, labels, classes, seed, gen)
    if isinstance(partition, Group):
        return ClientRowNumbers(_split_by_group(partition, len(labels), group, gen))
    class_rows = draw_split.rows_by_value(labels, classes)
    if isinstance(partition, OnDemandRows):
        per_client = partition.per_client or sum(map(bool, map(len, class_rows)))
        note = "on-demand: rows are drawn separately for each client, so several clients may hold the same row"
        return ClientRowNumbers(OnDemand(class_rows, seed, partition.clients, partition.rows, per_client), (note,))
    if isinstance(partition, Classes):
        return ClientRowNumbers(_split_by_classes(partition, class_rows, seed, gen))
    if isinstance(partition, Shards):
        note = "shards: rows of a class are cut in file order, not shuffled (FedLMD recipe)"
        return ClientRowNumbers(_split_into_shards(partition, class_rows, seed, gen), (note,))
    return ClientRowNumbers(_split_iid(partition.clients, class_rows, gen))


def _nearest_multiples(value: int, step: int) -> str:
    """The multiples of `step` on both sides of `value`, as text."""
    low = value // step * step
    return f"{low} or {low + step}" if low else str(step)


def _split_iid(clients: int, class_rows: list[IntArray], gen: np.random.Generator) -> list[IntArray]:
    total = sum(map(len, class_rows))
    if clients > total:
        raise UserError(
            f"iid: expected at most one client per row, found {clients} clients for {total} rows; type clients: {total}"
        )
    # Round-robin assignment in class order balances classes and sizes at once: both differ by at most one row.
    order = np.concatenate([gen.permutation(members) for members in class_rows])
    owner = np.empty(total, np.int64)
    owner[order] = gen.permutation(clients)[np.arange(total) % clients]
    return draw_split.rows_by_value(owner, clients)


def _split_dirichlet(
    p: Dirichlet, labels: IntArray, classes: int, seed: int, gen: np.random.Generator
) -> ClientRowNumbers:
    random_state = np.random.RandomState(seed) if p.draws == "released" else None
    if random_state is not None and p.over == "classes":
        raise UserError(
            "dirichlet: expected over: clients with draws: released, found over: classes, which no released code "
            "draws; type draws: counts or over: clients"
        )
    blocks = _draw_blocks(p, draw_split.rows_by_value(labels, classes), gen)
    clients = p.clients // len(blocks)
    drawn = [_split_block(p, draw_split.rows_by_value(labels[b], classes), clients, random_state, gen) for b in blocks]
    rows = [block[index] for block, (client_rows, _, _) in zip(blocks, drawn) for index in client_rows]
    return ClientRowNumbers(rows, tuple(_notes(p, [tries for _, tries, _ in drawn], [size for _, _, size in drawn])))


def _notes(p: Dirichlet, tries: list[int], smallest: list[int]) -> list[str]:
    """Header lines about the draws; tries, smallest: of each block, its number of draws and its smallest client."""
    notes = []
    in_blocks = f" in {len(tries)} blocks" if len(tries) > 1 else ""
    reached = [draw for draw, size in zip(tries, smallest) if size >= p.min]
    if max(reached, default=1) > 1:
        notes.append(f"dirichlet: min {p.min} reached at draw {', '.join(map(str, reached))}{in_blocks}")
    if min(smallest) < p.min:
        notes.append(
            f"dirichlet: min {p.min} not reached in {max(tries)} draws; the smallest client has {min(smallest)}"
        )
    return notes


def _split_block(
    p: Dirichlet,
    class_rows: list[IntArray],
    clients: int,
    random_state: np.random.RandomState | None,
    gen: np.random.Generator,
) -> tuple[list[IntArray], int, int]:
    """The rows of each client of a block, the number of draws and the size of the smallest client."""
    sizes = np.array([len(members) for members in class_rows], np.int64)
    if p.min * clients > sizes.sum():
        raise UserError(
            f"dirichlet: expected min x clients to be at most {sizes.sum()} rows, found {p.min} x {clients}; "
            f"type min: {sizes.sum() // clients} or fewer clients"
        )
    if random_state is not None:
        return draw_split.draw_released_dirichlet(random_state, class_rows, clients, p.alpha, p.cap, p.min, p.retries)
    if p.over == "classes":
        counts, tries = draw_split.draw_class_mixes(gen, sizes, clients, p.alpha), 1
    else:
        counts, tries = draw_split.draw_dirichlet_counts(gen, sizes, clients, p.alpha, p.cap, p.min, p.retries)
    return draw_split.fill_counts(gen, counts, class_rows), tries, int(counts.sum(axis=0).min())


def _draw_blocks(p: Dirichlet, class_rows: list[IntArray], gen: np.random.Generator) -> list[IntArray]:
    """The rows of each block of clients, ascending."""
    total = sum(map(len, class_rows))
    if not p.block or p.clients <= p.block:
        return [np.arange(total)]
    if p.clients % p.block:
        raise UserError(
            f"dirichlet: expected clients to be a multiple of block {p.block}, found {p.clients}; "
            f"type clients: {_nearest_multiples(p.clients, p.block)}"
        )
    count = p.clients // p.block
    if p.blocks_by == "order":
        return np.array_split(np.arange(total), count)
    if p.draws == "counts":  # if rows are sorted within a class, blocks would otherwise differ
        class_rows = [gen.permutation(members) for members in class_rows]
    pieces = [np.array_split(members, count) for members in class_rows]
    return [np.sort(np.concatenate(block)) for block in zip(*pieces)]


def _split_by_classes(p: Classes, class_rows: list[IntArray], seed: int, gen: np.random.Generator) -> list[IntArray]:
    total, fewest = len(class_rows), math.ceil(len(class_rows) / p.clients)
    if not fewest <= p.per_client <= total:
        raise UserError(
            f"classes: expected per_client from {fewest} to {total} ({total} classes over {p.clients} clients, "
            f"each held by a client), found {p.per_client}; type per_client: {min(max(p.per_client, fewest), total)}"
        )
    if p.draws == "released":
        if p.balanced:
            raise UserError(
                "classes: expected balanced: false with draws: released, found balanced: true, which no released code "
                "draws; type draws: counts or balanced: false"
            )
        random_state = np.random.RandomState(seed)
        holds = draw_split.draw_classes(random_state.randint, p.clients, p.per_client, total)
        unassigned = np.flatnonzero(~holds.any(axis=0)).tolist()
        if unassigned:
            raise UserError(
                f"classes: expected every class to have a client, found none for classes {unassigned} with draws: "
                "released; type draws: counts"
            )
        return draw_split.divide_classes(holds, [random_state.permutation(members) for members in class_rows])
    if p.balanced:
        holds = draw_split.draw_balanced_classes(gen, p.clients, p.per_client, total)
    else:
        holds = draw_split.cover_all_classes(gen, draw_split.draw_classes(gen.integers, p.clients, p.per_client, total))
    return [
        np.sort(rows) for rows in draw_split.divide_classes(holds, [gen.permutation(members) for members in class_rows])
    ]


def _split_into_shards(p: Shards, class_rows: list[IntArray], seed: int, gen: np.random.Generator) -> list[IntArray]:
    total = len(class_rows)
    if p.per_client * p.clients % total:
        raise UserError(
            f"shards: expected clients x per_client to be a multiple of the {total} classes, found {p.clients} x "
            f"{p.per_client}; type clients: {_nearest_multiples(p.clients, total // math.gcd(total, p.per_client))}, "
            f"or per_client: {_nearest_multiples(p.per_client, total // math.gcd(total, p.clients))}"
        )
    labels = list(range(total)) * (p.per_client * p.clients // total)
    if p.draws == "released":
        random_state = np.random.RandomState(seed)
        random.Random(seed).shuffle(labels)
        return draw_split.assign_shards(
            np.array(labels).reshape(p.clients, -1), class_rows, lambda left: random_state.choice(left, replace=False)
        )
    table = gen.permutation(np.array(labels)).reshape(p.clients, -1)
    return [np.sort(rows) for rows in draw_split.assign_shards(table, class_rows, gen.integers)]


def _split_by_group(p: Group, total: int, group: np.ndarray | None, gen: np.random.Generator) -> list[IntArray]:
    if group is None or np.shape(group) != (total,):
        actual = "none" if group is None else f"shape {list(np.shape(group))}"
        raise UserError(f"group: expected one group per row ({total}), found {actual}; type another partition name")
    names, codes = np.unique(group, return_inverse=True)
    clients = len(names) if p.clients is None else p.clients
    if clients > len(names):
        raise UserError(
            f"group: expected at most {len(names)} clients, one per group, found {clients}; type clients: {len(names)}"
        )
    return draw_split.rows_by_value(draw_split.assign_groups(gen, np.bincount(codes), clients)[codes], clients)


def _cache_key(partition: Dirichlet, labels: IntArray, classes: int, seed: int) -> str:
    # NumPy may change a generator's numbers between versions, so its version is part of the key.
    text = f"1 {np.__version__} {seed} {classes} {partition.model_dump_json(exclude={'seed'})} "
    return hashlib.sha256(text.encode() + labels.tobytes()).hexdigest()[:24]
