"""What becomes of requests when a worker process dies, refuses, fails or is left alone."""

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import unskew as us
from unskew.core.state import State
from unskew.engine.workers import Workers, can_fork

pytestmark = pytest.mark.skipif(not can_fork(), reason="worker processes need fork")


def handle(header: dict[str, Any], body: State) -> tuple[dict[str, Any], State]:
    if header["do"] == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if header["do"] == "refuse":
        raise us.UserError("not like this")
    if header["do"] == "fail":
        raise ValueError("a bug")
    time.sleep(header.get("seconds", 0))
    return {"client": header["client"]}, {"x": body["x"] + 1}


@pytest.fixture
def pool() -> Iterator[Workers]:
    workers = Workers(2, handle)
    yield workers
    workers.close()
    workers.close()  # a second time does no harm


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
    workers = Workers(2, handle)
    answers = workers.ask([*asked("add", range(1)), *asked("add", range(1, 3), seconds=60)])
    next(answers)
    answers.close()
    workers.close()
    assert [process.is_alive() for process in workers._processes] == [False, False]


def test_whoever_was_left_busy_is_not_asked_again(pool: Workers) -> None:
    """His old answer would come for the new question, and be overwritten while it is read."""
    answers = pool.ask([*asked("add", range(1)), *asked("add", range(1, 2), seconds=1)])
    next(answers)
    answers.close()
    with pytest.raises(RuntimeError, match="left in the middle"):
        list(pool.ask(asked("add", range(2))))
