"""Rounds of pfl-research on a workload, in a separate process, because it may need another Python environment.

The first line of its standard input is the task, every further line a round's users, all as JSON; it answers each. The
measurement favours pfl where possible: rows are prepared and on the device before the clock starts, and only the first
round, which does not count, is evaluated.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import Any

import torch
from nets import MEAN, STD, pfl_cnn, pixels
from torch import Tensor, nn

FOREVER = 10**9


class SkippedError(Exception):
    """The reason why a system cannot be measured."""


class Pfl:
    """Runs rounds of pfl in another process."""

    padding = 0.0

    def __init__(self, python: str, task: dict[str, Any], cohorts: Any) -> None:
        environment = {"CUDA_VISIBLE_DEVICES": ""} if task["device"] == "cpu" else {}
        command = ["env", *(f"{k}={v}" for k, v in environment.items()), python, str(Path(__file__))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._cohorts, self._round = cohorts, 0
        self.versions, self.peak = self._request(task)["versions"], float("nan")

    def __call__(self) -> None:
        self._round += 1
        self.peak = self._request(self._cohorts(self._round))["peak_mem_mib"]

    def skip(self, rounds: int) -> None:
        """Skip rounds of the plan."""
        self._round += rounds

    def close(self) -> None:
        self._process.communicate()

    def _request(self, message: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # handled below
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("{"):  # other lines are printed by pfl
                answer = json.loads(line)
                if "skipped" in answer:
                    raise SkippedError(answer["skipped"])
                return answer
        raise SkippedError(f"its process ended with code {self._process.wait()}")


class Net(nn.Module):
    """The net with the two methods that pfl requires."""

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


def run_rounds(task: dict[str, Any]) -> None:
    """Run a round of pfl's own loop for every input line."""
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
    rows = {user: torch.tensor(indices) for user, indices in task["rows"].items()}
    x, y = (column.to(task["device"]) for column in pixels(task["images"]))
    mean, std = (torch.tensor(v, device=x.device).view(3, 1, 1) for v in (MEAN, STD))
    users = {user: ((x[indices].float() / 255 - mean) / std, y[indices]) for user, indices in rows.items()}
    user_queue = deque[str]()

    class RoundCallback(TrainingProcessCallback):
        """Waits for the users of a round, and reports its end."""

        def on_train_begin(self, *, model: Any) -> Any:
            self.read_users()
            return super().on_train_begin(model=model)

        def after_central_iteration(self, aggregate_metrics: Any, model: Any, *, central_iteration: int) -> Any:
            if cuda:
                torch.cuda.synchronize()
            peak = torch.cuda.max_memory_allocated() / 2**20 if cuda else float("nan")
            reply({"peak_mem_mib": peak})
            _, metrics = super().after_central_iteration(aggregate_metrics, model, central_iteration=central_iteration)
            return not self.read_users(), metrics

        def read_users(self) -> bool:
            line = sys.stdin.readline()
            user_queue.extend(str(user) for user in json.loads(line or "[]"))
            return bool(line)

    data = FederatedDataset(lambda user: Dataset(users[user], user_id=user), user_queue.popleft)
    net = Net()
    half = {"amp_dtype": torch.bfloat16} if task["precision"] == "bf16" else {}
    server = torch.optim.SGD(net.parameters(), 1.0)
    model = PyTorchModel(net, torch.optim.SGD, server, **half)
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=FOREVER,
            evaluation_frequency=FOREVER,
            train_cohort_size=task["users"],
            val_cohort_size=0,
        ),
        SimulatedBackend(data, data, [WeightByDatapoints()]),
        model,
        NNTrainHyperParams(
            local_num_epochs=local["epochs"], local_learning_rate=local["lr"], local_batch_size=local["batch"]
        ),
        NNEvalHyperParams(local_batch_size=None),
        [RoundCallback()],
    )


def reply(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main() -> None:
    task = json.loads(sys.stdin.readline())
    try:
        import pfl
    except ImportError as error:
        reply({"skipped": f"pfl is not installed for {sys.executable} ({error})"})
        return
    reply({"versions": f"pfl {pfl.__version__} torch {torch.__version__}"})
    run_rounds(task)


if __name__ == "__main__":
    main()
