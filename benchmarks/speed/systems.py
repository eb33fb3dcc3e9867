"""The systems that are timed: each is set up once, and then runs one round per call."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from bare_loop import KNOWN_METHODS, BareTrainer
from bare_process import BareProcess
from pfl_process import Pfl, SkippedError
from workloads import Workload

from unskew.base.environment import __version__
from unskew.base.per_client import MANY_CLIENTS, ComputedPerClient
from unskew.runner.prepare_run import PreparedRun, prepare


@dataclass(frozen=True)
class RunOptions:
    """Device and precision; `workers` are processes of the loop engine, and threads of the bare loop."""

    device: str
    precision: str
    workers: int = 1
    pfl_python: str = ""


def time_call(call: Callable[[], None], options: RunOptions) -> float:
    """Seconds of one call, including its work on the GPU."""
    started = time.perf_counter()
    call()
    if options.device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - started


VERSIONS = f"unskew {__version__} torch {torch.__version__}"


class Unskew:
    """Rounds of a prepared federation, without evaluation."""

    versions = VERSIONS

    def __init__(self, load: Workload, engine: str, options: RunOptions) -> None:
        torch.backends.cudnn.benchmark = False
        self.federation = prepare_workload(load, engine, options).federation
        self.snap = self.federation.start()

    def __call__(self) -> None:
        self.snap, _ = self.federation.run_round(self.snap)
        self.federation.store.commit()

    def skip(self, rounds: int) -> None:
        """Skip rounds of the plan."""
        self.snap = replace(self.snap, round=self.snap.round + rounds)

    @property
    def padding(self) -> float:
        return self.federation.engine.padding_share

    def close(self) -> None:
        self.federation.engine.close()


class BareLoop:
    """The bare loop with unskew's rows and participants."""

    padding = 0.0
    versions = VERSIONS
    bare: BareTrainer | BareProcess

    def __init__(self, load: Workload, options: RunOptions) -> None:
        source = prepare_workload(load, "loop", RunOptions("cpu", "float32")).federation
        source.engine.close()
        index, clients = source.engine.context.client_rows.index, source.task.clients
        # cuDNN tries every algorithm for each new batch size: that pays for one or two sizes, but takes minutes if the
        # last batches of all clients have different sizes.
        torch.backends.cudnn.benchmark = len({len(index[k]) for k in source.sampling.sampled(1)}) == 1
        on_device: Callable[[int], torch.Tensor] = lambda k: index[k].to(options.device)  # noqa: E731
        rows = [on_device(k) for k in range(clients)] if clients <= MANY_CLIENTS else ComputedPerClient(on_device)
        if options.device == "cpu":
            self.bare = BareProcess(load.name, rows, options.precision, options.workers)
        else:
            data = load.data()
            self.bare = BareTrainer(load, rows, data.train.x, data.train.y, options.device, options.precision)
        self.sampling, self.round = source.sampling, 0

    def skip(self, rounds: int) -> None:
        """Skip rounds of the plan."""
        self.round += rounds

    def __call__(self) -> None:
        self.round += 1
        self.bare.round(self.sampling.sampled(self.round))

    def close(self) -> None:
        if isinstance(self.bare, BareProcess):
            self.bare.close()


def prepare_workload(load: Workload, engine: str, options: RunOptions) -> PreparedRun:
    experiment = load.experiment(engine, options.device, options.precision, 1000, options.workers)
    return prepare(experiment, data=load.data(), model=load.net())


TimedSystem = Unskew | BareLoop | Pfl


def make_system(load: Workload, system: str, options: RunOptions) -> TimedSystem:
    if system == "pfl":
        return start_pfl(load, options)
    if system == "bare-loop" and load.method not in KNOWN_METHODS:
        raise SkippedError(f"the bare loop has {' and '.join(KNOWN_METHODS)}, not {load.method}")
    return BareLoop(load, options) if system == "bare-loop" else Unskew(load, system.removeprefix("unskew-"), options)


def start_pfl(load: Workload, options: RunOptions) -> Pfl:
    """pfl-research with the same users' rows, net and participants."""
    if load.model != "pfl":
        raise SkippedError("pfl runs only the net of pfl-cifar")
    source = prepare_workload(load, "loop", RunOptions("cpu", "float32")).federation
    source.engine.close()
    index = source.engine.context.client_rows.index
    task = {
        "device": options.device,
        "precision": options.precision,
        "local": load.local,
        "images": load.images,
        "rows": {str(k): index[k].tolist() for k in range(source.task.clients)},
        "users": len(source.sampling.sampled(1)),
    }
    return Pfl(options.pfl_python, task, source.sampling.sampled)
