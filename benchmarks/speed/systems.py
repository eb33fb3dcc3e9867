"""The systems that are timed, each as something that is set up once and then plays one round at a call."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from alone import Alone
from bare import KNOWN, Bare
from peer import Pfl, SkippedError
from workloads import Workload

from unskew.base.environment import __version__
from unskew.base.per_client import MANY, ComputedPerClient
from unskew.runner.prepare_run import PreparedRun, prepare


@dataclass(frozen=True)
class How:
    """Where and how exactly, with how many worker processes of the loop, and threads of the bare one."""

    device: str
    precision: str
    workers: int = 1
    pfl_python: str = ""


def seconds(play: Callable[[], None], how: How) -> float:
    """Of one call, with what it left to the GPU."""
    began = time.perf_counter()
    play()
    if how.device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - began


VERSIONS = f"unskew {__version__} torch {torch.__version__}"


class Unskew:
    """Rounds of a prepared federation, without evaluation."""

    versions = VERSIONS

    def __init__(self, load: Workload, engine: str, how: How) -> None:
        torch.backends.cudnn.benchmark = False
        self.federation = ready(load, engine, how).federation
        self.snap = self.federation.start()

    def __call__(self) -> None:
        self.snap, _ = self.federation.play(self.snap)
        self.federation.store.commit()

    def skip(self, rounds: int) -> None:
        """Leave out rounds of the plan."""
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
    bare: Bare | Alone

    def __init__(self, load: Workload, how: How) -> None:
        source = ready(load, "loop", How("cpu", "float32")).federation
        source.engine.close()
        index, clients = source.engine.context.client_rows.index, source.task.clients
        # cuDNN tries every algorithm for each new batch size: that pays for one or two sizes, and takes minutes where
        # every client's last batch has another.
        torch.backends.cudnn.benchmark = len({len(index[k]) for k in source.sampling.sampled(1)}) == 1
        there: Callable[[int], torch.Tensor] = lambda k: index[k].to(how.device)  # noqa: E731
        rows = [there(k) for k in range(clients)] if clients <= MANY else ComputedPerClient(there)
        if how.device == "cpu":
            self.bare = Alone(load.name, rows, how.precision, how.workers)
        else:
            data = load.data()
            self.bare = Bare(load, rows, data.train.x, data.train.y, how.device, how.precision)
        self.sampling, self.round = source.sampling, 0

    def skip(self, rounds: int) -> None:
        """Leave out rounds of the plan."""
        self.round += rounds

    def __call__(self) -> None:
        self.round += 1
        self.bare.round(self.sampling.sampled(self.round))

    def close(self) -> None:
        if isinstance(self.bare, Alone):
            self.bare.close()


def ready(load: Workload, engine: str, how: How) -> PreparedRun:
    experiment = load.experiment(engine, how.device, how.precision, 1000, how.workers)
    return prepare(experiment, data=load.data(), model=load.net())


Player = Unskew | BareLoop | Pfl


def make(load: Workload, system: str, how: How) -> Player:
    if system == "pfl":
        return peer(load, how)
    if system == "bare-loop" and load.method not in KNOWN:
        raise SkippedError(f"it knows {' and '.join(KNOWN)}")
    return BareLoop(load, how) if system == "bare-loop" else Unskew(load, system.removeprefix("unskew-"), how)


def peer(load: Workload, how: How) -> Pfl:
    """pfl-research with the same users' rows, net and participants."""
    if load.model != "pfl":
        raise SkippedError("peer.py knows the net of pfl-cifar only")
    source = ready(load, "loop", How("cpu", "float32")).federation
    source.engine.close()
    index = source.engine.context.client_rows.index
    task = {
        "device": how.device,
        "precision": how.precision,
        "local": load.local,
        "images": load.images,
        "rows": {str(k): index[k].tolist() for k in range(source.task.clients)},
        "users": len(source.sampling.sampled(1)),
    }
    return Pfl(how.pfl_python, task, source.sampling.sampled)
