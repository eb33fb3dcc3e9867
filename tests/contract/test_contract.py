"""Guarantees of every method in every engine. A newly registered method is tested without further code."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

import numpy as np
import parts  # noqa: F401  (registers the test-only methods)
import pytest
import torch
from pydantic import ValidationError
from small import ENGINES, METHODS, dataset, experiment, federation, network

import unskew as us
from unskew.base.errors import UserError
from unskew.base.tree import as_state, flatten
from unskew.client.plan import Plan, weights
from unskew.config.recipe import load
from unskew.protocol import method_registry
from unskew.protocol.method import hyper_parameters
from unskew.server.federation import Federation
from unskew.server.snapshot import RoundReport, Snapshot
from unskew.wire.requests_and_replies import replies_one_by_one

TOLERANCE = {"rtol": 1e-9, "atol": 1e-11}
FAST = tuple(engine for engine in ENGINES if engine != "plain")
# The slow tests of the server's checks and of checkpoints skip the plain engine, which has no state of its own.
fast_engines = pytest.mark.parametrize("engine", FAST)


def run_rounds(fed: Federation, rounds: int = 2) -> tuple[Snapshot, list[RoundReport], list]:
    """Run some rounds: snapshot, reports, ledger."""
    snap, reports, ledger = fed.start(), [], []
    for _ in range(rounds):
        snap, report = fed.run_round(snap)
        fed.store.commit()
        reports.append(report)
        ledger += snap.ledger.entries
    return snap, reports, ledger


class Result(NamedTuple):
    """The state and reports of a federation by name, and its ledger."""

    tensors: dict[str, torch.Tensor]
    ledger: list


@cache
def result_of(method: str, engine: str, norm: bool) -> Result:
    """Two rounds of a method, run once for all tests that only read the result."""
    return run_two_rounds(federation(method, engine, norm))


def run_two_rounds(fed: Federation) -> Result:
    """The state and reports of a federation after two rounds, and its ledger."""
    snap, reports, ledger = run_rounds(fed)
    terms = {
        str(i): {
            str(k): {p: torch.tensor(v, dtype=torch.float64) for p, v in one.items()} for k, one in r.terms.items()
        }
        for i, r in enumerate(reports)
    }
    clients = {str(k): tree for k, tree in fed.store.entries.items()}
    score = fed.engine.evaluate(2, fed.received(snap), "test")
    scores = {"confusion": score.confusion, "loss": torch.tensor(score.loss, dtype=torch.float64)}
    tree = {"model": snap.model, "parts": snap.parts, "clients": clients, "terms": terms, "score": scores}
    return Result(flatten(tree), ledger)


def assert_equal_to_plain(result: dict[str, torch.Tensor], plain: dict[str, torch.Tensor]) -> None:
    """The same names with the same numbers."""
    assert result.keys() == plain.keys()
    for name in plain:
        torch.testing.assert_close(result[name], plain[name], msg=lambda text, n=name: f"{n}: {text}", **TOLERANCE)


@pytest.mark.parametrize("norm", [False, True], ids=["no-norm", "batchnorm"])
@fast_engines
def test_every_engine_equals_plain(method: str, engine: str, norm: bool) -> None:
    assert_equal_to_plain(result_of(method, engine, norm).tensors, result_of(method, "plain", norm).tensors)


@pytest.mark.parametrize("policy", ["local", "frozen", "group"])
def test_every_engine_equals_plain_under_every_batchnorm_policy(method: str, policy: str) -> None:
    """Under `local`, moreover, no tensor of a BatchNorm leaves a client."""
    feds = {engine: federation(method, engine, True, model={"batchnorm": policy}) for engine in ENGINES}
    tensors = {engine: run_two_rounds(fed).tensors for engine, fed in feds.items()}
    for engine in FAST:
        assert_equal_to_plain(tensors[engine], tensors["plain"])
    if policy == "local":
        fed = replace(feds["plain"], should_record=lambda round, client: True)
        recorded = fed.run_round(fed.start())[0].ledger.recorded
        assert recorded
        assert not [name for _, _, value in recorded for name in as_state(value) if name in fed.model.private]


@fast_engines
def test_every_engine_sends_the_same_as_plain(method: str, engine: str) -> None:
    """The ledgers agree entry by entry."""
    assert result_of(method, engine, False).ledger == result_of(method, "plain", False).ledger


def test_order_of_clients_does_not_change_replies(method: str, engine: str) -> None:
    """A reply does not depend on the clients trained before; a stack may round differently."""
    fed = federation(method, engine)
    snap, received = fed.start(), None
    snap, _ = fed.run_round(snap)
    fed.store.commit()
    received = fed.received(snap)
    forward = {o.client: o for o in replies_one_by_one(fed.engine.train(2, received, [0, 1, 2], fed.store.get))}
    reordered = {o.client: o for o in replies_one_by_one(fed.engine.train(2, received, [2, 0, 1], fed.store.get))}
    assert list(reordered) == [2, 0, 1]
    for k in forward:
        for one, other in (
            (forward[k].message, reordered[k].message),
            (forward[k].client_state, reordered[k].client_state),
        ):
            torch.testing.assert_close(flatten(other), flatten(one), **TOLERANCE)


def test_training_changes_none_of_its_inputs(method: str, engine: str) -> None:
    fed = federation(method, engine, norm=True)
    snap, _ = fed.run_round(fed.start())
    fed.store.commit()
    received, states = fed.received(snap), {k: fed.store.get(k) for k in range(3)}
    before = {
        name: t.clone()
        for name, t in flatten({"r": received._asdict(), "m": {str(k): m for k, m in states.items()}}).items()
    }
    list(fed.engine.train(2, received, [0, 1, 2], states.__getitem__))
    after = flatten({"r": received._asdict(), "m": {str(k): m for k, m in states.items()}})
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_only_declared_artefacts_leave(method: str, engine: str) -> None:
    """The ledger lists only artefacts that the parts declare."""
    parts_of_method = experiment(method).create_method().parts
    declared = {("model", "weights", "down"), ("model", "samples", "up")}
    for part in parts_of_method:
        declared |= {(part.name, name, "up") for name in (*part.sends, *part.shares)}
        declared |= {(part.name, name, "down") for name in part.broadcasts}
    sent = {(entry.part, entry.artefact, entry.direction) for entry in result_of(method, engine, False).ledger}
    assert sent <= declared
    owner = next(part for part in parts_of_method if part.owner)
    assert any((owner.name, name, "up") in sent for name in owner.sends)


@pytest.mark.parametrize("hook", ["up", "down", "share"])
@fast_engines
def test_undeclared_artefact_is_refused(method: str, engine: str, hook: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that sends an undeclared artefact stops the run with an error that names it."""
    if hook == "share" and not any(part.exchange for part in experiment(method).create_method().parts):
        return
    fed = federation(method, engine)
    for part in fed.method.parts:
        if hook == "share" and part.exchange is None:
            continue
        plain = getattr(type(part), hook)

        def leaky(self: Any, view: Any, plain: Any = plain) -> Any:
            sent = plain(self, view)
            secret = {"secret": torch.zeros(1)}
            return sent | secret if hook == "down" else (sent[0] | secret, sent[1])

        with monkeypatch.context() as patch:
            patch.setattr(type(part), hook, leaky)
            with pytest.raises(UserError, match=f"{part.name}.*secret"):
                run_rounds(fed)
        fed.store.rollback()


