"""Context identification (FLea 2024): does the data that a client shares reveal where its pictures were taken?

    (1)  the context is a marker: a square of the first channel at its brightest, 5 of 32 pixels wide, near a corner
    (2)  items made as the clients make theirs: half from rows that all carry the marker, half from rows without it
    (3)  a net of four linear layers, 512-128-32-2 with ReLU, trained on n items: cross-entropy, Adam 0.001
    (4)  accuracy on items of the run's test rows, half of them marked, against n

Paper: Xia, Ghosh, Qiu, Mascolo, "FLea", KDD 2024, appendix D; anchors there: 90 % from about 300 of FedMix's means and
from about 10,000 of FLea's features at c = 0.4. Either all rows of a mean carry the marker or none does, because a
client has one context.
Differs: the paper specifies only four linear layers; widths, steps, batches of 64 and standardised entries are chosen
here. Mean and scale are those of the items to classify, which the attacker sees without labels. The marker grows with
the picture. A failed attack proves nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unskew.audits.problem import Progress, no_progress
from unskew.audits.replayed_run import NoAttackError
from unskew.audits.shared_data import SharedArtefact

SIZES = (30, 100, 300, 1000, 3000, 10000)  # numbers of items to train on
WIDTHS = (512, 128, 32)
BATCH, RATE = 64, 1e-3
MAX_TEST_ITEMS = 1000


class ContextResult(NamedTuple):
    """Accuracy in percent on the test items after training on so many items."""

    items: int
    accuracy: float


def add_marker(x: Tensor) -> Tensor:
    """(1), of stored rows [N, C, H, W]."""
    side, first = -(-5 * x.shape[-1] // 32), x.shape[-1] // 16
    with_marker = x.clone()
    with_marker[:, 0, first : first + side, first : first + side] = 255 if x.dtype == torch.uint8 else 1
    return with_marker


def context_attack(
    shared: SharedArtefact, steps: int, seed: int, progress: Progress = no_progress
) -> list[ContextResult]:
    """Accuracy for every number of items in SIZES for which the attacker has enough rows."""
    replayed = shared.replayed
    if not replayed.pixels:
        raise NoAttackError("rows are not images, so they cannot carry a marker")
    client_rows, group = replayed.context.client_rows, shared.rows.shape[1]
    own, test_x = shared.attacker_rows(seed), replayed.context.splits["test"].x
    sizes = [n for n in SIZES if n * group <= len(own)] or [len(own) // group]
    tested = min(MAX_TEST_ITEMS, len(test_x) // group)
    if sizes[0] < 2 or tested < 2:
        raise NoAttackError("too few rows to train a context classifier")
    items = _make_marked_items(shared, client_rows.x, own[: sizes[-1] * group].view(-1, group))
    test = _make_marked_items(shared, test_x, torch.arange(tested * group).view(-1, group))
    mean, scale = test.mean(0), test.std(0).clamp_min(1e-3)  # the attacker sees the test items, but not their labels
    items, test = (items - mean) / scale, (test - mean) / scale
    results = []
    for number, n in enumerate(sizes):

        def report(done: int, total: int, number: int = number) -> None:
            progress(number * total + done, len(sizes) * total)

        results.append(ContextResult(n, _train_and_test(items[:n], test, steps, seed, report)))
    return results


def _make_marked_items(shared: SharedArtefact, x: Tensor, pick: Tensor) -> Tensor:
    """(2): the rows of every second pick carry the marker."""
    rows = torch.unique(pick)
    position = torch.searchsorted(rows, pick)
    unmarked = x[rows.to(x.device)]
    both = torch.cat([unmarked, add_marker(unmarked)])
    return shared.make_items(both, position + len(rows) * (torch.arange(len(pick)) % 2)[:, None]).flatten(1)


def _train_and_test(items: Tensor, test: Tensor, steps: int, seed: int, progress: Progress) -> float:
    """(3) and (4), in percent."""
    net, generator = _build_net(items.shape[1], seed).to(items), torch.Generator().manual_seed(seed)
    optimiser = torch.optim.Adam(net.parameters(), RATE)
    for step in range(steps):
        batch = torch.randint(len(items), (min(BATCH, len(items)),), generator=generator).to(items.device)
        loss = F.cross_entropy(net(items[batch]), batch % 2)
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()
        progress(step + 1, steps)
    with torch.no_grad():
        predicted = net(test).argmax(1)
    return 100 * float((predicted == torch.arange(len(test), device=test.device) % 2).float().mean())


def _build_net(entries: int, seed: int) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers: list[nn.Module] = []
        for width in WIDTHS:
            layers += [nn.Linear(entries, width), nn.ReLU()]
            entries = width
        return nn.Sequential(*layers, nn.Linear(entries, 2))
