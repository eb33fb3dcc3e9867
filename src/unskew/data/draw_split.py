"""Assign rows to clients: the random algorithms behind the partitions, on plain arrays."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from unskew.data import rng_checkpoints

IntArray = NDArray[np.int64]
_MAX_BATCH = 256  # tables drawn at once; changing it changes which draw comes first


def rows_by_value(labels: IntArray, classes: int) -> list[IntArray]:
    """The row numbers of each value, ascending.

    labels [N] in 0..classes-1; returns one array per value.
    """
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.cumsum(np.bincount(labels, minlength=classes))[:-1])


def fill_counts(gen: np.random.Generator, table: IntArray, class_rows: list[IntArray]) -> list[IntArray]:
    """Assign shuffled rows of every class to clients by a table of counts; each client's rows are ascending.

    table [C, K]; class_rows: C arrays that together are 0..N-1; returns K arrays.
    """
    owner = np.empty(table.sum(), np.int64)
    for members, count in zip(class_rows, table):
        owner[gen.permutation(members)] = np.repeat(np.arange(table.shape[1]), count)
    return rows_by_value(owner, table.shape[1])


def draw_dirichlet_counts(
    gen: np.random.Generator, sizes: IntArray, clients: int, alpha: float, cap: bool, min_rows: int, retries: int
) -> tuple[IntArray, int]:
    """Draw Dirichlet tables until every client has `min_rows`, else return the one whose smallest client is largest.

    sizes [C]; returns the table [C, K] and the number of draws.
    """
    max_batch = max(1, min(_MAX_BATCH, 2**20 // (clients * len(sizes))))
    draws, batch, best_smallest, best = 0, 1, -1, np.zeros((len(sizes), clients), np.int64)
    while draws < retries and best_smallest < min_rows:
        batch = min(batch, retries - draws)
        tables = _draw_count_tables(gen, sizes, clients, alpha, cap, batch)
        smallest = tables.sum(axis=1).min(axis=1)
        good = smallest >= min_rows
        index = int(good.argmax() if good.any() else smallest.argmax())
        if smallest[index] > best_smallest:
            best_smallest, best = int(smallest[index]), tables[index].copy()
        draws += index + 1 if good.any() else batch
        batch = min(2 * batch, max_batch)
    return best, draws


def _draw_count_tables(
    gen: np.random.Generator, sizes: IntArray, clients: int, alpha: float, cap: bool, batch: int
) -> IntArray:
    """`batch` tables of counts [C, K]: for every class one Dirichlet draw over the clients that are not full."""
    tables = np.empty((batch, len(sizes), clients), np.int64)
    held = np.zeros((batch, clients), np.int64)
    for label, size in enumerate(sizes):
        has_room = held < sizes.sum() / clients if cap else held >= 0
        share = np.cumsum(_shares(_draw_log_gamma(gen, alpha, held.shape), has_room), axis=1)
        # Dividing by the last sum makes the last client with room end at exactly 1: no full client gains a row.
        ends = np.floor(share / share[:, -1:] * size).astype(np.int64)
        tables[:, label] = np.diff(ends, axis=1, prepend=0)
        held += tables[:, label]
    return tables


def _draw_log_gamma(gen: np.random.Generator, alpha: float, shape: tuple[int, ...]) -> NDArray[np.float64]:
    # Logarithms, because gammas of a small alpha underflow and could leave all clients with room without a share.
    return np.log(gen.standard_gamma(alpha + 1, shape)) - gen.standard_exponential(shape) / alpha


def _shares(log: NDArray[np.float64], has_room: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Softmax over the last axis, restricted to entries with room."""
    has_room = has_room | ~has_room.any(axis=-1, keepdims=True)  # if none has room, no rows are left either
    log = np.where(has_room, log, -np.inf)
    share = np.exp(log - log.max(axis=-1, keepdims=True))
    return share / share.sum(axis=-1, keepdims=True)


def draw_class_mixes(gen: np.random.Generator, sizes: IntArray, clients: int, alpha: float) -> IntArray:
    """Draw a class mix per client and fill clients of equal size from the remaining rows of each class.

    sizes [C]; returns [C, K].
    """
    table, remaining = np.zeros((len(sizes), clients), np.int64), sizes.copy()
    needed = sizes.sum() // clients + (np.arange(clients) < sizes.sum() % clients)
    for client in gen.permutation(clients):  # late clients get the remaining classes, so the order is random
        log = _draw_log_gamma(gen, alpha, remaining.shape)
        while needed[client]:  # each iteration fills the client or empties a class
            take = np.minimum(gen.multinomial(needed[client], _shares(log, remaining > 0)), remaining)
            table[:, client] += take
            remaining -= take
            needed[client] -= take.sum()
    return table


def draw_released_dirichlet(
    random_state: np.random.RandomState,
    class_rows: list[IntArray],
    clients: int,
    alpha: float,
    cap: bool,
    min_rows: int,
    retries: int,
) -> tuple[list[IntArray], int, int]:
    """Make the same random calls as the released Dirichlet code, including the shuffles of failed draws.

    Failed draws with a checkpoint are skipped. class_rows: C arrays; returns K arrays in released order, the number of
    draws and the size of the smallest client.
    """
    key = ([len(members) for members in class_rows], clients, alpha, cap, min_rows)
    tries, best_smallest = rng_checkpoints.skip_failed_draws(random_state, key, retries - 1), -1
    best: tuple[list[IntArray], list[IntArray]] = ([], [])
    while tries < retries and best_smallest < min_rows:
        tries += 1
        with np.errstate(invalid="ignore"):  # an underflowed share may be infinite, which is handled after the sum
            orders, split_points, smallest = draw_released_dirichlet_once(random_state, class_rows, clients, alpha, cap)
        if smallest > best_smallest:
            best_smallest, best = smallest, (orders, split_points)
    pieces = zip(*[np.split(order, points) for order, points in zip(*best)])
    rows = [np.concatenate(client_pieces) for client_pieces in pieces]
    for row in rows:
        random_state.shuffle(row)
    return rows, tries, best_smallest


