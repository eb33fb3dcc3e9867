"""Runs cells in parallel in worker processes that live as long as there is work. Finished cells are not run again."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from unskew.base.environment import core_count, pick_device
from unskew.base.errors import UserError
from unskew.comparisons.cells import GridProgress, folder_of
from unskew.comparisons.grid import Cell
from unskew.comparisons.in_process import run_in_process
from unskew.comparisons.mps import ProcessStart, mps_service
from unskew.config.experiment import Experiment
from unskew.config.user_code import is_importable, modules_for_workers
from unskew.results.run_folder import read_manifest

if TYPE_CHECKING:
    from torch import nn

    from unskew.data import Dataset

RUNS_PER_GPU = 6  # parallel runs that share one GPU
POLL_SECONDS = 0.5  # Windows handles Ctrl-C only between waits


@dataclass
class _Worker:
    """A worker process and its current cell."""

    process: subprocess.Popen[bytes]
    cell: Cell | None = None
    begun: bool = False  # whether it has reported progress on this cell

    def send(self, cell: Cell, request: dict[str, Any]) -> None:
        self.cell, self.begun = cell, False
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # `_read` notices that the process has ended
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()

    def forward_events(self, events: queue.Queue[tuple[_Worker, dict[str, Any] | None]]) -> None:
        """Put each event of the process on the queue, then None when it has ended."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith(b"\n"):  # a process that is killed may leave half a line
                events.put((self, json.loads(line)))
        events.put((self, None))


def is_finished(folder: Path) -> bool:
    """Whether the run in the folder is finished. A broken folder is not; running the cell reports what is wrong."""
    with contextlib.suppress(UserError):
        manifest = read_manifest(folder)
        return bool(manifest and manifest["finished"])
    return False


