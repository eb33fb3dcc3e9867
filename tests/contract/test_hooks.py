"""Guarantees of the federation to parts, one per test, in every engine where an engine is involved."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import parts
import pytest
import torch
from pydantic import Field
from small import dataset, experiment, federation, network

import unskew as us
from unskew.base.tree import State
from unskew.engines.stacked import stacked_engine as stacked
from unskew.protocol import method_registry
from unskew.protocol.method import Method
from unskew.protocol.work import clip_gradients
from unskew.server.round_messages import PartMessages

SUM, MEAN = {"n": us.Artefact("counts", reduce="sum")}, {"n": us.Artefact("statistics", reduce="mean")}


def test_sum_of_integers_adds_up() -> None:
    messages = PartMessages()
    for client, counts in enumerate(([1, 2], [10, 20])):
        messages.add_rows([client], [1], [1.0], {"n": torch.tensor(counts)[None]}, [0], SUM)
    assert messages.sum("n").tolist() == [11, 22]


def test_mean_is_over_the_clients_that_sent_it() -> None:
    messages = PartMessages()
    messages.add_rows([0], [3], [3.0], {}, [0], MEAN)
    messages.add_rows([1], [1], [1.0], {"n": torch.tensor([4.0])}, [0], MEAN)
    assert messages.mean("n") == 4.0


@pytest.mark.parametrize("when", ["before round", "after merge"])
def test_newcomers_share_once(when: str, engine: str, fedavg_with: Any) -> None:
    class Once(us.Part):
        exchange = us.Exchange(when, who="newcomers", model=False)
        shares = {"n": us.Artefact("counts", reduce="sum")}

        def share(self, client: us.Client) -> tuple[dict, State]:
            return {"n": client.facts.rows}, {}

    fed = federation(fedavg_with(Once), engine, rounds=3)
    snap, shared = fed.start(), []
    for _ in range(3):
        snap, _ = fed.run_round(snap)
        shared.append(sorted(e.client for e in snap.ledger.entries if e.part == "spy"))
    assert shared == [[0, 1, 2], [], []]


@pytest.mark.parametrize("when", ["before round", "after merge"])
def test_an_exchange_every_third_round_runs_in_rounds_3_6_and_9(when: str, engine: str, fedavg_with: Any) -> None:
    """Rounds are counted from 1, so the first exchange follows two rounds without one."""

    class EveryThird(us.Part):
        exchange = us.Exchange(when, every=3, model=False)
        shares = {"n": us.Artefact("counts", reduce="sum")}

        def share(self, client: us.Client) -> tuple[dict, State]:
            return {"n": client.facts.rows}, {}

    fed = federation(fedavg_with(EveryThird), engine, rounds=10, absence=[])
    snap, rounds = fed.start(), []
    for _ in range(10):
        snap, _ = fed.run_round(snap)
        rounds += [snap.round] if any(e.part == "spy" for e in snap.ledger.entries) else []
    assert rounds == [3, 6, 9]


@pytest.mark.parametrize("method", ["spy+fedavg", "fedavg+spy"])
def test_merge_sees_the_old_model_wherever_the_part_is_listed(method: str, fedavg_with: Any) -> None:
    """The owner of the model merges last; `step` comes after it and sees the new model."""
    models: dict[str, list[State]] = {"merge": [], "step": []}

    class Watch(us.Part):
        def merge(self, server: us.Server, messages: us.Messages) -> us.Server:
            models["merge"].append(server.model)
            return server

        def step(self, server: us.Server) -> us.Server:
            models["step"].append(server.model)
            return server

    fedavg_with(Watch)
    fed = federation(method)
    first = fed.start()
    second, _ = fed.run_round(first)
    third, _ = fed.run_round(second)
    assert [part.owner for part in fed.method.merge_order] == [False, False, True]
    assert not any(torch.equal(first.model[name], second.model[name]) for name in first.model)
    for where, want in {"merge": [first, second], "step": [second, third]}.items():
        for model, snap in zip(models[where], want, strict=True):
            assert all(torch.equal(model[name], tensor) for name, tensor in snap.model.items()), where


@pytest.mark.parametrize("policy", ["average", "local"])
def test_model_that_was_not_sent_is_unavailable(policy: str, engine: str, fedavg_with: Any) -> None:
    class Peek(us.Part):
        exchange = us.Exchange("after merge", model=False)
        shares = {"f": us.Artefact("features", reduce="rows")}

        def share(self, client: us.Client) -> tuple[dict, State]:
            x, _, keep = client.rows(client.positions)
            return {"f": us.Rows(client.at(x, 1), keep)}, {}

    fed = federation(fedavg_with(Peek), engine, True, model={"batchnorm": policy})
    with pytest.raises(us.UserError, match="model=True"):
        fed.run_round(fed.start())


def test_pick_past_the_last_row_returns_no_row(fedavg_with: Any) -> None:
    """In a stack smaller clients are padded; a pick in the padding must not return another client's row."""

    class Greedy(us.Part):
        exchange = us.Exchange("after merge", model=False)
        shares = {"x": us.Artefact("raw", reduce="rows")}

        def share(self, client: us.Client) -> tuple[dict, State]:
            x, _, keep = client.rows(torch.tensor([0, 10]))
            return {"x": us.Rows(x, keep)}, {}

    fed = replace(federation(fedavg_with(Greedy), "stacked"), should_record=lambda round, client: True)
    snap, _ = fed.run_round(fed.start())
    shared = {f"{e.client}-after-merge": len(x) for e, _, x in snap.ledger.recorded if e.part == "spy"}
    assert shared == {"0-after-merge": 2, "1-after-merge": 1, "2-after-merge": 1}


