"""Context identification (FLea 2024): does what a client shares tell where its pictures were taken?

    (1)  the context is a marker: a square of the first channel at its brightest, 5 of 32 pixels wide, near a corner
    (2)  items of rows that all carry it, and as many of rows that do not, made as the clients make theirs
    (3)  a net of four linear layers, 512-128-32-2 with ReLU, learns to tell them by n items: cross-entropy, Adam 0.001
    (4)  accuracy on items of the run's test rows, half of them marked, against n

Paper: Xia, Ghosh, Qiu, Mascolo, "FLea", KDD 2024, appendix D; anchors there: 90 % from about 300 of FedMix's means and
from about 10,000 of FLea's features at c = 0.4. A mean is of rows that all carry the marker: a client has one context.
Differs: the paper says four linear layers and no more; widths, steps, batches of 64 and items standardised by entry
are ours, by mean and scale of the items he is to tell apart, which he sees without their labels. The marker grows with
the picture. An attack that fails proves nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unskew.audit.problem import Progress, quiet
from unskew.audit.replayed_run import NoAttackError
from unskew.audit.shared_data import SharedArtefact

SIZES = (30, 100, 300, 1000, 3000, 10000)
WIDTHS = (512, 128, 32)
BATCH, RATE = 64, 1e-3
TESTED = 1000  # items


class ContextResult(NamedTuple):
    """Percent of the test items whose context was named, after learning from n items."""

    items: int
    accuracy: float


def marked(x: Tensor) -> Tensor:
    """(1), of stored rows [N, C, H, W]."""
    side, first = -(-5 * x.shape[-1] // 32), x.shape[-1] // 16
    with_marker = x.clone()
    with_marker[:, 0, first : first + side, first : first + side] = 255 if x.dtype == torch.uint8 else 1
    return with_marker


def context(shared: SharedArtefact, steps: int, seed: int, progress: Progress = quiet) -> list[ContextResult]:
    """Accuracy for every number of items that the rows allow."""
    world = shared.world
    if not world.pixels:
        raise NoAttackError("rows are no pictures, so that there is nothing to mark")
    client_rows, group = world.context.client_rows, shared.rows.shape[1]
    own, test_x = shared.others(seed), world.context.splits["test"][0]
    sizes = [n for n in SIZES if n * group <= len(own)] or [len(own) // group]
    tested = min(TESTED, len(test_x) // group)
    if sizes[0] < 2 or tested < 2:
        raise NoAttackError("too few rows to learn a context from")
    items = _items(shared, client_rows.x, own[: sizes[-1] * group].view(-1, group))
    test = _items(shared, test_x, torch.arange(tested * group).view(-1, group))
    mean, scale = test.mean(0), test.std(0).clamp_min(1e-3)  # of what he sees pass by, without labels
    items, test = (items - mean) / scale, (test - mean) / scale
    found = []
    for number, n in enumerate(sizes):

        def told(done: int, total: int, number: int = number) -> None:
            progress(number * total + done, len(sizes) * total)

        found.append(ContextResult(n, _learned(items[:n], test, steps, seed, told)))
    return found


def _items(shared: SharedArtefact, x: Tensor, pick: Tensor) -> Tensor:
    """(2): the rows of every second pick carry the marker."""
    rows = torch.unique(pick)
    place = torch.searchsorted(rows, pick)
    plain = x[rows.to(x.device)]
    both = torch.cat([plain, marked(plain)])
    return shared.made(both, place + len(rows) * (torch.arange(len(pick)) % 2)[:, None]).flatten(1)


def _learned(items: Tensor, test: Tensor, steps: int, seed: int, progress: Progress) -> float:
    """(3) and (4), in percent."""
    net, generator = _net(items.shape[1], seed).to(items), torch.Generator().manual_seed(seed)
    optimiser = torch.optim.Adam(net.parameters(), RATE)
    for step in range(steps):
        some = torch.randint(len(items), (min(BATCH, len(items)),), generator=generator).to(items.device)
        loss = F.cross_entropy(net(items[some]), some % 2)
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()
        progress(step + 1, steps)
    with torch.no_grad():
        named = net(test).argmax(1)
    return 100 * float((named == torch.arange(len(test), device=test.device) % 2).float().mean())


def _net(entries: int, seed: int) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers: list[nn.Module] = []
        for width in WIDTHS:
            layers += [nn.Linear(entries, width), nn.ReLU()]
            entries = width
        return nn.Sequential(*layers, nn.Linear(entries, 2))
