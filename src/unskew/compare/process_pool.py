"""Plays cells side by side in processes that live as long as there is work. What is finished is not played again."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

from unskew.base.environment import cores, pick_device
from unskew.base.errors import UserError
from unskew.compare.grid import Cell
from unskew.compare.mps import ProcessStart, sharing
from unskew.config.experiment import Experiment
from unskew.results.run_folder import manifest_of

ON_A_GPU = 6  # runs side by side where one GPU serves all

CELLS = "cells"  # the folder of all runs


class GridProgress(Protocol):
    """Who is told how the cells go."""

    def begin(self, cells: Sequence[Cell], finished: set[str], jobs: int) -> None: ...

    def told(self, cell: Cell, round: int, accuracy: float | None, best: float | None) -> None: ...

    def over(self, cell: Cell, failure: str | None) -> None: ...

    def end(self) -> None: ...


@dataclass
class _Worker:
    """A process, what it is at, and what it has said of its next line."""

    process: subprocess.Popen[bytes]
    cell: Cell | None = None
    begun: bool = False  # whether it said so of this cell
    heard: bytearray = field(default_factory=bytearray)

    def give(self, cell: Cell, request: dict[str, Any]) -> None:
        self.cell, self.begun = cell, False
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # its end is noticed where it is listened to
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()

    def lines(self) -> list[dict[str, Any]] | None:
        """What it said since, or None when it ended."""
        assert self.process.stdout is not None
        data = os.read(self.process.stdout.fileno(), 1 << 16)
        if not data:
            return None
        *whole, rest = bytes(self.heard + data).split(b"\n")
        self.heard = bytearray(rest)
        return [json.loads(line) for line in whole]


def folder_of(out: Path, cell: Cell) -> Path:
    """Where a cell's run lies."""
    return out / CELLS / cell.name


def is_finished(folder: Path) -> bool:
    """Whether a run was played to its end. A broken folder is not, and says so when it is played."""
    with contextlib.suppress(UserError):
        manifest = manifest_of(folder)
        return bool(manifest and manifest["finished"])
    return False


