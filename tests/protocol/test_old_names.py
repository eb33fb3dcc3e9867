"""Names of the version before keep working: a part written with them trains the same model as one with today's."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

import unskew as us
from unskew.protocol import method_registry
from unskew.protocol.update_codec import UpdateLocation


def last_model(method: str, folder: Path) -> dict[str, Tensor]:
    experiment = us.Experiment(method=method, rounds=2, data="digits", participation=0.2)
    us.run(experiment, out=folder)
    return dict(us.load(folder).model.state_dict())


def test_a_part_with_old_names_trains_the_same_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(method_registry, "PARTS", method_registry.PARTS.copy())

    @us.part("test-new-names")
    class NewNames(us.Part):
        strength: float = 1.0
        sends = {"total": us.Artefact("other", reduce="mean")}
        broadcasts = {"total": us.Artefact("other")}

        def at_round(self, round, work):
            return replace(self, strength=self.strength / round), work

        def label_stats(self, counts):
            return {"rare": (counts < counts.mean()).to(counts.dtype)}

        def server_init(self, model, task):
            return {"total": torch.zeros(1)}

        def client_init(self, model, client):
            return {"rounds": torch.zeros(1)}

        def down(self, server):
            return dict(server.part_state)

        def loss(self, view):
            rare = view.label_stats(self)["rare"][view.y]
            scale = self.strength / (1 + view.part_state["rounds"].sum() + view.received["total"].sum())
            return scale * view.mean(rare * view.logits.pow(2).mean(1))

        def up(self, end):
            return {"total": end.part_state["rounds"] + 1}, {"rounds": end.part_state["rounds"] + 1}

        def merge(self, server, messages):
            return server.replace(part_state={"total": server.part_state["total"] + messages.mean("total")})

    @us.part("test-old-names")
    class OldNames(us.Part):
        strength: float = 1.0
        sends = NewNames.sends
        broadcasts = NewNames.broadcasts
        server_init = NewNames.server_init
        client_init = NewNames.client_init

        def now(self, round, work):
            return replace(self, strength=self.strength / round), work

        def known(self, counts):
            return {"rare": (counts < counts.mean()).to(counts.dtype)}

        def down(self, server):
            return dict(server.mine)

        def loss(self, view):
            rare = view.known(self)["rare"][view.y]
            scale = self.strength / (1 + view.mine["rounds"].sum() + view.received["total"].sum())
            return scale * view.mean(rare * view.logits.pow(2).mean(1))

        def up(self, end):
            return {"total": end.mine["rounds"] + 1}, {"rounds": end.mine["rounds"] + 1}

        def merge(self, server, messages):
            return server.replace(mine={"total": server.mine["total"] + messages.mean("total")})

    new, old = (last_model(f"fedavg+test-{age}-names", tmp_path / age) for age in ("new", "old"))
    plain = last_model("fedavg", tmp_path / "plain")
    assert all(torch.equal(new[name], old[name]) for name in new)
    assert any(not torch.equal(new[name], plain[name]) for name in new)


def test_hooks_of_a_base_class_are_called_by_either_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(method_registry, "PARTS", method_registry.PARTS.copy())

    @us.part("test-base")
    class Base(us.Part):
        strength: float = 1.0

        def at_round(self, round, work):
            return replace(self, strength=self.strength / round), work

    @us.part("test-old-child")
    class OldChild(Base):
        def now(self, round, work):
            part, work = super().now(round, work)
            return replace(part, strength=part.strength + 1), work

        def known(self, counts):
            return super().known(counts) | {"n": counts}

    @us.part("test-new-child")
    class NewChild(OldChild):
        def at_round(self, round, work):
            part, work = super().at_round(round, work)
            return replace(part, strength=2 * part.strength), work

    counts = torch.ones(3)
    assert OldChild().at_round(4, None)[0].strength == 1.25
    assert NewChild().now(4, None)[0].strength == NewChild().at_round(4, None)[0].strength == 2.5
    assert OldChild().label_stats(counts) == NewChild().known(counts) == {"n": counts}


def test_old_names_of_classes_and_methods() -> None:
    weights = {"w": torch.ones(2)}
    message = {"average": {"weights": weights}}
    update = us.OutgoingUpdate(message, UpdateLocation("average", "weights", False), {"w": torch.zeros(2)}, ("w",))
    assert us.Letter is us.OutgoingUpdate
    assert us.Loaded is us.LoadedRun
    assert update.sealed({"w": {"half": weights["w"]}})["average"]["weights"].keys() == {"w half"}
    assert update.opened({"w": 3 * weights["w"]})["average"]["weights"]["w"].tolist() == [3, 3]
    assert us.Experiment().counting() == us.Experiment().identity_settings()
    assert us.Dataset.preparer is us.Dataset.input_scaling
    assert us.LoadedRun.given.fget is not None
