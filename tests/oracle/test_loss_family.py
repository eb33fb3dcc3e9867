"""Rules for all loss-based methods: defaults, strengths, the weight of cross-entropy, evaluation."""

from typing import Any

import pytest
import torch
from distilling import TINY, Z_G, Y, Z, counts_of, term
from toolbox import LOCAL, federation, last_model, network, run_rounds
from torch.nn import functional as F

from unskew.methods.fedavg_kd import Distillation
from unskew.methods.fedlmd import LabelMaskingDistillation
from unskew.methods.fedlmd_tf import TeacherFreeMasking
from unskew.methods.fedntd import NotTrueDistillation
from unskew.methods.fedntd_tf import TeacherFreeNotTrue
from unskew.protocol.method import hyper_parameters
from unskew.protocol.method_registry import create, resolve
from unskew.protocol.part import Part

ONE_STEP = LOCAL | {"epochs": 1, "batch": 16, "weight_decay": 0.0}  # every client has one batch


@pytest.mark.parametrize(
    ("method", "name", "want"),
    [
        ("fedlmd", "lmd", {"beta": 1.0, "tau": 1.0}),
        ("fedlmd-tf", "lmd-tf", {"beta": 1.0, "tau": 1.0}),
        ("fedntd", "ntd", {"beta": 1.0, "tau": 1.0}),
        ("fedntd-tf", "ntd-tf", {"beta": 1.0, "tau": 1.0}),
        ("fedavg-kd", "kd", {"beta": 1.0, "tau": 1.0}),
        ("fedls", "ls", {"eps": 0.1}),
        ("fedrs", "rs", {"alpha": 0.5, "soft": False}),
        ("fedlc", "lc", {"tau": 1.0, "absent": 1e-6}),
        ("feddecorr", "decorr", {"beta": 0.1}),
    ],
)
def test_defaults_are_those_of_the_spec(method: str, name: str, want: dict[str, Any]) -> None:
    (part,) = (part for part in create(resolve(method)).parts if part.name == name)
    actual = hyper_parameters(part)
    assert {key: actual[key] for key in want} == want


@pytest.mark.parametrize(
    "kind", [LabelMaskingDistillation, TeacherFreeMasking, NotTrueDistillation, TeacherFreeNotTrue, Distillation]
)
def test_strength_multiplies_the_term(kind: type[Part]) -> None:
    one, three = (term(kind(beta=beta, tau=2.0), counts=counts_of({0, 1})) for beta in (1.0, 3.0))
    assert one > 0.01
    torch.testing.assert_close(three, 3 * one)


def test_cross_entropy_of_the_example_matches_the_spec() -> None:
    assert F.cross_entropy(Z, Y).item() == pytest.approx(0.440190, abs=TINY)
    assert F.cross_entropy(Z_G, Y).item() > 1


@pytest.mark.parametrize("method", ["fedavg-kd", "fedntd"])
def test_cross_entropy_keeps_weight_one(method: str) -> None:
    """Teacher = student at the first step, so the term and its gradient are 0 and one step equals FedAvg's."""
    plain = last_model(federation("fedavg", local=ONE_STEP), 1)
    actual = last_model(federation([{method: {"beta": 0.7}}], local=ONE_STEP), 1)
    torch.testing.assert_close(actual, plain, rtol=1e-12, atol=1e-14)
    two = ONE_STEP | {"epochs": 2}
    apart = [last_model(federation(m, local=two), 1) for m in ("fedavg", [{method: {"beta": 0.7}}])]
    assert any(not torch.allclose(apart[0][n], apart[1][n], rtol=1e-6) for n in apart[0]), "no term at the second step"


@pytest.mark.parametrize("method", ["fedrs", "fedlc", "fedls"])
def test_the_model_is_scored_without_scale_shift_or_smoothing(method: str) -> None:
    fed = federation(method)
    ((snap, _),) = run_rounds(fed, 1)
    x, y = fed.engine.context.splits["test"][:2]
    net = network().double()
    net.load_state_dict(snap.model)
    want = F.cross_entropy(net(x.double()), y, reduction="sum").item()
    assert fed.engine.evaluate(1, fed.received(snap), "test").loss == pytest.approx(want, rel=1e-9)
