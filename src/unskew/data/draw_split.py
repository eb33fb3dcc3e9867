"""How rows are dealt to clients: the drawing algorithms behind the partitions, on plain arrays."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from unskew.data import rng_checkpoints

Rows = NDArray[np.int64]
_MOST_TRIES = 256  # draws made side by side; fixed, because it decides which draw comes first


def by_class(labels: Rows, classes: int) -> list[Rows]:
    """Lists the places of each value, ascending.

    labels [N] in 0..classes-1; returns one array per class.
    """
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.cumsum(np.bincount(labels, minlength=classes))[:-1])


def filled(gen: np.random.Generator, table: Rows, piles: list[Rows]) -> list[Rows]:
    """Hands shuffled rows of every class to clients by a table of counts; each client's rows ascend.

    table [C, K]; piles: C arrays of rows that together are 0..N-1; returns K arrays.
    """
    owner = np.empty(table.sum(), np.int64)
    for pile, count in zip(piles, table):
        owner[gen.permutation(pile)] = np.repeat(np.arange(table.shape[1]), count)
    return by_class(owner, table.shape[1])


def best(
    gen: np.random.Generator, sizes: Rows, clients: int, alpha: float, cap: bool, least: int, retries: int
) -> tuple[Rows, int]:
    """Draws Dirichlet tables until no client is below least, or keeps the one with the largest smallest client.

    sizes [C]; returns the table [C, K] and the number of draws.
    """
    most = max(1, min(_MOST_TRIES, 2**20 // (clients * len(sizes))))
    done, side, found, kept = 0, 1, -1, np.zeros((len(sizes), clients), np.int64)
    while done < retries and found < least:
        side = min(side, retries - done)
        tables = _tables(gen, sizes, clients, alpha, cap, side)
        smallest = tables.sum(axis=1).min(axis=1)
        good = smallest >= least
        at = int(good.argmax() if good.any() else smallest.argmax())
        if smallest[at] > found:
            found, kept = int(smallest[at]), tables[at].copy()
        done += at + 1 if good.any() else side
        side = min(2 * side, most)
    return kept, done


def _tables(gen: np.random.Generator, sizes: Rows, clients: int, alpha: float, cap: bool, side: int) -> Rows:
    tables = np.empty((side, len(sizes), clients), np.int64)
    held = np.zeros((side, clients), np.int64)
    for label, size in enumerate(sizes):
        room = held < sizes.sum() / clients if cap else held >= 0
        share = np.cumsum(_shares(_log_gamma(gen, alpha, held.shape), room), axis=1)
        # dividing by the last sum makes the last open client end at exactly 1, so a full one gains no stray row
        ends = np.floor(share / share[:, -1:] * size).astype(np.int64)
        tables[:, label] = np.diff(ends, axis=1, prepend=0)
        held += tables[:, label]
    return tables


def _log_gamma(gen: np.random.Generator, alpha: float, shape: tuple[int, ...]) -> NDArray[np.float64]:
    # in logarithms: gammas of a small alpha underflow, and the clients with room could all be left without a share
    return np.log(gen.standard_gamma(alpha + 1, shape)) - gen.standard_exponential(shape) / alpha


def _shares(log: NDArray[np.float64], room: NDArray[np.bool_]) -> NDArray[np.float64]:
    room = room | ~room.any(axis=-1, keepdims=True)  # nobody has room only when no rows are left either
    log = np.where(room, log, -np.inf)
    share = np.exp(log - log.max(axis=-1, keepdims=True))
    return share / share.sum(axis=-1, keepdims=True)


def mixes(gen: np.random.Generator, sizes: Rows, clients: int, alpha: float) -> Rows:
    """Draws a class mix per client and fills clients of equal size from what is left of each class.

    sizes [C]; returns [C, K].
    """
    table, stock = np.zeros((len(sizes), clients), np.int64), sizes.copy()
    need = sizes.sum() // clients + (np.arange(clients) < sizes.sum() % clients)
    for client in gen.permutation(clients):  # late clients take what is left, so who is late is drawn too
        log = _log_gamma(gen, alpha, stock.shape)
        while need[client]:  # each turn fills the client or empties a class
            take = np.minimum(gen.multinomial(need[client], _shares(log, stock > 0)), stock)
            table[:, client] += take
            stock -= take
            need[client] -= take.sum()
    return table


def released(
    old: np.random.RandomState, piles: list[Rows], clients: int, alpha: float, cap: bool, least: int, retries: int
) -> tuple[list[Rows], int, int]:
    """Repeats the random calls of the released Dirichlet code, the shuffles of failed draws included where not known.

    piles: C arrays; returns K arrays in released order, the number of draws and the smallest client.
    """
    tries, found = (
        rng_checkpoints.skip(old, ([len(pile) for pile in piles], clients, alpha, cap, least), retries - 1),
        -1,
    )
    kept: tuple[list[Rows], list[Rows]] = ([], [])
    while tries < retries and found < least:
        tries += 1
        with np.errstate(invalid="ignore"):  # an underflowed share may be infinite; it is caught after the sum
            orders, cuts, smallest = released_once(old, piles, clients, alpha, cap)
        if smallest > found:
            found, kept = smallest, (orders, cuts)
    parts = zip(*[np.split(order, cut) for order, cut in zip(*kept)])
    rows = [np.concatenate(part) for part in parts]
    for row in rows:
        old.shuffle(row)
    return rows, tries, found


def released_once(
    old: np.random.RandomState, piles: list[Rows], clients: int, alpha: float, cap: bool
) -> tuple[list[Rows], list[Rows], int]:
    """One draw: each class's rows in their order, where it is cut, and the rows of the smallest client."""
    held, ends, orders, cuts = np.zeros(clients, np.int64), np.zeros(clients + 1, np.int64), [], []
    full, spread = sum(map(len, piles)) / clients, np.repeat(alpha, clients)
    for pile in piles:
        order = pile.copy()
        old.shuffle(order)
        share = old.dirichlet(spread)
        if cap:
            share *= held < full
        whole = share.sum()
        # 0, nan or infinite after underflow: the released cut then gives the class to the last client
        ends[1:] = (share / whole).cumsum() * len(order) if 0 < whole < np.inf else 0
        ends[-1] = len(order)
        held += ends[1:] - ends[:-1]
        orders.append(order)
        cuts.append(ends[1:-1].copy())
    return orders, cuts, int(held.min())


