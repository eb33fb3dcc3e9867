"""Splits training rows over clients: iid, dirichlet, classes, shards, group and on demand, by counts or as released."""

import hashlib
import math
import random
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from unskew.base.errors import UserError
from unskew.data import draw_split, split_cache
from unskew.data.draw_split import Rows
from unskew.data.on_demand import OnDemand
from unskew.data.split_cache import ClientRowNumbers

Draws = Literal["counts", "released"]
_CLIENTS = "Number of clients K"
_DRAWS = "counts: this package's own draws; released: the random calls of the papers' code, in its order"
_STREAM = 0x5EED  # keeps the split's stream apart from other generators made from the same run seed


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    seed: int | None = Field(None, ge=0, lt=2**32, description="Seed of the split; empty means the run's seed")


class Iid(_Model):
    """Every client gets an equal share of every class (FLea, Sec. 2.3)."""

    name: Literal["iid"] = "iid"
    clients: int = Field(ge=1, description=_CLIENTS)


class Dirichlet(_Model):
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
        "class", description="class: blocks hold all classes alike (CIFAR-10); order: runs in file order (UCI-HAR)"
    )
    retries: int = Field(200_000, ge=1, description="Draws before the best so far is kept; HFMDS advises about 1000")
    draws: Draws = Field("counts", description=_DRAWS)


class Classes(_Model):
    """Every client holds a fixed number of classes (FLea Qua; balanced: HFMDS)."""

    name: Literal["classes"] = "classes"
    clients: int = Field(ge=1, description=_CLIENTS)
    per_client: int = Field(ge=1, description="Classes per client; FLea 3 (UCI-HAR 2), HFMDS 2 (CIFAR-100: 10)")
    balanced: bool = Field(False, description="Give every class to equally many clients (HFMDS)")
    draws: Draws = Field("counts", description=_DRAWS)


class Shards(_Model):
    """Every client gets the same number of one-class shards; a class may repeat (FedLMD, FedNTD)."""

    name: Literal["shards"] = "shards"
    clients: int = Field(ge=1, description=_CLIENTS)
    per_client: int = Field(ge=1, description="Shards per client s; FedLMD 2, 3, 5 or 10")
    draws: Draws = Field("counts", description=_DRAWS)


class Group(_Model):
    """One client per natural group (speaker, site, subject), or whole groups dealt evenly to fewer clients."""

    name: Literal["group"] = "group"
    clients: int | None = Field(None, ge=1, description="Number of clients; empty means one per group")


class OnDemandRows(_Model):
    """Any number of clients, whose rows are drawn when they are needed; several clients may hold the same row."""

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
    """Splits the rows of labels over clients; a seed in the partition goes before the argument.

    labels [N] in 0..classes-1; group [N], any sortable values. cache: folder that keeps splits drawn by retries.
    """
    labels = _checked(labels, classes)
    seed = seed if partition.seed is None else partition.seed
    if not 0 <= seed < 2**32:
        raise UserError(f"partition: expected a seed from 0 to 4294967295, found {seed}; type a seed in that range")
    # only the retry loop is slow enough to be worth a file
    if cache is None or not isinstance(partition, Dirichlet) or not partition.min:
        return _drawn(partition, labels, classes, seed, group)
    file = cache / f"split-{_key(partition, labels, classes, seed)}.npz"
    parts = split_cache.load(file, len(labels), partition.clients)
    if parts is None:
        parts = _drawn(partition, labels, classes, seed, group)
        split_cache.store(file, parts)
    return parts


def _checked(labels: np.ndarray, classes: int) -> Rows:
    array = np.asarray(labels)
    if array.ndim != 1 or not array.size or not np.issubdtype(array.dtype, np.integer):
        raise UserError(
            f"partition: expected one whole-number label per row, found {array.dtype} of shape {list(array.shape)}; "
            "give the class numbers as one list"
        )
    if array.min() < 0 or array.max() >= classes:
        raise UserError(
            f"partition: expected labels 0 to {classes - 1}, found {array.min()} to {array.max()}; "
            f"number the classes from 0 and give classes={int(array.max()) + 1}"
        )
    return array.astype(np.int64)