def draw_released_dirichlet_once(
    random_state: np.random.RandomState, class_rows: list[IntArray], clients: int, alpha: float, cap: bool
) -> tuple[list[IntArray], list[IntArray], int]:
    """One draw: the shuffled rows of each class, where to split them, and the size of the smallest client."""
    held, ends, orders, split_points = np.zeros(clients, np.int64), np.zeros(clients + 1, np.int64), [], []
    full, alphas = sum(map(len, class_rows)) / clients, np.repeat(alpha, clients)
    for members in class_rows:
        order = members.copy()
        random_state.shuffle(order)
        share = random_state.dirichlet(alphas)
        if cap:
            share *= held < full
        total = share.sum()
        # After underflow the total is 0, nan or infinite; the released code then gives the class to the last client.
        ends[1:] = (share / total).cumsum() * len(order) if 0 < total < np.inf else 0
        ends[-1] = len(order)
        held += ends[1:] - ends[:-1]
        orders.append(order)
        split_points.append(ends[1:-1].copy())
    return orders, split_points, int(held.min())


def draw_classes(pick: Callable[[int], int], clients: int, per_client: int, classes: int) -> NDArray[np.bool_]:
    """Draw classes per client: the client number modulo C first, then random ones until `per_client` are different.

    pick(n): a random number below n; returns [K, C].
    """
    holds = np.zeros((clients, classes), np.bool_)
    for client in range(clients):
        holds[client, client % classes] = True
        count = 1
        while count < per_client:
            label = pick(classes)
            count += not holds[client, label]
            holds[client, label] = True
    return holds


def cover_all_classes(gen: np.random.Generator, holds: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Give every class without a client to a client, in exchange for a class that others hold too.

    holds [K, C], changed in place; requires K x per_client >= C.
    """
    for label in np.flatnonzero(~holds.any(axis=0)):
        spare = np.argwhere(holds & (holds.sum(axis=0) > 1))
        client, other = spare[gen.integers(len(spare))]
        holds[client, other], holds[client, label] = False, True
    return holds


def draw_balanced_classes(gen: np.random.Generator, clients: int, per_client: int, classes: int) -> NDArray[np.bool_]:
    """Draw classes so that each has equally many clients (or one more) and no client gets a class twice.

    Returns [K, C]; requires per_client <= C.
    """
    deck = gen.permutation(classes)[np.arange(clients * per_client) % classes]
    table = np.zeros((clients, classes), np.int64)
    np.add.at(table, (np.repeat(np.arange(clients), per_client), gen.permutation(deck)), 1)
    while (table > 1).any():  # every swap removes at least one duplicate, and a swap is always possible
        client, label = np.argwhere(table > 1)[0]
        other = gen.choice(np.flatnonzero(table[:, label] == 0))
        swap = gen.choice(np.flatnonzero((table[other] > 1) | ((table[other] > 0) & (table[client] == 0))))
        table[[client, other], label] += [-1, 1]
        table[[client, other], swap] += [1, -1]
    return table > 0


def assign_groups(gen: np.random.Generator, sizes: IntArray, clients: int) -> IntArray:
    """Assign groups to clients, the largest first to the emptiest client; with one client per group, keep their order.

    sizes [G], all positive; returns the client of each group [G].
    """
    if clients == len(sizes):
        return np.arange(clients)
    load, owner = np.zeros(clients, np.int64), np.empty(len(sizes), np.int64)
    order = gen.permutation(len(sizes))
    for group in order[np.argsort(-sizes[order], kind="stable")]:
        owner[group] = load.argmin()
        load[owner[group]] += sizes[group]
    return owner


def divide_classes(holds: NDArray[np.bool_], class_rows: list[IntArray]) -> list[IntArray]:
    """Divide every class into nearly equal pieces, one for each client that holds it, in client order.

    holds [K, C]; class_rows: C arrays in the order to divide; returns K arrays.
    """
    pieces = [iter(np.array_split(members, int(count))) for members, count in zip(class_rows, holds.sum(axis=0))]
    return [np.concatenate([next(pieces[label]) for label in np.flatnonzero(row)]) for row in holds]


def assign_shards(table: IntArray, class_rows: list[IntArray], pick: Callable[[int], int]) -> list[IntArray]:
    """Divide every class into equal shards in file order; each client draws one shard for every label in its row.

    table [K, s] of labels; pick(n): a random number below n; returns K arrays.
    """
    shards: list[list[IntArray]] = []
    for label, members in enumerate(class_rows):
        count = int((table == label).sum())
        size = len(members) // count
        remainder = members[size * count :]  # the first shards get one row each of the end of the class
        shards.append([np.append(members[n * size : (n + 1) * size], remainder[n : n + 1]) for n in range(count)])
    return [np.concatenate([shards[label].pop(int(pick(len(shards[label])))) for label in row]) for row in table]
