"""Rounds of pfl-research on a workload, in a process of its own, because it may need another Python environment.

Reads the task as JSON from standard input and writes a JSON line per round, then one about the whole. As kind to pfl as
we know how: rows are prepared and on the device before the clock starts; only the first round, which does not count, is
evaluated.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from nets import MEAN, STD, pfl_cnn, pixels
from torch import Tensor, nn


def ask(python: str, task: dict[str, Any]) -> dict[str, Any]:
    """Run this file with another interpreter: milliseconds of every round, peak memory, versions; or why it did not."""
    environment = {"CUDA_VISIBLE_DEVICES": ""} if task["device"] == "cpu" else {}
    answer = subprocess.run(
        ["env", *(f"{k}={v}" for k, v in environment.items()), python, str(Path(__file__))],
        input=json.dumps(task),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    lines = [json.loads(line) for line in answer.stdout.splitlines() if line.startswith("{")]
    if answer.returncode or not lines:
        return {"skipped": f"{python} ended with code {answer.returncode}"}
    return {"ms": [line["ms"] for line in lines if "ms" in line]} | lines[-1]


class Net(nn.Module):
    """The net with the two functions that pfl asks for."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = pfl_cnn()

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        self.train()
        return nn.functional.cross_entropy(self(x), y)

    @torch.no_grad()
    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Any]:
        from pfl.metrics import Weighted

        self.eval()
        return {"loss": Weighted(nn.functional.cross_entropy(self(x), y, reduction="sum").item(), len(y))}


def play(task: dict[str, Any]) -> None:
    """Every round of the task through pfl's own loop, told on standard output."""
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.aggregate.weighting import WeightByDatapoints
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
    from pfl.model.pytorch import PyTorchModel

    cuda, local = task["device"] != "cpu", task["local"]
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = task["precision"] == "tf32"
    wait = torch.cuda.synchronize if cuda else (lambda: None)
    rows = {user: torch.tensor(mine) for user, mine in task["rows"].items()}
    x, y = (column.to(task["device"]) for column in pixels(task["images"]))
    mean, std = (torch.tensor(v, device=x.device).view(3, 1, 1) for v in (MEAN, STD))
    users = {user: ((x[mine].float() / 255 - mean) / std, y[mine]) for user, mine in rows.items()}
    cohorts = task["cohorts"]
    turns = chain.from_iterable(cohorts)

    class Clock(TrainingProcessCallback):
        began = 0.0

        def on_train_begin(self, *, model: Any) -> Any:
            wait()
            self.began = time.perf_counter()
            return super().on_train_begin(model=model)

        def after_central_iteration(self, aggregate_metrics: Any, model: Any, *, central_iteration: int) -> Any:
            wait()
            now = time.perf_counter()
            sys.stdout.write(json.dumps({"ms": 1000 * (now - self.began)}) + "\n")
            self.began = time.perf_counter()
            return super().after_central_iteration(aggregate_metrics, model, central_iteration=central_iteration)

    data = FederatedDataset(lambda user: Dataset(users[user], user_id=user), lambda: str(next(turns)))
    net = Net()
    half = {"amp_dtype": torch.bfloat16} if task["precision"] == "bf16" else {}
    server = torch.optim.SGD(net.parameters(), 1.0)
    model = PyTorchModel(net, torch.optim.SGD, server, **half)
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=len(cohorts),
            evaluation_frequency=len(cohorts) + 1,
            train_cohort_size=len(cohorts[0]),
            val_cohort_size=0,
        ),
        SimulatedBackend(data, data, [WeightByDatapoints()]),
        model,
        NNTrainHyperParams(
            local_num_epochs=local["epochs"], local_learning_rate=local["lr"], local_batch_size=local["batch"]
        ),
        NNEvalHyperParams(local_batch_size=None),
        [Clock()],
    )


def main() -> None:
    task = json.loads(sys.stdin.read())
    try:
        import pfl
    except ImportError as error:
        sys.stdout.write(json.dumps({"skipped": f"pfl is not installed for {sys.executable} ({error})"}) + "\n")
        return
    play(task)
    peak = torch.cuda.max_memory_allocated() / 2**20 if task["device"] != "cpu" else float("nan")
    whole = {"peak_mem_mib": peak, "versions": f"pfl {pfl.__version__} torch {torch.__version__}"}
    sys.stdout.write(json.dumps(whole) + "\n")


if __name__ == "__main__":
    main()
