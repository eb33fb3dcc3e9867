"""FedAvg of a recipe in plain PyTorch, to check the package's accuracy: one client after another, without padding of
batches, with `torch.optim` and an independent augmentation. Split, initial weights and participants are the recipe's.

    python benchmarks/plain.py flea-cifar10 --rounds 28 --out results/flea/plain.csv

It supports integer images, crop and flip, Adam and SGD. OUT has a line for each round: round, accuracy in %.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import unskew
from unskew.models import ZOO
from unskew.protocol.work import Work
from unskew.runner.prepare_run import prepare

ImageTransform = Callable[[Tensor], Tensor]


def augment(x: Tensor, pad: int, flip: bool) -> Tensor:
    """Random crops of padded images, flipped with probability 1/2."""
    n, side = len(x), x.shape[-1]
    offset = torch.randint(0, 2 * pad + 1, (n, 2), device=x.device)
    positions = torch.arange(side, device=x.device).expand(n, side)
    mirrored = (torch.rand(n, 1, device=x.device) < 0.5) & flip
    rows, columns = positions + offset[:, :1], torch.where(mirrored, side - 1 - positions, positions) + offset[:, 1:]
    image_index = torch.arange(n, device=x.device)[:, None, None]
    return F.pad(x, (pad,) * 4)[image_index, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def train(net: nn.Module, x: Tensor, y: Tensor, work: Work, prepare_images: ImageTransform) -> None:
    """One client's epochs. A last batch of a single row is skipped, because BatchNorm needs a variance."""
    if work.optimiser == "adam":
        optimiser: torch.optim.Optimizer = torch.optim.Adam(net.parameters(), work.lr, betas=work.betas)
    else:
        optimiser = torch.optim.SGD(net.parameters(), work.lr, work.momentum, weight_decay=work.weight_decay)
    for _ in range(work.epochs or 1):
        for picked in torch.randperm(len(x), device=x.device).split(work.batch):
            if len(picked) > 1:
                optimiser.zero_grad()
                F.cross_entropy(net(prepare_images(x[picked])), y[picked]).backward()
                optimiser.step()


@torch.no_grad()
def accuracy(net: nn.Module, x: Tensor, y: Tensor, prepare_images: ImageTransform) -> float:
    net.eval()
    correct = sum(int((net(prepare_images(a)).argmax(1) == b).sum()) for a, b in zip(x.split(1000), y.split(1000)))
    net.train()
    return 100 * correct / len(x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("overrides", nargs="*", help="key=value, as for `unskew run`")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    fixed_overrides = ["method=fedavg", "device=cpu", "engine.name=loop", "engine.workers=1"]
    experiment = unskew.load_recipe(args.recipe, [*args.overrides, *fixed_overrides])[1]
    prepared = prepare(experiment)
    federation, dataset = prepared.federation, prepared.dataset
    source, work_at = federation.engine.context.client_rows, federation.task.work_at
    federation.engine.close()
    mean, std = (torch.tensor(v, device=args.device).view(-1, 1, 1) for v in (dataset.mean, dataset.std))
    x, y, test_x, test_y = (t.to(args.device) for split in (dataset.train, dataset.test) for t in (split.x, split.y))

    def normalise(images: Tensor) -> Tensor:
        return (images.float() / 255 - mean) / std

    def augment_and_normalise(images: Tensor) -> Tensor:
        return normalise(augment(images, experiment.data.augment.crop, experiment.data.augment.flip))

    torch.manual_seed(experiment.seed)
    net = ZOO[federation.model.name](tuple(x.shape[1:]), len(dataset.classes)).to(args.device)
    net.load_state_dict(federation.model.initial, strict=False)  # all but BatchNorm's count of batches
    global_state = {k: v.clone() for k, v in net.state_dict().items()}
    with args.out.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["round", "accuracy"])
        for t in range(1, args.rounds + 1):
            clients = federation.sampling.sampled(t)
            total = {k: torch.zeros_like(v, dtype=torch.float64) for k, v in global_state.items()}
            rows = sum(len(source.index[k]) for k in clients)
            for k in clients:
                net.load_state_dict(global_state)
                client_rows = source.index[k].to(args.device)
                train(net, x[client_rows], y[client_rows], work_at(t), augment_and_normalise)
                for name, value in net.state_dict().items():
                    total[name] += value.double() * (len(client_rows) / rows)
            global_state = {k: v.to(global_state[k].dtype) for k, v in total.items()}
            net.load_state_dict(global_state)
            table.writerow([t, f"{accuracy(net, test_x, test_y, normalise):.2f}"])
            file.flush()


if __name__ == "__main__":
    main()