def share_out(experiments: Sequence[Experiment], jobs: int | None) -> tuple[int, int]:
    """Runs side by side, and processes of each: together they fill the cores, or share a GPU."""
    if _on_a_gpu(experiments):
        return min(jobs or ON_A_GPU, max(len(experiments), 1)), 1
    side_by_side = min(jobs or cores(), max(len(experiments), 1))
    return side_by_side, max(cores() // side_by_side, 1)


def _on_a_gpu(experiments: Sequence[Experiment]) -> bool:
    return any(pick_device(e.device).type == "cuda" for e in experiments)


def play(
    cells: Sequence[Cell],
    out: Path,
    watch: GridProgress,
    held: tuple[int, IO[bytes]],
    *,
    name: str = "run",
    jobs: int | None = None,
    data_dir: Path | None = None,
    meanwhile: Callable[[], None] = lambda: None,
) -> dict[str, str]:
    """Play what is missing; returns why by the name of each cell that failed. An interruption lets all runs save.

    held: the folder's lock and log, from `alone`; meanwhile: what can be done while the first run goes on.
    """
    different = {cell.name: cell for cell in cells}
    finished = {cell for cell in different if is_finished(out / CELLS / cell)}
    waiting = [cell for key, cell in different.items() if key not in finished]
    side_by_side, workers = share_out([cell.experiment for cell in waiting], jobs)
    requests = {
        cell.name: {
            "folder": str(folder_of(out, cell)),
            "experiment": _with_workers(cell.experiment, workers).resolved(),
            "name": name,
            "data_dir": str(data_dir) if data_dir else None,
        }
        for cell in waiting
    }
    try:
        watch.begin(cells, finished, side_by_side)
        with sharing(side_by_side > 1 and _on_a_gpu([cell.experiment for cell in waiting])) as start:
            return _Crew(waiting, requests, watch, *held, start, meanwhile).work(side_by_side)
    finally:
        watch.end()


class _Crew:
    """The processes of one call."""

    def __init__(
        self,
        waiting: list[Cell],
        requests: dict[str, dict[str, Any]],
        watch: GridProgress,
        lock: int,
        log: IO[bytes],
        start: ProcessStart,
        meanwhile: Callable[[], None],
    ) -> None:
        self._waiting, self._requests, self._watch, self._meanwhile = waiting[::-1], requests, watch, meanwhile
        self._lock, self._log, self._start, self._idle = lock, log, start, True
        self._failed: dict[str, str] = {}
        self._put_back: set[str] = set()
        self._ears = selectors.DefaultSelector()
        self._workers: list[_Worker] = []

    def work(self, side_by_side: int) -> dict[str, str]:
        try:
            for _ in range(side_by_side if self._waiting else 0):
                self._employ()
            while self._ears.get_map():
                for key, _ in self._ears.select():
                    self._listen(key.data)
            return self._failed
        except BaseException:
            self._stop()
            raise
        finally:
            self._ears.close()

    def _employ(self) -> None:
        command = [sys.executable, "-P", "-m", "unskew.compare.grid_worker"]
        ours = (self._lock, *self._start.held)
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            pass_fds=ours,
            env=self._start.environment,
        )
        worker = _Worker(process)
        self._workers.append(worker)
        self._ears.register(process.stdout, selectors.EVENT_READ, worker)  # type: ignore[arg-type]
        self._next(worker)

    def _next(self, worker: _Worker) -> None:
        """Another cell, or the end of its work."""
        if self._waiting:
            cell = self._waiting.pop()
            worker.give(cell, self._requests[cell.name])
        elif worker.process.stdin:
            worker.cell = None
            worker.process.stdin.close()

    def _listen(self, worker: _Worker) -> None:
        lines = worker.lines()
        for line in lines or ():
            self._told(worker, line)
        if lines is None:
            self._bury(worker)

    def _told(self, worker: _Worker, line: dict[str, Any]) -> None:
        cell = worker.cell
        assert cell is not None
        if line["what"] in ("begin", "round"):
            worker.begun = True
            self._watch.told(cell, line["round"], line.get("accuracy"), line.get("best"))
            if self._idle:  # and not before: a process that is starting would have to wait for its core
                self._idle = False
                self._meanwhile()
            return
        self._over(cell, line.get("why"))
        self._next(worker)

    def _over(self, cell: Cell, failure: str | None) -> None:
        if failure is not None:
            self._failed[cell.name] = failure
        self._watch.over(cell, failure)

    def _bury(self, worker: _Worker) -> None:
        """A process ended: in the middle of a cell that cell failed, and another process takes its place.

        A cell that had not begun need not be why, and gets another chance.
        """
        self._ears.unregister(worker.process.stdout)  # type: ignore[arg-type]
        code, cell = worker.process.wait(), worker.cell
        if cell is None:
            return
        if not worker.begun and cell.name not in self._put_back:
            self._put_back.add(cell.name)
            self._waiting.append(cell)
        else:
            self._over(
                cell,
                f"its process ended unexpectedly (exit code {code}), most likely for want of memory; "
                "see workers.log and try --jobs 1",
            )
        if self._waiting:
            self._employ()

    def _stop(self) -> None:
        """Ask all to save and end; who stops a second time does not wait for that."""
        alive = [worker.process for worker in self._workers if worker.process.poll() is None]
        try:
            for process in alive:
                process.terminate()
            for process in alive:
                process.wait()
        except BaseException:
            for process in alive:
                process.kill()
            raise


def _with_workers(experiment: Experiment, workers: int) -> Experiment:
    """A number that the recipe gives stays."""
    if experiment.engine.workers is not None:
        return experiment
    return experiment.model_copy(update={"engine": experiment.engine.model_copy(update={"workers": workers})})
