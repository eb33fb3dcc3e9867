"""Worker processes of the loop engine: forked once, so that they have the data.

Requests travel through a pipe, their tensors as safetensors; the tensors of an answer, and of what is told to all,
through memory that both sides see. A worker has two places for its answers, and so is asked again before the last one
is taken out.
"""

from __future__ import annotations

import json
import multiprocessing as mp
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from unskew.base.errors import UserError
from unskew.base.signals import uninterrupted
from unskew.base.tensor_codec import from_bytes, to_bytes
from unskew.base.tree import State
from unskew.engines.loop.shared_memory import SharedMemory

SOON = 0.5  # seconds in which processes that have nothing to do end by themselves
Handle = Callable[[dict[str, Any], State], tuple[dict[str, Any], State]]


def can_fork() -> bool:
    """Only where forking is the system's ordinary way; elsewhere one worker does all."""
    return sys.platform.startswith("linux")


class Workers:
    """n processes that answer requests with `handle`; answers come back in the order of the requests."""

    def __init__(self, n: int, handle: Handle) -> None:
        context = mp.get_context("fork")
        pairs, arenas, self._told = (
            [context.Pipe() for _ in range(n)],
            [(SharedMemory(), SharedMemory()) for _ in range(n)],
            SharedMemory(),
        )
        self._ends = {ours: places for (ours, _), places in zip(pairs, arenas)}
        self._processes = [
            context.Process(target=_serve, args=(i, pairs, arenas, self._told, handle), daemon=True) for i in range(n)
        ]
        self._left = False  # some were asked and nobody took their answer
        with uninterrupted():  # what is raised while a process forks is printed and forgotten
            for process in self._processes:
                process.start()
        for _, theirs in pairs:
            theirs.close()

    def tell(self, header: dict[str, Any], body: State) -> None:
        """The same message to every worker; no answer."""
        # Who has not looked yet finds this in place of the last, which nobody asked him about.
        header = header | {"layout": self._told.put(body)}
        for end in self._ends:
            _send(end, header, {})

    def ask(self, requests: Iterable[tuple[dict[str, Any], State]]) -> Iterator[tuple[dict[str, Any], State]]:
        """Answers in order; each idle worker gets the next request, which is not made before."""
        if self._left:  # their old answers would be taken for new ones
            raise RuntimeError("worker processes were left in the middle of their work; make a new engine")
        numbered, due = enumerate(requests), 0
        answers: dict[int, tuple[dict[str, Any], State]] = {}
        busy: dict[Connection, int] = {}
        try:
            for end in self._ends:
                self._give(end, numbered, busy)
            while busy or answers:
                while due in answers:  # taken in while the workers are busy again
                    yield answers.pop(due)
                    due += 1
                ready = wait(list(busy)) if busy else []
                for end in [end for end in busy if end in ready]:
                    header = _hear(end)
                    number = busy.pop(end)
                    self._give(end, numbered, busy)
                    answers[number] = header, self._ends[end][header.pop("place")].take(header.pop("layout"))
        finally:
            self._left = bool(busy)

    def _give(self, end: Connection, requests: Iterator[tuple[int, Any]], busy: dict[Connection, int]) -> None:
        """The next request, if there is one."""
        for number, (header, body) in requests:
            busy[end] = number
            _send(end, header, body)
            return

    def close(self) -> None:
        """End the processes; they also end by themselves when this process is gone."""
        for end, places in self._ends.items():
            end.close()
            for arena in places:
                arena.close()
        self._told.close()
        for process in self._processes:
            process.join(timeout=SOON / len(self._processes))
            process.terminate()  # in the middle of a client whose answer nobody waits for
        for process in self._processes:
            process.join(timeout=5)


def _send(end: Connection, header: dict[str, Any], body: State) -> None:
    told, data = json.dumps(header).encode(), to_bytes(body)
    try:
        end.send_bytes(told)
        end.send_bytes(data)
    except (BrokenPipeError, OSError) as error:
        raise _gone() from error


def _hear(end: Connection) -> dict[str, Any]:
    try:
        header = json.loads(end.recv_bytes())
    except (EOFError, OSError) as error:
        raise _gone() from error
    if "user_error" in header:
        raise UserError(header["user_error"])
    if "error" in header:
        raise RuntimeError(f"a worker process failed:\n{header['error']}")
    return header


def _gone() -> UserError:
    return UserError(
        "a worker process ended unexpectedly, most likely for want of memory; try engine.workers=1 with --resume"
    )


def _serve(
    i: int,
    pairs: list[tuple[Connection, Connection]],
    arenas: list[tuple[SharedMemory, SharedMemory]],
    told: SharedMemory,
    handle: Handle,
) -> None:
    """A worker's life: answer until the other end closes. Ctrl-C is for the parent, which saves first."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the parent's handler would print a traceback of this process
    torch.set_num_threads(1)
    mine, places, place = pairs[i][1], arenas[i], 0
    for other in (arena for each in arenas if each is not places for arena in each):
        other.close()
    for ours, theirs in pairs:
        # An inherited copy of another end would keep that pipe open after its owner died.
        ours.close()
        if theirs is not mine:
            theirs.close()
    while True:
        try:
            header, body = json.loads(mine.recv_bytes()), from_bytes(mine.recv_bytes())
        except (EOFError, OSError):
            return
        asks = header.pop("answer", True)
        try:
            if not asks:
                handle(header, told.take(header.pop("layout")))
                continue
            answer, tensors = handle(header, body)
            place = 1 - place
            answer = answer | {"place": place, "layout": places[place].put(tensors)}
        except UserError as error:
            answer = {"user_error": str(error)}
        except Exception:
            answer = {"error": traceback.format_exc()}
        try:
            mine.send_bytes(json.dumps(answer).encode())  # of a failure also unasked: it is heard in place of an answer
        except OSError:  # nobody listens any more
            return
