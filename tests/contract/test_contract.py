"""What every method must hold in every engine. A method registered tomorrow is tested without further code."""

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
from unskew.wire.message import replies_one_by_one

TOLERANCE = {"rtol": 1e-9, "atol": 1e-11}
FAST = tuple(engine for engine in ENGINES if engine != "plain")
# The tests of the server's checks and of saving take long and gain nothing from the plain engine, which keeps no state.
fast_engines = pytest.mark.parametrize("engine", FAST)


def played(fed: Federation, rounds: int = 2) -> tuple[Snapshot, list[RoundReport], list]:
    """A federation after some rounds: state, reports, ledger."""
    snap, reports, ledger = fed.start(), [], []
    for _ in range(rounds):
        snap, report = fed.play(snap)
        fed.store.commit()
        reports.append(report)
        ledger += snap.ledger.entries
    return snap, reports, ledger


class Played(NamedTuple):
    """Two rounds: all that a federation remembers and tells, by name, and its ledger."""

    told: dict[str, torch.Tensor]
    ledger: list


@cache
def outcome(method: str, engine: str, norm: bool) -> Played:
    """Played once for all tests that only look at it."""
    return everything(federation(method, engine, norm))


def everything(fed: Federation) -> Played:
    """Two rounds of a federation."""
    snap, reports, ledger = played(fed)
    terms = {
        str(i): {
            str(k): {p: torch.tensor(v, dtype=torch.float64) for p, v in one.items()} for k, one in r.terms.items()
        }
        for i, r in enumerate(reports)
    }
    clients = {str(k): tree for k, tree in fed.store.entries.items()}
    score = fed.engine.evaluate(2, fed.received(snap), "test")
    told = {"confusion": score.confusion, "loss": torch.tensor(score.loss, dtype=torch.float64)}
    tree = {"model": snap.model, "parts": snap.parts, "clients": clients, "terms": terms, "score": told}
    return Played(flatten(tree), ledger)


def assert_as_plain(found: dict[str, torch.Tensor], plain: dict[str, torch.Tensor]) -> None:
    """The same names with the same numbers."""
    assert found.keys() == plain.keys()
    for name in plain:
        torch.testing.assert_close(found[name], plain[name], msg=lambda text, n=name: f"{n}: {text}", **TOLERANCE)


@pytest.mark.parametrize("norm", [False, True], ids=["no-norm", "batchnorm"])
@fast_engines
def test_every_engine_equals_plain(method: str, engine: str, norm: bool) -> None:
    assert_as_plain(outcome(method, engine, norm).told, outcome(method, "plain", norm).told)


@pytest.mark.parametrize("policy", ["local", "frozen", "group"])
def test_every_engine_equals_plain_under_every_batchnorm_policy(method: str, policy: str) -> None:
    """And under `local` no tensor of a BatchNorm leaves a client."""
    feds = {engine: federation(method, engine, True, model={"batchnorm": policy}) for engine in ENGINES}
    told = {engine: everything(fed).told for engine, fed in feds.items()}
    for engine in FAST:
        assert_as_plain(told[engine], told["plain"])
    if policy == "local":
        fed = replace(feds["plain"], keeps=lambda round, client: True)
        kept = fed.play(fed.start())[0].ledger.kept
        assert kept
        assert not [name for _, _, value in kept for name in as_state(value) if name in fed.model.private]


@fast_engines
def test_every_engine_sends_what_plain_sends(method: str, engine: str) -> None:
    """The ledgers agree entry by entry."""
    assert outcome(method, engine, False).ledger == outcome(method, "plain", False).ledger


def test_order_of_clients_changes_nothing(method: str, engine: str) -> None:
    """Each client's outcome, whoever is trained before it; the stack may round differently."""
    fed = federation(method, engine)
    snap, received = fed.start(), None
    snap, _ = fed.play(snap)
    fed.store.commit()
    received = fed.received(snap)
    there = {o.client: o for o in replies_one_by_one(fed.engine.train(2, received, [0, 1, 2], fed.store.get))}
    back = {o.client: o for o in replies_one_by_one(fed.engine.train(2, received, [2, 0, 1], fed.store.get))}
    assert list(back) == [2, 0, 1]
    for k in there:
        for one, other in ((there[k].message, back[k].message), (there[k].client_state, back[k].client_state)):
            torch.testing.assert_close(flatten(other), flatten(one), **TOLERANCE)


def test_training_changes_none_of_its_inputs(method: str, engine: str) -> None:
    fed = federation(method, engine, norm=True)
    snap, _ = fed.play(fed.start())
    fed.store.commit()
    received, mine = fed.received(snap), {k: fed.store.get(k) for k in range(3)}
    before = {
        name: t.clone()
        for name, t in flatten({"r": received._asdict(), "m": {str(k): m for k, m in mine.items()}}).items()
    }
    list(fed.engine.train(2, received, [0, 1, 2], mine.__getitem__))
    after = flatten({"r": received._asdict(), "m": {str(k): m for k, m in mine.items()}})
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_only_declared_artefacts_leave(method: str, engine: str) -> None:
    """What the engine hands out and what the ledger lists is what the parts declare, and nothing else."""
    made = experiment(method).create_method()
    declared = {("model", "weights", "down"), ("model", "samples", "up")}
    for part in made.parts:
        declared |= {(part.name, name, "up") for name in (*part.sends, *part.shares)}
        declared |= {(part.name, name, "down") for name in part.broadcasts}
    seen = {(entry.part, entry.artefact, entry.direction) for entry in outcome(method, engine, False).ledger}
    assert seen <= declared
    owner = next(part for part in made.parts if part.owner)
    assert any((owner.name, name, "up") in seen for name in owner.sends)


