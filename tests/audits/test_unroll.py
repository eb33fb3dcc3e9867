"""The unrolled client takes the optimiser's steps and, on the true rows, sends exactly the recorded message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from unskew.audits.attack_cases import ATTACKABLE, build_case, build_problem
from unskew.audits.decode_messages import decode_round
from unskew.audits.differentiable_optimiser import functional_optimiser_step
from unskew.audits.replayed_run import NoAttackError, replay_run
from unskew.audits.threat_model import SERVER, SUM_ONLY
from unskew.protocol import method_registry
from unskew.protocol.work import Work, clip_gradients
from unskew.results import load_run, recorded_messages

from .test_audit_methods import METHODS, dataset, network, run_method

WORKS: list[dict[str, Any]] = [
    {},
    {"momentum": 0.9, "weight_decay": 0.1},
    {"momentum": 0.9, "nesterov": True, "clip": 0.5},
    {"optimiser": "adam", "weight_decay": 0.1},
    {"optimiser": "adamw", "weight_decay": 0.1, "scope": "step"},
    {"momentum": 0.5, "scope": "step"},
]


@pytest.mark.parametrize("settings", WORKS, ids=str)
def test_pure_steps_match_the_in_place_optimiser(settings: dict[str, Any]) -> None:
    work = Work(batch=1, lr=0.1, **settings)
    start = {"a": torch.randn(3, 2, dtype=torch.float64), "b": torch.randn(4, dtype=torch.float64)}
    leaves = {name: t.clone() for name, t in start.items()}
    optimiser, slots, pure = work.make_optimiser(leaves.values()), {}, start
    for _ in range(4):
        grads = {name: torch.randn_like(t) for name, t in start.items()}
        if work.scope == "step":
            for slot in (t for kept in optimiser.state.values() for t in kept.values()):
                slot.zero_()
        gradients = list(grads.values())
        optimiser.step(gradients if work.clip is None else clip_gradients(gradients, work.clip, stacked=False))
        pure, slots = functional_optimiser_step(work, pure, grads, slots)
    for name, leaf in leaves.items():
        assert torch.allclose(leaf, pure[name], atol=1e-12), name


LOST = {"fedavg-bf16": 0.004, "fedavg-int8": 0.02, "fedavg-topk": 1e-6}  # coding error relative to the update's norm


@pytest.mark.parametrize("method", METHODS)
def test_the_true_rows_reproduce_the_recorded_message(method: str, tmp_path: Path) -> None:
    """Whatever the method does to loss and message, an attacker that guessed the rows could verify the guess.

    Three rows in batches of two: the order matters, and half of every second batch is padding.
    """
    local = {"epochs": 2, "batch": 2, "lr": 0.1, "momentum": 0.5, "weight_decay": 0.01, "clip": 1.0}
    run_method(tmp_path, method, rounds=1, record={"rounds": [1]}, precision="float64", local=local)
    run = load_run.load(tmp_path, model=network())
    replayed = replay_run(run, "cpu", dataset(), network())
    knows = SERVER.with_knowledge(("labels", "draws"))
    recorded = decode_round(recorded_messages.read(tmp_path)[0], replayed.context)
    parts = method_registry.create(method_registry.resolve(method)).parts
    checked = 0
    for observation in knows.observe(recorded, tuple(replayed.trained[1]), replayed.weigh_by_rows):
        for part in parts:
            for name, artefact in part.sends.items():
                if artefact.kind not in ATTACKABLE:
                    continue
                if method == "feddata":  # it mixes the server's rows into the client's own, which is refused
                    with pytest.raises(NoAttackError, match="further rows into the client's own"):
                        build_case(replayed, knows, observation, part.name, name, torch.float64, 32)
                    return
                one = build_case(replayed, knows, observation, part.name, name, torch.float64, 32)
                again = one.replay(one.secrets[0], one.x, one.y)
                assert len(one.secrets[0].steps) == 4
                for key, tensor in one.target.items():
                    guess = torch.where(tensor == 0, 0, again[key]) if method == "fedavg-topk" else again[key]
                    error = (guess - tensor).norm() / tensor.norm().clamp_min(1e-2)
                    assert error < LOST.get(method, 1e-6), (part.name, name, key)
                    checked += bool(tensor.abs().max() > 1e-6)
    assert checked


@pytest.mark.parametrize(("method", "part", "name"), [("scaffold", "scaffold", "dc"), ("fednova", "nova", "direction")])
def test_the_true_rows_reproduce_the_recorded_sum(method: str, part: str, name: str, tmp_path: Path) -> None:
    """Under secure aggregation, for an artefact that is summed and one that is averaged."""
    local = {"epochs": 1, "batch": 2, "lr": 0.1}
    run_method(tmp_path, method, rounds=1, record={"rounds": [1]}, precision="float64", local=local)
    replayed = replay_run(load_run.load(tmp_path, model=network()), "cpu", dataset(), network())
    knows = SUM_ONLY.with_knowledge(("labels", "draws"))
    (recorded,) = recorded_messages.read(tmp_path)
    (observation,) = knows.observe(recorded, tuple(replayed.trained[1]), replayed.weigh_by_rows)
    one = build_case(replayed, knows, observation, part, name, torch.float64, 32)
    attack = build_problem([one], replayed, knows)
    again = attack.simulate(one.secrets, one.x, one.y)
    for key, tensor in one.target.items():
        assert torch.allclose(again[key], tensor, rtol=1e-6, atol=1e-8), key
