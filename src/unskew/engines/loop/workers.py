"""Worker processes of the loop engine: forked once, so that they inherit the data.

Requests travel through a pipe, with their tensors as safetensors. The tensors of answers and of broadcasts travel
through shared memory. Each worker has two answer slots, so it gets its next request before its last answer is read.
"""

from __future__ import annotations

import json
import multiprocessing as mp
import os
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
from unskew.engines.loop.shared_tensors import SharedTensors

EXIT_SECONDS = 0.5  # idle workers exit by themselves within this time
Handle = Callable[[dict[str, Any], State], tuple[dict[str, Any], State]]


def can_fork() -> bool:
    """Whether worker processes are available: on Linux, where forking is the default. Elsewhere there is one worker."""
    return sys.platform.startswith("linux") and hasattr(os, "fork")


class Workers:
    """n processes that answer requests with `handle`, in the order of the requests."""

    def __init__(self, n: int, handle: Handle) -> None:
        context = mp.get_context("fork")
        pairs, memories, self._broadcasts = (
            [context.Pipe() for _ in range(n)],
            [(SharedTensors(), SharedTensors()) for _ in range(n)],
            SharedTensors(),
        )
        self._slots = {parent_end: slots for (parent_end, _), slots in zip(pairs, memories)}
        self._processes = [
            context.Process(target=_worker_loop, args=(i, pairs, memories, self._broadcasts, handle), daemon=True)
            for i in range(n)
        ]
        self._abandoned = False  # whether some requests were sent whose answers were never read
        with uninterrupted():  # an exception raised inside a fork would only be printed
            for process in self._processes:
                process.start()
        for _, worker_end in pairs:
            worker_end.close()

    def broadcast(self, header: dict[str, Any], body: State) -> None:
        """Send the same message to every worker; none answers."""
        # Overwriting is safe: a worker that has not read the last broadcast got no request that needs it.
        header = header | {"layout": self._broadcasts.write(body)}
        for connection in self._slots:
            _send(connection, header, {})

    def ask(self, requests: Iterable[tuple[dict[str, Any], State]]) -> Iterator[tuple[dict[str, Any], State]]:
        """Answers in order. Requests are generated lazily, one whenever a worker is idle."""
        if self._abandoned:  # an old answer would be taken for a new one
            raise RuntimeError("worker processes were interrupted and still hold old answers; create a new engine")
        queue, next_number = enumerate(requests), 0
        answers: dict[int, tuple[dict[str, Any], State]] = {}
        busy: dict[Connection, int] = {}
        try:
            for connection in self._slots:
                self._send_next(connection, queue, busy)
            while busy or answers:
                while next_number in answers:  # the consumer handles them while the workers are busy again
                    yield answers.pop(next_number)
                    next_number += 1
                ready = wait(list(busy)) if busy else []
                for connection in [connection for connection in busy if connection in ready]:
                    header = _receive(connection)
                    number = busy.pop(connection)
                    self._send_next(connection, queue, busy)
                    answers[number] = header, self._slots[connection][header.pop("slot")].read(header.pop("layout"))
        finally:
            self._abandoned = bool(busy)

    def _send_next(self, connection: Connection, queue: Iterator[tuple[int, Any]], busy: dict[Connection, int]) -> None:
        """Send the next request, if there is one."""
        for number, (header, body) in queue:
            busy[connection] = number
            _send(connection, header, body)
            return

    def close(self) -> None:
        """End the processes; they also exit by themselves when this process is gone."""
        for connection, slots in self._slots.items():
            connection.close()
            for memory in slots:
                memory.close()
        self._broadcasts.close()
        for process in self._processes:
            process.join(timeout=EXIT_SECONDS / len(self._processes))
            process.terminate()  # it may be in the middle of a client whose answer is no longer needed
        for process in self._processes:
            process.join(timeout=5)


def _send(connection: Connection, header: dict[str, Any], body: State) -> None:
    header_bytes, data = json.dumps(header).encode(), to_bytes(body)
    try:
        connection.send_bytes(header_bytes)
        connection.send_bytes(data)
    except (BrokenPipeError, OSError) as error:
        raise _worker_died() from error


def _receive(connection: Connection) -> dict[str, Any]:
    try:
        header = json.loads(connection.recv_bytes())
    except (EOFError, OSError) as error:
        raise _worker_died() from error
    if "user_error" in header:
        raise UserError(header["user_error"])
    if "error" in header:
        raise RuntimeError(f"a worker process failed:\n{header['error']}")
    return header


def _worker_died() -> UserError:
    return UserError(
        "a worker process ended unexpectedly, most likely because memory ran out; "
        "continue with --resume and engine.workers=1"
    )


def _worker_loop(
    index: int,
    pairs: list[tuple[Connection, Connection]],
    memories: list[tuple[SharedTensors, SharedTensors]],
    broadcasts: SharedTensors,
    handle: Handle,
) -> None:
    """Answer requests until the parent closes its end. Ctrl-C is left to the parent, which saves first."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the parent's handler would print a traceback of this process
    torch.set_num_threads(1)
    connection, slots, slot = pairs[index][1], memories[index], 0
    for other in (memory for pair in memories if pair is not slots for memory in pair):
        other.close()
    for parent_end, worker_end in pairs:
        # An inherited copy of another end would keep that pipe open after its owner died.
        parent_end.close()
        if worker_end is not connection:
            worker_end.close()
    while True:
        try:
            header, body = json.loads(connection.recv_bytes()), from_bytes(connection.recv_bytes())
        except (EOFError, OSError):
            return
        wants_reply = header.pop("answer", True)
        try:
            if not wants_reply:
                handle(header, broadcasts.read(header.pop("layout")))
                continue
            answer, tensors = handle(header, body)
            slot = 1 - slot
            answer = answer | {"slot": slot, "layout": slots[slot].write(tensors)}
        except UserError as error:
            answer = {"user_error": str(error)}
        except Exception:
            answer = {"error": traceback.format_exc()}
        try:
            # A failed broadcast also sends its error: the parent reads it in place of the next answer.
            connection.send_bytes(json.dumps(answer).encode())
        except OSError:  # the parent is gone
            return
