"""A federated loop as a practitioner writes it well: data on the device, no DataLoader, foreach SGD, cudnn.benchmark.

One model object is reused for every client; the weighted mean is kept on the device; nothing synchronises in a round.
"""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from workloads import Workload

from unskew.core.per_client import PerClient


class Bare:
    """FedAvg, and MOON where the workload asks for it; `rows` are on the device."""

    def __init__(
        self, load: Workload, rows: PerClient[Tensor], x: Tensor, y: Tensor, device: str, precision: str
    ) -> None:
        self.load, self.rows, self.x, self.y = load, rows, x.to(device), y.to(device)
        self.device, self.half = torch.device(device), precision == "bf16"
        self.model = load.net().to(device).train()
        self.globally = {k: v.clone() for k, v in self.model.state_dict().items()}
        self.previous: dict[int, dict[str, Tensor]] = {}
        self.teacher, self.past = (copy.deepcopy(self.model).eval().requires_grad_(False) for _ in range(2))
        mean, std = (torch.tensor(v, device=device).view(3, 1, 1) for v in ((0.49, 0.48, 0.45), (0.25, 0.24, 0.26)))
        self.normalise = lambda x: (x.float() / 255 - mean) / std

    def round(self, clients: list[int]) -> None:
        total = {k: torch.zeros_like(v) for k, v in self.globally.items()}
        rows = sum(len(self.rows[k]) for k in clients)
        for k in clients:
            self.train(k)
            for name, value in self.model.state_dict().items():
                if value.is_floating_point():
                    total[name].add_(value, alpha=len(self.rows[k]) / rows)
                else:
                    total[name].copy_(value)
        self.globally = total

    def train(self, k: int) -> None:
        local, moon = self.load.local, self.load.method == "moon"
        self.model.load_state_dict(self.globally)
        if moon:
            self.teacher.load_state_dict(self.globally)
            self.past.load_state_dict(self.previous.get(k, self.globally))
        sgd = torch.optim.SGD(
            self.model.parameters(), local["lr"], local["momentum"], weight_decay=local["weight_decay"], foreach=True
        )
        rows, batch = self.rows[k], local["batch"]
        for _ in range(local["epochs"]):
            order = rows[torch.randperm(len(rows), device=self.device)]
            for picked in order.split(batch):
                sgd.zero_grad(set_to_none=True)
                with torch.autocast(self.device.type, torch.bfloat16, enabled=self.half):
                    loss = self.loss(self.batch(self.x[picked]), self.y[picked], moon)
                loss.backward()
                sgd.step()
        if moon:
            self.previous[k] = {name: value.clone() for name, value in self.model.state_dict().items()}

    def loss(self, x: Tensor, y: Tensor, moon: bool) -> Tensor:
        if not moon:
            return F.cross_entropy(self.model(x), y)
        z = self.model[:-1](x)
        with torch.no_grad():
            near, far = self.teacher[:-1](x), self.past[:-1](x)
        pull, push = F.cosine_similarity(z, near) / 0.5, F.cosine_similarity(z, far) / 0.5
        return F.cross_entropy(self.model[-1](z), y) + 0.1 * F.softplus(push - pull).mean()

    def batch(self, x: Tensor) -> Tensor:
        how = self.load.augment
        if not how:
            return self.normalise(x)
        n, side = len(x), x.shape[-1]
        offset = torch.randint(0, 2 * how["crop"] + 1, (2, n, 1), device=x.device)
        flip = torch.rand(n, 1, device=x.device) < 0.5
        at = torch.arange(side, device=x.device)
        rows, columns = at + offset[0], torch.where(flip, side - 1 - at, at) + offset[1]
        x = F.pad(x, (how["crop"],) * 4)
        x = x[torch.arange(n, device=x.device)[:, None, None], :, rows[:, :, None], columns[:, None]]
        x = self.normalise(x.permute(0, 3, 1, 2))
        centre = torch.randint(0, side, (2, n, 1), device=x.device)
        inside = ((at - centre + how["cutout"] // 2) >= 0) & ((at - centre + how["cutout"] // 2) < how["cutout"])
        return x * ~(inside[0][:, None, :, None] & inside[1][:, None, None, :])


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())