def test_fields_are_floats_in_draws_and_streams_and_tensors_in_losses(engine: str, fedavg_with: Any) -> None:
    types: dict[str, set[type]] = {}

    class Types(us.Part):
        p: float = Field(0.5)

        exchange = us.Exchange("after merge", model=False)

        def client_init(self, model: Any, client: us.Newcomer) -> State:
            return {"id": torch.tensor(client.id)}

        def note(self, where: str) -> None:
            types.setdefault(where, set()).add(type(self.p))

        def draws(self, when: str, sizes: us.Sizes, generator: np.random.Generator) -> dict:
            self.note(when)
            return {}

        def streams(self, received: dict, part_state: State) -> dict:
            self.note("streams")
            return {}

        def loss(self, view: us.View) -> None:
            self.note("loss")

    fed = federation(fedavg_with(Types), engine)
    fed.run_round(fed.start())
    assert types == {name: {float} for name in ("init", "steps", "share", "streams")} | {"loss": {torch.Tensor}}


def test_evaluation_uses_the_parts_of_the_round(engine: str, fedavg_with: Any, tmp_path: Path) -> None:
    """A part that broadcasts its own field: training and evaluation of round 2 see the value of round 2."""
    received_values: set[tuple[bool, float]] = set()

    class Scaled(us.Part):
        s: float = Field(1.0)

        broadcasts = {"s": us.Artefact("control")}

        def at_round(self, round: int, work: Any) -> tuple[Any, Any]:
            return type(self)(s=10.0 * round), work

        def down(self, server: us.Server) -> dict:
            return {"s": torch.tensor(self.s)}

        def batch(self, batch: us.Batch, received: dict, train: bool) -> us.Batch:
            if not train:
                received_values.add((bool(received["s"] == self.s), float(received["s"])))
            return batch

    us.run(experiment(fedavg_with(Scaled), engine), out=tmp_path / "run", data=dataset(), model=network(False))
    assert received_values == {(True, 10.0), (True, 20.0)}