# The states of these parts' clients differ in shape, so clients are stacked in other groups than the parent's, and on
# some CPUs BLAS rounds a batched matmul depending on the batch size: these parts are compared in stacks of one client.
SPLITS_STACKS = ("test-own",)


def neutral_cases() -> list[tuple[str, str]]:
    """(method, part) for every part that declares values at which it has no effect."""
    cases = {}
    for name in method_registry.method_names():
        for part in method_registry.resolve(name):
            if method_registry.PARTS[part].neutral:
                cases.setdefault(part, name)
    return [(name, part) for part, name in cases.items()]


@pytest.mark.parametrize(("name", "part"), neutral_cases())
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_neutral_values_equal_the_parent_method(name: str, part: str, precision: str, engine: str) -> None:
    """Bit for bit: the method without the part, or with the plain owner or objective in its place.

    On a net without BatchNorm, because a further pass would change its running statistics at any coefficient.
    """
    cls = method_registry.PARTS[part]
    base = [other for other in method_registry.resolve(name) if other != part]
    base += ["average"] * cls.owner + ["ce"] * cls.objective
    feds = [federation(spec, engine, precision=precision) for spec in ([name, {part: dict(cls.neutral)}], base)]
    for fed in feds:
        if engine == "stacked" and part in SPLITS_STACKS:
            fed.engine.limit = 1
    neutral, parent = (run_rounds(fed)[0].model for fed in feds)
    assert all(torch.equal(neutral[tensor], parent[tensor]) for tensor in parent)