def _drawn(partition: Partition, labels: Rows, classes: int, seed: int, group: np.ndarray | None) -> ClientRowNumbers:
    gen = np.random.default_rng([_STREAM, seed])
    if isinstance(partition, Dirichlet):
        return _dirichlet(partition, labels, classes, seed, gen)
    if isinstance(partition, Group):
        return ClientRowNumbers(_groups(partition, len(labels), group, gen))
    piles = draw_split.by_class(labels, classes)
    if isinstance(partition, OnDemandRows):
        held = partition.per_client or sum(map(bool, map(len, piles)))
        note = "on-demand: rows are drawn for each client alone, so several clients may hold the same row"
        return ClientRowNumbers(OnDemand(piles, seed, partition.clients, partition.rows, held), (note,))
    if isinstance(partition, Classes):
        return ClientRowNumbers(_classes(partition, piles, seed, gen))
    if isinstance(partition, Shards):
        note = "shards: rows of a class are cut in file order, not shuffled (FedLMD recipe)"
        return ClientRowNumbers(_shards(partition, piles, seed, gen), (note,))
    return ClientRowNumbers(_iid(partition.clients, piles, gen))


def _multiples(value: int, step: int) -> str:
    low = value // step * step
    return f"{low} or {low + step}" if low else str(step)


def _iid(clients: int, piles: list[Rows], gen: np.random.Generator) -> list[Rows]:
    total = sum(map(len, piles))
    if clients > total:
        raise UserError(f"iid: expected at most one client per row, found {clients} for {total}; type clients: {total}")
    # dealing round the table evens out classes and sizes at once: both differ by at most one row
    dealt = np.concatenate([gen.permutation(pile) for pile in piles])
    owner = np.empty(total, np.int64)
    owner[dealt] = gen.permutation(clients)[np.arange(total) % clients]
    return draw_split.by_class(owner, clients)