@pytest.mark.parametrize("hook", ["up", "down", "share"])
@fast_engines
def test_undeclared_artefact_is_refused(method: str, engine: str, hook: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any part that starts to send something it did not declare stops the run by name."""
    if hook == "share" and not any(part.exchange for part in experiment(method).create_method().parts):
        return
    fed = federation(method, engine)
    for part in fed.method.parts:
        if hook == "share" and part.exchange is None:
            continue
        plain = getattr(type(part), hook)

        def leaky(self: Any, seen: Any, plain: Any = plain) -> Any:
            sent = plain(self, seen)
            secret = {"secret": torch.zeros(1)}
            return sent | secret if hook == "down" else (sent[0] | secret, sent[1])

        with monkeypatch.context() as patch:
            patch.setattr(type(part), hook, leaky)
            with pytest.raises(UserError, match=f"{part.name}.*secret"):
                played(fed)
        fed.store.rollback()


# Its clients differ in shape and are stacked in other groups than the parent's, and on some processors BLAS rounds a
# batched product by the size of its batch: these parts are compared in stacks of one client.
SPLITS_STACKS = ("test-own",)


def neutral_cases() -> list[tuple[str, str]]:
    """(method, part) for every part that declares values at which it does nothing."""
    found = {}
    for name in method_registry.known():
        for part in method_registry.resolve(name):
            if method_registry.PARTS[part].neutral:
                found.setdefault(part, name)
    return [(name, part) for part, name in found.items()]


@pytest.mark.parametrize(("name", "part"), neutral_cases())
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_neutral_values_give_the_parent(name: str, part: str, precision: str, engine: str) -> None:
    """Bit for bit: the method without the part, or with the plain owner or objective in its place.

    On a net without BatchNorm: there a further pass through the net changes running statistics at any coefficient.
    """
    cls = method_registry.PARTS[part]
    base = [other for other in method_registry.resolve(name) if other != part]
    base += ["average"] * cls.owner + ["ce"] * cls.objective
    feds = [federation(spec, engine, precision=precision) for spec in ([name, {part: dict(cls.neutral)}], base)]
    for fed in feds:
        if engine == "stacked" and part in SPLITS_STACKS:
            fed.engine.limit = 1
    ours, parent = (played(fed)[0].model for fed in feds)
    assert all(torch.equal(ours[tensor], parent[tensor]) for tensor in parent)


@pytest.mark.parametrize("method", METHODS)
def test_every_hyper_parameter_is_reachable_by_override(method: str) -> None:
    for name in method_registry.resolve(method):
        fields = hyper_parameters(method_registry.PARTS[name]())
        for field, default in fields.items():
            value = other_value(name, field, default)
            _, made = load("quick", [f"method={method}", f"method.{name}.{field}={value}"])
            got = next(part for part in made.create_method().parts if part.name == name)
            assert getattr(got, field) == value != default


def other_value(part: str, field: str, default: Any) -> Any:
    """A valid value that is not the default."""
    if isinstance(default, bool):
        return not default
    if isinstance(default, str):
        return next(word for word in get_args(get_type_hints(method_registry.PARTS[part])[field]) if word != default)
    for value in (0.5, 0.25, 2.0, 1, 2, 3):
        try:
            made = method_registry.PARTS[part](**{field: value})
        except ValidationError:
            continue
        if getattr(made, field) != default:
            return getattr(made, field)
    raise AssertionError(f"no other value found for {part}.{field}; teach this test its type")


@fast_engines
def test_save_load_continue(method: str, engine: str, tmp_path: Path) -> None:
    """Stopped after round 1 and resumed from the folder alone: the same model, client state and rows to the byte."""

    def stop(phase: str, round: int) -> None:
        if (phase, round) == ("merge", 2):
            raise KeyboardInterrupt

    setting = experiment(method, engine)
    with pytest.raises(KeyboardInterrupt):
        us.run(setting, out=tmp_path / "a", data=dataset(True), model=network(True), phase=stop)
    resumed = us.run(setting, out=tmp_path / "a", data=dataset(True), model=network(True), resume=True)
    whole = us.run(setting, out=tmp_path / "b", data=dataset(True), model=network(True))
    assert resumed.metrics.equals(whole.metrics)
    assert resumed.ledger.equals(whole.ledger)
    for name in ("model.safetensors", "checkpoint/000002-end/server.safetensors"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name
    assert client_states(tmp_path / "a") == client_states(tmp_path / "b")


@pytest.mark.parametrize("method", ["scaffold", "test-all"])
def test_save_load_continue_with_the_plain_engine(method: str, tmp_path: Path) -> None:
    test_save_load_continue(method, "plain", tmp_path)


def client_states(folder: Path) -> dict[str, bytes]:
    """What the folder keeps of each client."""
    named = json.loads((folder / "checkpoint" / "manifest.json").read_text())["clients"]
    return {client: (folder / entry["file"]).read_bytes() for client, entry in named.items()}


@fast_engines
def test_any_filler_gives_the_same_gradients(method: str, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without BatchNorm a weight-0 sample changes nothing, whichever row it is."""
    plain = outcome(method, engine, False).told
    orders, changed = Plan.orders, []

    def other_filler(self: Plan, round: int, clients: Any, rows: Any, work: Any) -> Any:
        made = orders(self, round, clients, rows, work)
        for n, order in zip(rows, made):
            filled = np.where(weights(n, work) > 0, order, 0)
            changed.append(bool((filled != order).any()))
            order[:] = filled
        return made

    monkeypatch.setattr(Plan, "orders", other_filler)
    other = everything(federation(method, engine)).told
    assert any(changed)
    for name in plain:
        torch.testing.assert_close(other[name], plain[name], msg=lambda text, n=name: f"{n}: {text}", **TOLERANCE)