@pytest.mark.parametrize("method", METHODS)
def test_every_hyper_parameter_is_reachable_by_override(method: str) -> None:
    for name in method_registry.resolve(method):
        fields = hyper_parameters(method_registry.PARTS[name]())
        for field, default in fields.items():
            value = other_value(name, field, default)
            _, experiment = load("quick", [f"method={method}", f"method.{name}.{field}={value}"])
            changed = next(part for part in experiment.create_method().parts if part.name == name)
            assert getattr(changed, field) == value != default


def other_value(part: str, field: str, default: Any) -> Any:
    """A valid value that is not the default."""
    if isinstance(default, bool):
        return not default
    if isinstance(default, str):
        return next(word for word in get_args(get_type_hints(method_registry.PARTS[part])[field]) if word != default)
    for value in (0.5, 0.25, 2.0, 1, 2, 3):
        try:
            changed = method_registry.PARTS[part](**{field: value})
        except ValidationError:
            continue
        if getattr(changed, field) != default:
            return getattr(changed, field)
    raise AssertionError(f"no other value found for {part}.{field}; add its type to this test")


@fast_engines
def test_interrupted_and_resumed_run_is_equal(method: str, engine: str, tmp_path: Path) -> None:
    """Stopped in round 2 and resumed from the folder: the same model, client state and rows, byte for byte."""

    def stop(phase: str, round: int) -> None:
        if (phase, round) == ("merge", 2):
            raise KeyboardInterrupt

    settings = experiment(method, engine)
    with pytest.raises(KeyboardInterrupt):
        us.run(settings, out=tmp_path / "a", data=dataset(True), model=network(True), phase=stop)
    resumed = us.run(settings, out=tmp_path / "a", data=dataset(True), model=network(True), resume=True)
    uninterrupted = us.run(settings, out=tmp_path / "b", data=dataset(True), model=network(True))
    assert resumed.metrics.equals(uninterrupted.metrics)
    assert resumed.ledger.equals(uninterrupted.ledger)
    for name in ("model.safetensors", "checkpoint/000002-end/server.safetensors"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name
    assert client_states(tmp_path / "a") == client_states(tmp_path / "b")


@pytest.mark.parametrize("method", ["scaffold", "test-all"])
def test_interrupted_and_resumed_run_is_equal_with_the_plain_engine(method: str, tmp_path: Path) -> None:
    test_interrupted_and_resumed_run_is_equal(method, "plain", tmp_path)


def client_states(folder: Path) -> dict[str, bytes]:
    """The saved state of each client."""
    named = json.loads((folder / "checkpoint" / "manifest.json").read_text())["clients"]
    return {client: (folder / entry["file"]).read_bytes() for client, entry in named.items()}


@fast_engines
def test_filler_rows_do_not_change_gradients(method: str, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without BatchNorm a row of weight 0 has no effect, whichever row it is."""
    plain = result_of(method, engine, False).tensors
    orders, changed = Plan.orders, []

    def other_filler(self: Plan, round: int, clients: Any, rows: Any, work: Any) -> Any:
        positions = orders(self, round, clients, rows, work)
        for n, order in zip(rows, positions):
            filled = np.where(weights(n, work) > 0, order, 0)
            changed.append(bool((filled != order).any()))
            order[:] = filled
        return positions

    monkeypatch.setattr(Plan, "orders", other_filler)
    other = run_two_rounds(federation(method, engine)).tensors
    assert any(changed)
    for name in plain:
        torch.testing.assert_close(other[name], plain[name], msg=lambda text, n=name: f"{n}: {text}", **TOLERANCE)
