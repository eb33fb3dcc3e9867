"""What becomes of requests when a worker process dies, refuses, fails or is left alone."""

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
from unskew.engines.loop.shared_memory import SharedMemory
from unskew.engines.loop.workers import Workers, can_fork

pytestmark = pytest.mark.skipif(not can_fork(), reason="worker processes need fork")


TOLD: State = {}  # of a worker


def handle(header: dict[str, Any], body: State) -> tuple[dict[str, Any], State]:
    if header["do"] == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if header["do"] == "refuse":
        raise us.UserError("not like this")
    if header["do"] == "fail":
        raise ValueError("a bug")
    if header["do"] == "receive":
        TOLD.update(body)
        return {}, {}
    if header["do"] == "told":
        return {}, dict(TOLD)
    time.sleep(header.get("seconds", 0))
    return {"client": header["client"]}, {"x": body["x"] + 1}


@pytest.fixture
def pool() -> Iterator[Workers]:
    made = Workers(2, handle)
    yield made
    made.close()
    made.close()  # a second time does no harm


def asked(do: str, clients: range, **more: Any) -> Iterator[tuple[dict[str, Any], State]]:
    return (({"do": do, "client": k} | more, {"x": torch.full((1000,), float(k))}) for k in clients)


def test_answers_come_in_order_and_whole(pool: Workers) -> None:
    for _ in range(2):
        for k, (header, body) in enumerate(pool.ask(asked("add", range(7)))):
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
def test_what_goes_wrong_there_is_told_here(pool: Workers, do: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        list(pool.ask(asked(do, range(1))))


def test_who_is_busy_is_not_waited_for_at_the_end() -> None:
    made = Workers(2, handle)
    answers = made.ask([*asked("add", range(1)), *asked("add", range(1, 3), seconds=60)])
    next(answers)
    answers.close()
    made.close()
    assert [process.is_alive() for process in made._processes] == [False, False]


def test_whoever_was_left_busy_is_not_asked_again(pool: Workers) -> None:
    """His old answer would come for the new question, and be overwritten while it is read."""
    answers = pool.ask([*asked("add", range(1)), *asked("add", range(1, 2), seconds=1)])
    next(answers)
    answers.close()
    with pytest.raises(RuntimeError, match="left in the middle"):
        list(pool.ask(asked("add", range(2))))


def test_an_interruption_while_it_is_heard_leaves_an_answer_behind(
    pool: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*args: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(workers, "_hear", interrupt)
        with pytest.raises(KeyboardInterrupt):
            list(pool.ask(asked("add", range(1))))
    with pytest.raises(RuntimeError, match="left in the middle"):
        list(pool.ask(asked("add", range(2))))


def test_a_request_that_cannot_be_sent_is_not_sent_by_half(pool: Workers) -> None:
    """The worker would wait for its other half, and take the next request's beginning for it."""
    unknown = {"x": torch.ones(3, dtype=torch.bfloat16)}
    with pytest.raises(TypeError, match="BFloat16"):
        list(pool.ask([({"do": "add", "client": 0}, unknown)]))
    assert not any(end.poll(0.2) for end in pool._ends)
    with pytest.raises(RuntimeError, match="left in the middle"):
        list(pool.ask(asked("add", range(2))))


def test_what_goes_wrong_when_told_is_heard_with_the_next_answer(pool: Workers) -> None:
    """Who did not get the new model must not train the old one."""
    pool.tell({"do": "fail", "answer": False}, {"w": torch.ones(3)})
    with pytest.raises(RuntimeError, match="a bug"):
        list(pool.ask(asked("told", range(2))))


def test_what_is_told_to_all_is_the_last_that_was(pool: Workers) -> None:
    """Through memory that is written again: a worker that had nothing to do looks at it late, and at larger tensors."""
    for size in (3, 50_000, 10):
        pool.tell({"do": "receive", "answer": False}, {"w": torch.full((size,), float(size))})
    for header, body in pool.ask(asked("told", range(4))):
        assert body["w"].tolist() == [10.0] * 10, header


def test_a_worker_is_asked_again_before_its_answer_is_taken_out(pool: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """And its next answer does not lie where the last one does: both are whole."""
    take, busy = SharedMemory.take, []

    def slow(self: SharedMemory, layout: Any) -> State:
        time.sleep(0.2)  # long enough for another answer
        busy.append(any(end.poll() for end in pool._ends))
        return take(self, layout)

    monkeypatch.setattr(SharedMemory, "take", slow)
    answers = list(pool.ask(asked("add", range(6))))
    assert [body["x"].unique().tolist() for _, body in answers] == [[k + 1.0] for k in range(6)]
    assert busy[0]
