"""An attack problem: a client with a few smooth 8 x 8 images and DLG's net in double precision."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from unskew import models
from unskew.audits.problem import PixelRange, Problem
from unskew.audits.unrolled_training import ClientSecrets, UnrolledClient, all_rows_at_once
from unskew.base.tree import stack
from unskew.client.round import StepInputs
from unskew.protocol import method_registry
from unskew.protocol.work import Work
from unskew.wire.requests_and_replies import Received

CLASSES, DTYPE = 10, torch.float64


@dataclass(frozen=True)
class Victim:
    """The ground truth, and the problem that an attack gets."""

    x: Tensor  # [n, 1, 8, 8]
    y: Tensor
    secrets: ClientSecrets
    problem: Problem

    def psnr(self, x: Tensor) -> Tensor:
        """PSNR [R] in dB at range 1 of recovered rows [1, R, n, ...], averaged over the images."""
        error = (x[0] - self.x).square().flatten(2).mean(2)
        return (-10 * error.log10()).mean(1)

    @property
    def divided(self) -> Problem:
        """The same message for an attacker that divides it by -lr."""
        one = stack([all_rows_at_once(self.secrets, len(self.y))])
        return replace(self.problem, replay=self.problem.replay.as_one_gradient(), secrets=[one])  # type: ignore[attr-defined]


def images(n: int, seed: int = 5) -> Tensor:
    corners = torch.rand(n, 1, 3, 3, generator=torch.Generator().manual_seed(seed), dtype=DTYPE)
    return F.interpolate(corners, size=(8, 8), mode="bilinear", align_corners=True)


def victim(labels: tuple[int, ...] = (4,), steps: int = 1, seed: int = 0, **work: Any) -> Victim:
    """FedAvg's client after some steps on all of its rows."""
    n, shape = len(labels), (1, 8, 8)
    model = models.build("lenet", shape, CLASSES, seed, DTYPE)
    method = method_registry.create(method_registry.resolve("fedavg")).with_tensor_fields(torch.device("cpu"), DTYPE)
    done = Work(**{"batch": n, "lr": 0.1, "steps": steps} | work)
    replay = UnrolledClient(method, model, done, Received(model.initial, {}), "average", "weights", CLASSES)
    zero = torch.zeros((), dtype=torch.int64)
    batch = {"row": torch.arange(n), "w": torch.ones(n, dtype=DTYPE)}
    step_inputs = [StepInputs(batch, {}, {}, (zero + s, zero + s, zero)) for s in range(steps)]
    secrets = ClientSecrets(torch.tensor(float(n), dtype=DTYPE), step_inputs, {})
    x, y = images(n), torch.tensor(labels)
    target = {name: t[None] for name, t in replay(secrets, x, y).items()}
    box = PixelRange(torch.zeros(1, 1, 1, dtype=DTYPE), torch.ones(1, 1, 1, dtype=DTYPE))
    return Victim(
        x, y, secrets, Problem(replay, model, target, [stack([secrets])], [1.0], [n], shape, CLASSES, None, box)
    )
