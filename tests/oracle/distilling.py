"""A worked example for distillation methods, and checks that every such method must pass."""

from typing import Any

import torch
from toolbox import equal, federation, last_model, logits_view, run_rounds
from torch import Tensor

from unskew.protocol.part import Part

Z = torch.tensor([[2.0, 1.0, 0.0, -1.0]], dtype=torch.float64)  # local logits; cross-entropy with label 0 is 0.440190
Z_G = torch.tensor([[0.5, 1.5, 1.0, 0.0]], dtype=torch.float64)  # the received model's
Y = torch.tensor([0])
TINY = 5e-7  # the expected numbers are rounded to six decimals


def counts_of(majority: set[int], classes: int = 4) -> Tensor:
    """Label counts with exactly these majority classes."""
    return torch.tensor([10.0 if c in majority else 1.0 for c in range(classes)], dtype=torch.float64)


def term(part: Part, student: Tensor = Z, teacher: Tensor = Z_G, y: Tensor = Y, **extra: Any) -> Tensor:
    """The part's loss on given logits."""
    loss = part.loss(logits_view(student, teacher, y, **extra))
    assert loss is not None
    return loss


def random_logits(rows: int, classes: int = 4, seed: int = 0) -> Tensor:
    return 3 * torch.randn(rows, classes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def check_never_negative(part: Part, **extra: Any) -> None:
    for seed in range(20):
        z, z_g = random_logits(5, seed=seed), random_logits(5, seed=99)
        assert term(part, z, z_g, torch.arange(5) % 4, **extra) >= -1e-12


def check_gradients(part: Part, **extra: Any) -> None:
    """Only the local logits get a gradient, the teacher gets none; it agrees with finite differences."""
    z, z_g = random_logits(3).requires_grad_(), random_logits(3, seed=1).requires_grad_()
    y = torch.tensor([0, 1, 3])
    gradient, teacher_gradient = torch.autograd.grad(term(part, z, z_g, y, **extra), (z, z_g), allow_unused=True)
    assert teacher_gradient is None
    assert gradient.abs().max() > 1e-3
    torch.autograd.gradcheck(lambda z: term(part, z, z_g, y, **extra), z)


def check_filler_rows_are_ignored(part: Part, **extra: Any) -> None:
    """Two of four rows have weight 0: the loss is the mean over the other two, and the filler rows get no gradient."""
    z, z_g, y = random_logits(4).requires_grad_(), random_logits(4, seed=1), torch.tensor([0, 1, 2, 3])
    w = torch.tensor([1.0, 0.0, 1.0, 0.0], dtype=torch.float64)
    loss = term(part, z, z_g, y, w=w, **extra)
    torch.testing.assert_close(loss, term(part, z[::2], z_g[::2], y[::2], **extra))
    (gradient,) = torch.autograd.grad(loss, z)
    assert not gradient[1::2].any()


def check_strength_zero_is_fedavg(method: str, **strengths: float) -> None:
    for precision in ("float32", "float64"):
        model = last_model(federation([{method: strengths}], precision=precision), 3)
        assert equal(model, last_model(federation("fedavg", precision=precision), 3))


def check_traffic_and_state_equal_fedavg(method: str) -> None:
    """The method sends as many bytes as FedAvg and keeps no state between rounds."""
    fed = federation(method)
    ((snap, _),), ((plain, _),) = run_rounds(fed, 1), run_rounds(federation("fedavg"), 1)
    assert (snap.ledger.bytes_up, snap.ledger.bytes_down) == (plain.ledger.bytes_up, plain.ledger.bytes_down)
    assert not snap.parts
    assert not any(fed.store.entries.values())