def qua(pick: Callable[[int], int], clients: int, per_client: int, classes: int) -> NDArray[np.bool_]:
    """Chooses classes per client: client number modulo C first, then random ones until enough differ.

    pick(n): a random number below n; returns [K, C].
    """
    holds = np.zeros((clients, classes), np.bool_)
    for client in range(clients):
        holds[client, client % classes] = True
        held = 1
        while held < per_client:
            label = pick(classes)
            held += not holds[client, label]
            holds[client, label] = True
    return holds


def covered(gen: np.random.Generator, holds: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Gives every class left without a client to one that swaps a class others hold too.

    holds [K, C], changed in place; needs K x per_client >= C.
    """
    for label in np.flatnonzero(~holds.any(axis=0)):
        spare = np.argwhere(holds & (holds.sum(axis=0) > 1))
        client, other = spare[gen.integers(len(spare))]
        holds[client, other], holds[client, label] = False, True
    return holds


def even(gen: np.random.Generator, clients: int, per_client: int, classes: int) -> NDArray[np.bool_]:
    """Deals classes so that each has equally many clients (or one more) and no client the same class twice.

    Returns [K, C]; needs per_client <= C.
    """
    deck = gen.permutation(classes)[np.arange(clients * per_client) % classes]
    table = np.zeros((clients, classes), np.int64)
    np.add.at(table, (np.repeat(np.arange(clients), per_client), gen.permutation(deck)), 1)
    while (table > 1).any():  # every swap below removes at least one double, and one is always possible
        client, label = np.argwhere(table > 1)[0]
        other = gen.choice(np.flatnonzero(table[:, label] == 0))
        swap = gen.choice(np.flatnonzero((table[other] > 1) | ((table[other] > 0) & (table[client] == 0))))
        table[[client, other], label] += [-1, 1]
        table[[client, other], swap] += [1, -1]
    return table > 0


def loads(gen: np.random.Generator, sizes: Rows, clients: int) -> Rows:
    """Deals whole groups to clients, largest first to the emptiest; as many clients as groups keep their order.

    sizes [G], all positive; returns the client of each group [G].
    """
    if clients == len(sizes):
        return np.arange(clients)
    load, owner = np.zeros(clients, np.int64), np.empty(len(sizes), np.int64)
    order = gen.permutation(len(sizes))
    for name in order[np.argsort(-sizes[order], kind="stable")]:
        owner[name] = load.argmin()
        load[owner[name]] += sizes[name]
    return owner


def chunks(holds: NDArray[np.bool_], piles: list[Rows]) -> list[Rows]:
    """Cuts every class into nearly equal runs for its holders, in client order.

    holds [K, C]; piles: C arrays in the order to cut; returns K arrays.
    """
    runs = [iter(np.array_split(pile, int(count))) for pile, count in zip(piles, holds.sum(axis=0))]
    return [np.concatenate([next(runs[label]) for label in np.flatnonzero(held)]) for held in holds]


def dealt(table: Rows, piles: list[Rows], pick: Callable[[int], int]) -> list[Rows]:
    """Cuts every class into equal shards in file order and gives each client one left of each label in its row.

    table [K, s] of labels; pick(n): a random number below n; returns K arrays.
    """
    shards: list[list[Rows]] = []
    for label, pile in enumerate(piles):
        many = int((table == label).sum())
        size = len(pile) // many
        left = pile[size * many :]  # the first shards get one each, from the end of the class
        shards.append([np.append(pile[n * size : (n + 1) * size], left[n : n + 1]) for n in range(many)])
    return [np.concatenate([shards[label].pop(int(pick(len(shards[label])))) for label in row]) for row in table]