def split_cores(experiments: Sequence[Experiment], jobs: int | None) -> tuple[int, int]:
    """Number of parallel runs, and of engine workers for each: together they fill the cores, or share a GPU."""
    if _on_a_gpu(experiments):
        return min(jobs or RUNS_PER_GPU, max(len(experiments), 1)), 1
    parallel = min(jobs or core_count(), max(len(experiments), 1))
    return parallel, max(core_count() // parallel, 1)


def _on_a_gpu(experiments: Sequence[Experiment]) -> bool:
    return any(pick_device(e.device).type == "cuda" for e in experiments)


def run_cells(
    cells: Sequence[Cell],
    out: Path,
    progress: GridProgress,
    log: IO[bytes],
    *,
    name: str = "run",
    jobs: int | None = None,
    data_dir: Path | None = None,
    data: Dataset | None = None,
    model: nn.Sequential | None = None,
    while_running: Callable[[], None] = lambda: None,
) -> dict[str, str]:
    """Run the missing cells; returns the reason of failure by name of the cell. If interrupted, all runs save first.

    log: from `lock_folder`. while_running: called once, as soon as the first worker trains. What other processes cannot
    have (data or a model from Python, a method defined in a notebook) is run in this process, cell after cell.
    """
    unique = {cell.name: cell for cell in cells}
    finished = {key for key, cell in unique.items() if is_finished(folder_of(out, cell))}
    waiting = [cell for key, cell in unique.items() if key not in finished]
    if data is not None or model is not None or any(not is_importable(cell.experiment.imports) for cell in waiting):
        return run_in_process(cells, finished, out, progress, name=name, data_dir=data_dir, data=data, model=model)
    parallel, workers = split_cores([cell.experiment for cell in waiting], jobs)
    requests = {cell.name: request_for(cell, out, name, workers, data_dir, parallel) for cell in waiting}
    try:
        progress.begin(cells, finished, parallel)
        with mps_service(parallel > 1 and _on_a_gpu([cell.experiment for cell in waiting])) as start:
            return _Pool(waiting, requests, progress, log, start, while_running).run(parallel)
    finally:
        progress.end()


def request_for(
    cell: Cell, out: Path, name: str, workers: int, data_dir: Path | None = None, parallel: int = 1
) -> dict[str, Any]:
    """The line that makes a worker process run a cell."""
    return {
        "folder": str(folder_of(out, cell)),
        "experiment": _with_workers(cell.experiment, workers).resolved(),
        "name": name,
        "jobs": parallel,
        "data_dir": str(data_dir) if data_dir else None,
        "imports": list(modules_for_workers(cell.experiment.imports)),
        "search": sys.path,
    }


class _Pool:
    """The worker processes of one call of `run_cells`."""

    def __init__(
        self,
        waiting: list[Cell],
        requests: dict[str, dict[str, Any]],
        progress: GridProgress,
        log: IO[bytes],
        start: ProcessStart,
        while_running: Callable[[], None],
    ) -> None:
        self._waiting, self._requests, self._progress = waiting[::-1], requests, progress
        self._log, self._start = log, start
        self._while_running: Callable[[], None] | None = while_running
        self._failed: dict[str, str] = {}
        self._retried: set[str] = set()
        # Threads read the pipes, because Windows cannot wait for several pipes at once.
        self._events: queue.Queue[tuple[_Worker, dict[str, Any] | None]] = queue.Queue()
        self._workers: list[_Worker] = []
        self._running = 0

    def run(self, parallel: int) -> dict[str, str]:
        try:
            for _ in range(parallel if self._waiting else 0):
                self._start_worker()
            while self._running:
                self._handle(*self._next_event())
            return self._failed
        except BaseException:
            self._stop()
            raise

    def _next_event(self) -> tuple[_Worker, dict[str, Any] | None]:
        while True:
            with contextlib.suppress(queue.Empty):
                return self._events.get(timeout=POLL_SECONDS)

    def _start_worker(self) -> None:
        command = [sys.executable, "-P", "-m", "unskew.comparisons.grid_worker"]
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            pass_fds=self._start.keep_open,
            env=self._start.environment,
        )
        worker = _Worker(process)
        self._workers.append(worker)
        self._running += 1
        threading.Thread(target=worker.forward_events, args=(self._events,), daemon=True).start()
        self._assign_next(worker)

    def _assign_next(self, worker: _Worker) -> None:
        """Give the worker another cell, or close its input so that it exits."""
        if self._waiting:
            cell = self._waiting.pop()
            worker.send(cell, self._requests[cell.name])
        elif worker.process.stdin:
            worker.cell = None
            worker.process.stdin.close()

    def _handle(self, worker: _Worker, event: dict[str, Any] | None) -> None:
        if event is None:
            return self._worker_exited(worker)
        cell = worker.cell
        assert cell is not None
        if event["event"] in ("begin", "round"):
            worker.begun = True
            self._progress.update(cell, event["round"], event.get("accuracy"), event.get("best"))
            if self._while_running:  # not earlier, because it would compete with the workers' start for the cores
                callback, self._while_running = self._while_running, None
                callback()
            return
        self._end_cell(cell, event.get("why"))
        self._assign_next(worker)

    def _end_cell(self, cell: Cell, failure: str | None) -> None:
        if failure is not None:
            self._failed[cell.name] = failure
        self._progress.cell_ended(cell, failure)

    def _worker_exited(self, worker: _Worker) -> None:
        """If the process ended in the middle of a cell, mark that cell as failed and start another process.

        A cell that had not begun may not be the cause, so it is retried once.
        """
        self._running -= 1
        code, cell = worker.process.wait(), worker.cell
        if cell is None:
            return
        if not worker.begun and cell.name not in self._retried:
            self._retried.add(cell.name)
            self._waiting.append(cell)
        else:
            self._end_cell(
                cell,
                f"its process ended unexpectedly (exit code {code}), most likely out of memory; "
                "see workers.log and try --jobs 1",
            )
        if self._waiting:
            self._start_worker()

    def _stop(self) -> None:
        """Ask all workers to save and exit; a second interruption kills them."""
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
    """Set engine.workers unless the recipe sets it."""
    if experiment.engine.workers is not None:
        return experiment
    return experiment.model_copy(update={"engine": experiment.engine.model_copy(update={"workers": workers})})
