"""The unrolled client: its steps are the optimiser's, and on the true rows it sends the very message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from unskew.audit.attack_cases import ATTACKABLE, case, problem
from unskew.audit.decode_messages import opened
from unskew.audit.differentiable_sgd import move
from unskew.audit.replayed_run import NoAttackError, set_up
from unskew.audit.threat_model import SERVER, SUM_ONLY
from unskew.protocol import method_registry
from unskew.protocol.work import Work, clipped
from unskew.results import load_run, recorded_messages

from .test_audit_methods import METHODS, dataset, network, played

WORKS: list[dict[str, Any]] = [
    {},
    {"momentum": 0.9, "weight_decay": 0.1},
    {"momentum": 0.9, "nesterov": True, "clip": 0.5},
    {"optimiser": "adam", "weight_decay": 0.1},
    {"optimiser": "adamw", "weight_decay": 0.1, "scope": "step"},
    {"momentum": 0.5, "scope": "step"},
]


@pytest.mark.parametrize("settings", WORKS, ids=str)
def test_pure_steps_are_those_of_the_optimiser(settings: dict[str, Any]) -> None:
    work = Work(batch=1, lr=0.1, **settings)
    start = {"a": torch.randn(3, 2, dtype=torch.float64), "b": torch.randn(4, dtype=torch.float64)}
    leaves = {name: t.clone() for name, t in start.items()}
    optimiser, slots, pure = work.make(leaves.values()), {}, start
    for _ in range(4):
        grads = {name: torch.randn_like(t) for name, t in start.items()}
        if work.scope == "step":
            for slot in (t for kept in optimiser.state.values() for t in kept.values()):
                slot.zero_()
        found = list(grads.values())
        optimiser.step(found if work.clip is None else clipped(found, work.clip, stacked=False))
        pure, slots = move(work, pure, grads, slots)
    for name, leaf in leaves.items():
        assert torch.allclose(leaf, pure[name], atol=1e-12), name


LOST = {"fedavg-bf16": 0.004, "fedavg-int8": 0.02, "fedavg-topk": 1e-6}  # by the code, of the update's norm


@pytest.mark.parametrize("method", METHODS)
def test_true_rows_give_the_very_message(method: str, tmp_path: Path) -> None:
    """Whatever the method does to loss and message, an attacker who guessed the rows would know it.

    Three rows in batches of two: the order counts, and half of every second batch is filler.
    """
    local = {"epochs": 2, "batch": 2, "lr": 0.1, "momentum": 0.5, "weight_decay": 0.01, "clip": 1.0}
    played(tmp_path, method, rounds=1, record={"rounds": [1]}, precision="float64", local=local)
    run = load_run.load(tmp_path, model=network())
    world = set_up(run, "cpu", dataset(), network())
    knows = SERVER.given(("labels", "draws"))
    recorded = opened(recorded_messages.read(tmp_path)[0], world.context)
    parts = method_registry.create(method_registry.resolve(method)).parts
    checked = 0
    for seen in knows.sees(recorded, tuple(world.trained[1]), world.by_rows):
        for part in parts:
            for name, artefact in part.sends.items():
                if artefact.kind not in ATTACKABLE:
                    continue
                if method == "feddata":  # the server's rows among the client's own: said, not attacked
                    with pytest.raises(NoAttackError, match="further rows among the client's own"):
                        case(world, knows, seen, part.name, name, torch.float64, 32)
                    return
                one = case(world, knows, seen, part.name, name, torch.float64, 32)
                again = one.replay(one.hidden[0], one.x, one.y)
                assert len(one.hidden[0].moments) == 4
                for key, tensor in one.target.items():
                    guess = torch.where(tensor == 0, 0, again[key]) if method == "fedavg-topk" else again[key]
                    error = (guess - tensor).norm() / tensor.norm().clamp_min(1e-2)
                    assert error < LOST.get(method, 1e-6), (part.name, name, key)
                    checked += bool(tensor.abs().max() > 1e-6)
    assert checked


@pytest.mark.parametrize(("method", "part", "name"), [("scaffold", "scaffold", "dc"), ("fednova", "nova", "direction")])
def test_true_rows_give_the_very_sum(method: str, part: str, name: str, tmp_path: Path) -> None:
    """Under secure aggregation, of an artefact that is summed and of one that is averaged."""
    local = {"epochs": 1, "batch": 2, "lr": 0.1}
    played(tmp_path, method, rounds=1, record={"rounds": [1]}, precision="float64", local=local)
    world = set_up(load_run.load(tmp_path, model=network()), "cpu", dataset(), network())
    knows = SUM_ONLY.given(("labels", "draws"))
    (recorded,) = recorded_messages.read(tmp_path)
    (seen,) = knows.sees(recorded, tuple(world.trained[1]), world.by_rows)
    one = case(world, knows, seen, part, name, torch.float64, 32)
    posed = problem([one], world, knows)
    again = posed.guess(one.hidden, one.x, one.y)
    for key, tensor in one.target.items():
        assert torch.allclose(again[key], tensor, rtol=1e-6, atol=1e-8), key
