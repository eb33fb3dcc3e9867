"""What the oracles of all distilling methods share: the spec's example, and what each of them must hold."""

from typing import Any

import torch
from toolbox import equal, federation, last_model, logits_view, played
from torch import Tensor

from unskew.protocol.part import Part

Z = torch.tensor([[2.0, 1.0, 0.0, -1.0]], dtype=torch.float64)  # local logits; cross-entropy with label 0 is 0.440190
Z_G = torch.tensor([[0.5, 1.5, 1.0, 0.0]], dtype=torch.float64)  # the received model's
Y = torch.tensor([0])
TINY = 5e-7  # the spec prints six decimals


def counts_of(majority: set[int], classes: int = 4) -> Tensor:
    """Label counts with exactly these majority labels."""
    return torch.tensor([10.0 if c in majority else 1.0 for c in range(classes)], dtype=torch.float64)


def term(part: Part, student: Tensor = Z, teacher: Tensor = Z_G, y: Tensor = Y, **own: Any) -> Tensor:
    """The part's loss on given logits."""
    loss = part.loss(logits_view(student, teacher, y, **own))
    assert loss is not None
    return loss


def random_logits(rows: int, classes: int = 4, seed: int = 0) -> Tensor:
    return 3 * torch.randn(rows, classes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def check_never_negative(part: Part, **own: Any) -> None:
    for seed in range(20):
        assert term(part, random_logits(5, seed=seed), random_logits(5, seed=99), torch.arange(5) % 4, **own) >= -1e-12


def check_gradients(part: Part, **own: Any) -> None:
    """The local logits are pulled, the teacher is not, and both ways by finite differences."""
    z, z_g = random_logits(3).requires_grad_(), random_logits(3, seed=1).requires_grad_()
    y = torch.tensor([0, 1, 3])
    pulled, teacher = torch.autograd.grad(term(part, z, z_g, y, **own), (z, z_g), allow_unused=True)
    assert teacher is None
    assert pulled.abs().max() > 1e-3
    torch.autograd.gradcheck(lambda z: term(part, z, z_g, y, **own), z)


def check_filler_counts_nothing(part: Part, **own: Any) -> None:
    """Four rows of which two weigh 0: the mean of the others, and no gradient from these."""
    z, z_g, y = random_logits(4).requires_grad_(), random_logits(4, seed=1), torch.tensor([0, 1, 2, 3])
    w = torch.tensor([1.0, 0.0, 1.0, 0.0], dtype=torch.float64)
    loss = term(part, z, z_g, y, w=w, **own)
    torch.testing.assert_close(loss, term(part, z[::2], z_g[::2], y[::2], **own))
    (gradient,) = torch.autograd.grad(loss, z)
    assert not gradient[1::2].any()


def check_strength_zero_is_fedavg(method: str, **zero: float) -> None:
    for precision in ("float32", "float64"):
        ours = last_model(federation([{method: zero}], precision=precision), 3)
        assert equal(ours, last_model(federation("fedavg", precision=precision), 3))


def check_traffic_is_that_of_fedavg(method: str) -> None:
    """And nothing is kept between rounds."""
    fed = federation(method)
    ((ours, _),), ((plain, _),) = played(fed, 1), played(federation("fedavg"), 1)
    assert (ours.ledger.bytes_up, ours.ledger.bytes_down) == (plain.ledger.bytes_up, plain.ledger.bytes_down)
    assert not ours.parts
    assert not any(fed.store.entries.values())