def test_exchanges_of_several_parts_are_recorded_in_one_file_per_phase(
    engine: str, fedavg_with: Any, tmp_path: Path
) -> None:
    class First(us.Part):
        exchange = us.Exchange("after merge", model=False)
        shares = {"n": us.Artefact("counts", reduce="sum")}

        def share(self, client: us.Client) -> tuple[dict, State]:
            return {"n": client.facts.rows}, {}

    class Second(First):
        pass

    class Last(First):
        exchange = us.Exchange("at the end", model=False)

    for name, cls in (("spy", First), ("spy-2", Second), ("spy-3", Last)):
        fedavg_with(cls, name)
    settings = experiment("fedavg+spy+spy-2+spy-3", engine, record={"rounds": [2], "clients": [0]})
    us.run(settings, out=tmp_path / "run", data=dataset(), model=network(False))
    recorded = {path.name: set(torch_names(path)) for path in (tmp_path / "run" / "messages").glob("*.safetensors")}
    assert recorded["000002-0-after-merge.safetensors"] == {"spy/n", "spy-2/n"}
    assert recorded["000002-0-at-the-end.safetensors"] == {"spy-3/n"}
    assert {name.split("/")[0] for name in recorded["000002-0.safetensors"]} == {"average", "model"}


def torch_names(path: Path) -> list[str]:
    from safetensors.torch import load_file

    return list(load_file(path))


@pytest.mark.parametrize("other", ["data", "model"])
def test_resume_with_other_data_or_model_is_refused(other: str, tmp_path: Path) -> None:
    def stop(phase: str, round: int) -> None:
        if (phase, round) == ("merge", 2):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        us.run(experiment("fedavg"), out=tmp_path, data=dataset(), model=network(False), phase=stop)
    rows = dataset()
    data = replace(rows, train=replace(rows.train, x=rows.train.x + 1)) if other == "data" else rows
    with pytest.raises(us.UserError, match=f"expected the {other}.* this run was started with"):
        us.run(experiment("fedavg"), out=tmp_path, data=data, model=network(other == "model"), resume=True)


def test_stored_state_is_no_view_of_a_stack(engine: str) -> None:
    fed = federation("moon", engine)
    fed.run_round(fed.start())
    fed.store.commit()
    for tree in fed.store.entries.values():
        assert all(t.untyped_storage().nbytes() == t.nbytes for t in tree["moon"].values())


def test_exchange_is_split_to_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    want, _ = federation("test-buffered", "stacked").run_round(federation("test-buffered", "stacked").start())
    cohorts, share = [], stacked.StackedEngine._share

    def counted(self: Any, round: int, part: str, received: Any, clients: list[int], states: Any) -> Any:
        cohorts.append(len(clients))
        if len(clients) > 1:
            raise torch.OutOfMemoryError
        return share(self, round, part, received, clients, states)

    monkeypatch.setattr(stacked.StackedEngine, "_share", counted)
    fed = federation("test-buffered", "stacked")
    got, _ = fed.run_round(fed.start())
    assert cohorts == [3, 1, 2, 1, 1]
    torch.testing.assert_close(got.parts["test-buffer"], want.parts["test-buffer"])


def test_two_leaves_that_share_a_gradient_are_clipped_once_each() -> None:
    """(3, 4) twice has norm sqrt(50): each leaf keeps (3, 4) / sqrt(50)."""
    grad = torch.tensor([3.0, 4.0])
    for clipped in clip_gradients([grad, grad], 1.0, stacked=False):
        torch.testing.assert_close(clipped, torch.tensor([3.0, 4.0]) / 50**0.5)


def test_an_exchange_at_the_end_has_no_newcomers() -> None:
    with pytest.raises(ValueError, match="no newcomers"):
        us.Exchange("at the end", who="newcomers")


def test_floats_become_tensors_in_a_copy_of_the_part() -> None:
    method = Method(method_registry.create(method_registry.resolve("fedprox")).parts)
    on_device = method.with_tensor_fields(torch.device("cpu"), torch.float64)
    assert isinstance(on_device.parts[2].mu, torch.Tensor)
    assert isinstance(method.parts[2].mu, float)
    assert set(parts.METHODS) <= set(method_registry.method_names())


