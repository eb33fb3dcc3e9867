"""A federated loop as a practitioner writes it well: data on the device, no DataLoader, foreach SGD.

`cudnn.benchmark` is on if all clients have equally many rows, so that there are few batch sizes (systems.py). One model
object is reused for every client; the weighted mean is kept on the device; nothing synchronises in a round.
"""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from workloads import Workload

from unskew.base.per_client import PerClient

KNOWN_METHODS = ("fedavg", "fedlmd")


class BareTrainer:
    """FedAvg or FedLMD, as in the workload; `rows` are on the device."""

    def __init__(
        self, load: Workload, rows: PerClient[Tensor], x: Tensor, y: Tensor, device: str, precision: str
    ) -> None:
        self.load, self.rows, self.x, self.y = load, rows, x.to(device), y.to(device)
        self.device, self.half = torch.device(device), precision == "bf16"
        self.model = load.net().to(device).train()
        self.global_state = {k: v.clone() for k, v in self.model.state_dict().items()}
        self.distils = load.method == "fedlmd"
        self.minority: dict[int, Tensor] = {}
        self.teacher = copy.deepcopy(self.model).eval().requires_grad_(False)
        mean, std = (torch.tensor(v, device=device).view(3, 1, 1) for v in ((0.49, 0.48, 0.45), (0.25, 0.24, 0.26)))
        self.normalise = lambda x: (x.float() / 255 - mean) / std

    def round(self, clients: list[int]) -> None:
        total = {k: torch.zeros_like(v) for k, v in self.global_state.items()}
        rows = sum(len(self.rows[k]) for k in clients)
        if self.distils:
            self.teacher.load_state_dict(self.global_state)
        for k in clients:
            self.train(k)
            for name, value in self.model.state_dict().items():
                if value.is_floating_point():
                    total[name].add_(value, alpha=len(self.rows[k]) / rows)
                else:
                    total[name].copy_(value)
        self.global_state = total

    def train(self, k: int) -> None:
        local = self.load.local
        self.model.load_state_dict(self.global_state)
        sgd = torch.optim.SGD(
            self.model.parameters(), local["lr"], local["momentum"], weight_decay=local["weight_decay"], foreach=True
        )
        rows, batch = self.rows[k], local["batch"]
        for _ in range(local["epochs"]):
            order = rows[torch.randperm(len(rows), device=self.device)]
            for picked in order.split(batch):
                sgd.zero_grad(set_to_none=True)
                with torch.autocast(self.device.type, torch.bfloat16, enabled=self.half):
                    loss = self.loss(self.batch(self.x[picked]), self.y[picked], k)
                loss.backward()
                sgd.step()

    def minority_labels(self, k: int) -> Tensor:
        """A mask of the labels that are not a client's majority labels, computed once."""
        if k not in self.minority:
            counts = (self.y[self.rows[k]][:, None] == torch.arange(10, device=self.device)).sum(0)
            self.minority[k] = counts * 10 <= len(self.rows[k])
        return self.minority[k]

    def loss(self, x: Tensor, y: Tensor, k: int) -> Tensor:
        logits = self.model(x)
        loss = F.cross_entropy(logits, y)
        if not self.distils:
            return loss
        with torch.no_grad():
            teacher = self.teacher(x)
        others = torch.arange(10, device=y.device) != y[:, None]
        distilled = others & self.minority_labels(k)
        teacher_log_probs = teacher.masked_fill(~distilled, -1e9).log_softmax(1)
        student_log_probs = logits.masked_fill(~others, -1e9).log_softmax(1)
        return loss + ((teacher_log_probs.exp() * (teacher_log_probs - student_log_probs)) * distilled).sum(1).mean()

    def batch(self, x: Tensor) -> Tensor:
        options = self.load.augment
        if not options:
            return self.normalise(x)
        n, side = len(x), x.shape[-1]
        offset = torch.randint(0, 2 * options["crop"] + 1, (2, n, 1), device=x.device)
        flip = torch.rand(n, 1, device=x.device) < 0.5
        positions = torch.arange(side, device=x.device)
        rows, columns = positions + offset[0], torch.where(flip, side - 1 - positions, positions) + offset[1]
        x = F.pad(x, (options["crop"],) * 4)
        x = x[torch.arange(n, device=x.device)[:, None, None], :, rows[:, :, None], columns[:, None]]
        x = self.normalise(x.permute(0, 3, 1, 2))
        centre = torch.randint(0, side, (2, n, 1), device=x.device)
        into_hole = positions - centre + options["cutout"] // 2
        inside = (into_hole >= 0) & (into_hole < options["cutout"])
        return x * ~(inside[0][:, None, :, None] & inside[1][:, None, None, :])


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())
