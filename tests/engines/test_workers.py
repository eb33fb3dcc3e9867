"""Requests to worker processes, also when a worker dies, raises an error or is interrupted."""

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import unskew as us
from unskew.base.tree import State
from unskew.engines.loop import workers
from unskew.engines.loop.shared_tensors import SharedTensors
from unskew.engines.loop.workers import Workers, can_fork

pytestmark = pytest.mark.skipif(not can_fork(), reason="worker processes need fork")


RECEIVED: State = {}  # the last broadcast that this worker process got


def handle(header: dict[str, Any], body: State) -> tuple[dict[str, Any], State]:
    if header["do"] == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if header["do"] == "refuse":
        raise us.UserError("not like this")
    if header["do"] == "fail":
        raise ValueError("a bug")
    if header["do"] == "receive":
        RECEIVED.update(body)
        return {}, {}
    if header["do"] == "return broadcast":
        return {}, dict(RECEIVED)
    time.sleep(header.get("seconds", 0))
    return {"client": header["client"]}, {"x": body["x"] + 1}


@pytest.fixture
def pool() -> Iterator[Workers]:
    made = Workers(2, handle)
    yield made
    made.close()
    made.close()  # closing twice is allowed


def requests(do: str, clients: range, **more: Any) -> Iterator[tuple[dict[str, Any], State]]:
    return (({"do": do, "client": k} | more, {"x": torch.full((1000,), float(k))}) for k in clients)


def test_answers_are_complete_and_in_order(pool: Workers) -> None:
    for _ in range(2):
        for k, (header, body) in enumerate(pool.ask(requests("add", range(7)))):
            assert header["client"] == k
            assert body["x"].eq(k + 1).all()


@pytest.mark.parametrize(
    ("do", "error", "words"),
    [
        ("die", us.UserError, "ended unexpectedly"),
        ("refuse", us.UserError, "not like this"),
        ("fail", RuntimeError, "a bug"),
    ],
)
def test_worker_errors_are_raised_in_the_parent(pool: Workers, do: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        list(pool.ask(requests(do, range(1))))


def test_close_does_not_wait_for_busy_workers() -> None:
    made = Workers(2, handle)
    answers = made.ask([*requests("add", range(1)), *requests("add", range(1, 3), seconds=60)])
    next(answers)
    answers.close()
    made.close()
    assert [process.is_alive() for process in made._processes] == [False, False]


def test_interrupted_workers_get_no_further_requests(pool: Workers) -> None:
    """A worker's old answer would be taken for the new one, and be overwritten while it is read."""
    answers = pool.ask([*requests("add", range(1)), *requests("add", range(1, 2), seconds=1)])
    next(answers)
    answers.close()
    with pytest.raises(RuntimeError, match="still hold old answers"):
        list(pool.ask(requests("add", range(2))))


def test_an_interrupted_receive_leaves_an_old_answer(pool: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*args: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(workers, "_receive", interrupt)
        with pytest.raises(KeyboardInterrupt):
            list(pool.ask(requests("add", range(1))))
    with pytest.raises(RuntimeError, match="still hold old answers"):
        list(pool.ask(requests("add", range(2))))


def test_a_request_that_cannot_be_encoded_is_not_sent_in_part(pool: Workers) -> None:
    """Otherwise the worker would wait for the rest, and take the beginning of the next request for it."""
    unknown = {"x": torch.ones(3, dtype=torch.bfloat16)}
    with pytest.raises(TypeError, match="BFloat16"):
        list(pool.ask([({"do": "add", "client": 0}, unknown)]))
    assert not any(end.poll(0.2) for end in pool._slots)
    with pytest.raises(RuntimeError, match="still hold old answers"):
        list(pool.ask(requests("add", range(2))))


def test_a_failed_broadcast_is_raised_with_the_next_answer(pool: Workers) -> None:
    """A worker that did not get the new model must not train the old one."""
    pool.broadcast({"do": "fail", "answer": False}, {"w": torch.ones(3)})
    with pytest.raises(RuntimeError, match="a bug"):
        list(pool.ask(requests("return broadcast", range(2))))


def test_workers_get_the_latest_broadcast(pool: Workers) -> None:
    """Broadcasts overwrite the shared memory: an idle worker may read it late, and with larger tensors."""
    for size in (3, 50_000, 10):
        pool.broadcast({"do": "receive", "answer": False}, {"w": torch.full((size,), float(size))})
    for header, body in pool.ask(requests("return broadcast", range(4))):
        assert body["w"].tolist() == [10.0] * 10, header


def test_a_worker_gets_its_next_request_before_its_answer_is_read(
    pool: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next answer uses the other slot, so that both stay intact."""
    read, busy = SharedTensors.read, []

    def slow(self: SharedTensors, layout: Any) -> State:
        time.sleep(0.2)  # long enough for another answer
        busy.append(any(end.poll() for end in pool._slots))
        return read(self, layout)

    monkeypatch.setattr(SharedTensors, "read", slow)
    answers = list(pool.ask(requests("add", range(6))))
    assert [body["x"].unique().tolist() for _, body in answers] == [[k + 1.0] for k in range(6)]
    assert busy[0]