@pytest.mark.parametrize("keys", [{"who": "newcomers"}, {"every": 2}])
def test_an_exchange_after_training_cannot_skip_clients_or_rounds(keys: dict) -> None:
    with pytest.raises(ValueError, match="runs in every client's round"):
        us.Exchange("after training", **keys)


def test_refused_share_does_not_change_the_clients_state(engine: str, fedavg_with: Any) -> None:
    """A share that is not finite: the whole message is refused and the old state stays."""

    class Once(us.Part):
        exchange = us.Exchange("after training")
        shares = {"n": us.Artefact("statistics", reduce="sum")}

        def client_init(self, model: Any, client: us.Newcomer) -> State:
            return {"rounds": torch.zeros(())}

        def share(self, client: us.Client) -> tuple[dict, State]:
            bad = (client.facts.rows > 10) & (client.part_state["rounds"] == 0) & (client.state["2.bias"][0] > -9)
            return {"n": torch.where(bad, torch.nan, 1.0)}, {"rounds": client.part_state["rounds"] + 1}

    fed = federation(fedavg_with(Once), engine, absence=[])
    snap, report = fed.run_round(fed.start())
    fed.store.commit()
    assert report.refused_clients == [0]
    assert 0 not in fed.store.entries
    assert {k: float(tree["spy"]["rounds"]) for k, tree in fed.store.entries.items()} == {1: 1.0, 2: 1.0}
    assert {e.client for e in snap.ledger.entries if e.part == "spy"} == {0, 1, 2}


@pytest.mark.parametrize("hook", ["step", "collect"])
def test_the_owner_may_change_the_model_after_the_merge(hook: str, fedavg_with: Any) -> None:
    federation("test-owned", "loop")  # registers AverageWithState

    class HalvingOwner(parts.AverageWithState):
        shares = {"n": us.Artefact("counts", reduce="sum")}
        exchange = us.Exchange("after merge")

        def share(self, client: us.Client) -> tuple[dict, State]:
            return {"n": client.facts.rows}, client.part_state

        def step(self, server: us.Server) -> us.Server:
            return self._halved(server) if hook == "step" else server

        def collect(self, server: us.Server, shared: us.Messages) -> us.Server:
            return self._halved(server) if hook == "collect" else server

        def _halved(self, server: us.Server) -> us.Server:
            return server.replace(model={name: t / 2 for name, t in server.model.items()})

    fed, plain = federation(fedavg_with(HalvingOwner), "loop"), federation("fedavg", "loop")
    (got, _), (want, _) = fed.run_round(fed.start()), plain.run_round(plain.start())
    torch.testing.assert_close(got.model, {name: t / 2 for name, t in want.model.items()})


@pytest.mark.parametrize("hook", ["merge", "step"])
def test_a_part_that_changes_a_model_it_does_not_own_is_refused_by_hook(hook: str, fedavg_with: Any) -> None:
    class Halving(us.Part):
        edits_model = hook == "merge"

    def halved(self: Any, server: us.Server, *_: Any) -> us.Server:
        return server.replace(model={name: t / 2 for name, t in server.model.items()})

    setattr(Halving, hook, halved)
    fed = federation(fedavg_with(Halving), "loop")
    with pytest.raises(
        us.UserError, match=rf"part spy: {hook}\(\) changed the model, which another part owns; .*edits_model"
    ):
        fed.run_round(fed.start())


def test_a_part_may_be_named_like_a_phase(fedavg_with: Any) -> None:
    """Contracts are cached by phase and part, so `training` as the name of a part is no other phase."""

    class Counting(us.Part):
        shares = {"n": us.Artefact("counts", reduce="sum")}
        exchange = us.Exchange("after merge")

        def share(self, client: us.Client) -> tuple[dict, State]:
            return {"n": client.facts.rows}, client.part_state

        def collect(self, server: us.Server, shared: us.Messages) -> us.Server:
            return server.replace(part_state={"n": shared.sum("n")})

    fed = federation(fedavg_with(Counting, "training"), "loop")
    snap, report = fed.run_round(fed.start())
    assert (snap.parts["training"]["n"], report.refused) == (18, [])
