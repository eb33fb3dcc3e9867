"""Method and work of a round are made once, in any order of requests, and planning makes no tensors."""

from __future__ import annotations

import pytest
from small import federation

from unskew.protocol.method import Method

SCHEDULE = {"epochs": 1, "batch": 4, "lr": 0.1, "schedule": {"name": "exponential", "rate": 0.5}}


def test_work_of_a_round_does_not_depend_on_the_order_of_requests() -> None:
    context = federation("fedprox", local=SCHEDULE, rounds=9).engine.context
    rates = {t: 0.1 * 0.5 ** (t - 1) for t in (1, 2, 3, 9)}
    for round in (1, 2, 3, 1, 9, 2, 9, 1):
        assert context.at_round(round)[1].lr == pytest.approx(rates[round])
        assert context.at_round_on_device(round)[1].lr == pytest.approx(rates[round])


def test_tensors_are_made_once_a_round_and_not_for_planning(monkeypatch: pytest.MonkeyPatch) -> None:
    context, made, with_tensor_fields = federation("fedprox").engine.context, [], Method.with_tensor_fields
    monkeypatch.setattr(
        Method, "with_tensor_fields", lambda method, *where: made.append(where) or with_tensor_fields(method, *where)
    )
    for _ in range(3):
        context.at_round(1), context.at_round(2)
    assert not made
    for _ in range(3):
        context.at_round_on_device(1), context.at_round(2)
    assert len(made) == 1