def _dirichlet(p: Dirichlet, labels: Rows, classes: int, seed: int, gen: np.random.Generator) -> ClientRowNumbers:
    old = np.random.RandomState(seed) if p.draws == "released" else None
    if old is not None and p.over == "classes":
        raise UserError("dirichlet: no released code draws over classes; type draws: counts or over: clients")
    blocks = _blocks(p, draw_split.by_class(labels, classes), gen)
    each = [_block(p, draw_split.by_class(labels[b], classes), p.clients // len(blocks), old, gen) for b in blocks]
    rows = [block[part] for block, (mine, _, _) in zip(blocks, each) for part in mine]
    return ClientRowNumbers(rows, tuple(_told(p, [tries for _, tries, _ in each], [least for _, _, least in each])))


def _told(p: Dirichlet, tries: list[int], least: list[int]) -> list[str]:
    notes = []
    where = f" in {len(tries)} blocks" if len(tries) > 1 else ""
    reached = [draw for draw, smallest in zip(tries, least) if smallest >= p.min]
    if max(reached, default=1) > 1:
        notes.append(f"dirichlet: min {p.min} reached at draw {', '.join(map(str, reached))}{where}")
    if min(least) < p.min:
        notes.append(f"dirichlet: min {p.min} not reached in {max(tries)} draws; the smallest client has {min(least)}")
    return notes


def _block(
    p: Dirichlet, piles: list[Rows], clients: int, old: np.random.RandomState | None, gen: np.random.Generator
) -> tuple[list[Rows], int, int]:
    sizes = np.array([len(pile) for pile in piles], np.int64)
    if p.min * clients > sizes.sum():
        raise UserError(
            f"dirichlet: expected min x clients within the {sizes.sum()} rows, found {p.min} x {clients}; "
            f"type min: {sizes.sum() // clients} or fewer clients"
        )
    if old is not None:
        return draw_split.released(old, piles, clients, p.alpha, p.cap, p.min, p.retries)
    if p.over == "classes":
        counts, tries = draw_split.mixes(gen, sizes, clients, p.alpha), 1
    else:
        counts, tries = draw_split.best(gen, sizes, clients, p.alpha, p.cap, p.min, p.retries)
    return draw_split.filled(gen, counts, piles), tries, int(counts.sum(axis=0).min())


def _blocks(p: Dirichlet, piles: list[Rows], gen: np.random.Generator) -> list[Rows]:
    total = sum(map(len, piles))
    if not p.block or p.clients <= p.block:
        return [np.arange(total)]
    if p.clients % p.block:
        raise UserError(
            f"dirichlet: expected clients to be a multiple of block {p.block}, found {p.clients}; "
            f"type clients: {_multiples(p.clients, p.block)}"
        )
    count = p.clients // p.block
    if p.blocks_by == "order":
        return np.array_split(np.arange(total), count)
    if p.draws == "counts":  # in a file sorted within a class, every block would otherwise hold other kinds of row
        piles = [gen.permutation(pile) for pile in piles]
    runs = [np.array_split(pile, count) for pile in piles]
    return [np.sort(np.concatenate([run[number] for run in runs])) for number in range(count)]


def _classes(p: Classes, piles: list[Rows], seed: int, gen: np.random.Generator) -> list[Rows]:
    total, fewest = len(piles), math.ceil(len(piles) / p.clients)
    if not fewest <= p.per_client <= total:
        raise UserError(
            f"classes: expected per_client from {fewest} to {total} ({total} classes over {p.clients} clients, "
            f"none left out), found {p.per_client}; type per_client: {min(max(p.per_client, fewest), total)}"
        )
    if p.draws == "released":
        if p.balanced:
            raise UserError("classes: no released code deals balanced classes; type draws: counts or balanced: false")
        old = np.random.RandomState(seed)
        holds = draw_split.qua(old.randint, p.clients, p.per_client, total)
        lost = np.flatnonzero(~holds.any(axis=0)).tolist()
        if lost:
            raise UserError(f"classes: released draws leave classes {lost} without a client; type draws: counts")
        return draw_split.chunks(holds, [old.permutation(pile) for pile in piles])
    if p.balanced:
        holds = draw_split.even(gen, p.clients, p.per_client, total)
    else:
        holds = draw_split.covered(gen, draw_split.qua(gen.integers, p.clients, p.per_client, total))
    return [np.sort(part) for part in draw_split.chunks(holds, [gen.permutation(pile) for pile in piles])]


def _shards(p: Shards, piles: list[Rows], seed: int, gen: np.random.Generator) -> list[Rows]:
    total = len(piles)
    if p.per_client * p.clients % total:
        raise UserError(
            f"shards: expected clients x per_client to be a multiple of {total} classes, found {p.clients} x "
            f"{p.per_client}; type clients: {_multiples(p.clients, total // math.gcd(total, p.per_client))}, "
            f"or per_client: {_multiples(p.per_client, total // math.gcd(total, p.clients))}"
        )
    deck = list(range(total)) * (p.per_client * p.clients // total)
    if p.draws == "released":
        old = np.random.RandomState(seed)
        random.Random(seed).shuffle(deck)
        return draw_split.dealt(
            np.array(deck).reshape(p.clients, -1), piles, lambda left: old.choice(left, replace=False)
        )
    table = gen.permutation(np.array(deck)).reshape(p.clients, -1)
    return [np.sort(part) for part in draw_split.dealt(table, piles, gen.integers)]


def _groups(p: Group, total: int, group: np.ndarray | None, gen: np.random.Generator) -> list[Rows]:
    if group is None or np.shape(group) != (total,):
        found = "none" if group is None else f"shape {list(np.shape(group))}"
        raise UserError(f"group: expected one group per row ({total}), found {found}; type another partition name")
    names, member = np.unique(group, return_inverse=True)
    clients = len(names) if p.clients is None else p.clients
    if clients > len(names):
        raise UserError(f"group: expected at most {len(names)} clients, found {clients}; type clients: {len(names)}")
    return draw_split.by_class(draw_split.loads(gen, np.bincount(member), clients)[member], clients)


def _key(partition: Dirichlet, labels: Rows, classes: int, seed: int) -> str:
    # numpy may change a generator's numbers between versions, so its version is part of the name
    text = f"1 {np.__version__} {seed} {classes} {partition.model_dump_json(exclude={'seed'})} "
    return hashlib.sha256(text.encode() + labels.tobytes()).hexdigest()[:24]
