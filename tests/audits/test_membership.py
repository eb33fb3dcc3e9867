"""Membership inference on small models of real digits."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch

import unskew as us
from unskew.audits.membership.loss_scores import LabelledRows, losses, score_by_gain
from unskew.audits.membership.membership_attack import attack_model, attack_update
from unskew.audits.membership.shadow_models import confidence, score_by_shadows, train_shadows
from unskew.audits.membership.shadow_training import client_trainer, run_trainer
from unskew.base.tree import State
from unskew.data.digits import digits
from unskew.models import Model, build
from unskew.protocol.work import Work

LONG = Work(batch=20, lr=0.1, epochs=60, momentum=0.9)
SHORT = Work(batch=20, lr=0.1, epochs=5, momentum=0.9)


@cache
def _rows() -> tuple[LabelledRows, LabelledRows, LabelledRows]:
    """Members, non-members, and the attacker's rows; some labels are wrong, because digits are too easy otherwise."""
    data = digits()
    wrong = torch.rand(len(data.train), generator=torch.Generator().manual_seed(0)) < 0.2
    other = torch.randint(0, 10, (len(data.train),), generator=torch.Generator().manual_seed(1))
    rows = LabelledRows(data.prepare(data.train.x), torch.where(wrong, other, data.train.y))
    index = np.random.default_rng(1).permutation(len(rows))  # digits are sorted by writer
    return rows.take(index[:200]), rows.take(index[200:800]), rows.take(index[800:])


@cache
def _model() -> Model:
    return build("mlp", (1, 8, 8), 10, seed=0)


@cache
def _overfitted() -> State:
    return client_trainer(_model(), _model().initial, LONG)(_rows()[0], 5)


def test_an_overfitted_model_reveals_its_members() -> None:
    members, others, _ = _rows()
    assert losses(_model(), _overfitted(), members).mean() < 0.1
    (result,) = attack_model(_model(), _overfitted(), members, others)
    assert result.roc.auc.low > 0.6
    assert result.attack == "loss threshold"


def test_an_untrained_model_reveals_no_members() -> None:
    members, others, _ = _rows()
    (result,) = attack_model(_model(), _model().initial, members, others)
    assert result.roc.auc.low < 0.5 < result.roc.auc.high


def test_shadow_models_find_more_members_at_low_fpr_than_the_loss_and_none_in_an_untrained_model() -> None:
    members, others, known = _rows()
    trained = train_shadows(client_trainer(_model(), _model().initial, LONG), known.take(np.arange(400)), count=8)
    plain, shadow = attack_model(_model(), _overfitted(), members, others, trained)
    assert shadow.roc.auc.low > 0.6
    assert shadow.roc.rates[1].tpr.value > 3 * plain.roc.rates[1].tpr.value + 3
    nothing = attack_model(_model(), _model().initial, members, others, trained)[1].roc.auc
    assert nothing.low < 0.5 < nothing.high
    assert "AUC" in shadow.summary


def test_an_update_reveals_its_rows_and_an_empty_update_does_not() -> None:
    members, others, known = _rows()
    before = client_trainer(_model(), _model().initial, SHORT)(known, 1)
    after = client_trainer(_model(), before, SHORT)(members, 2)
    trained = train_shadows(client_trainer(_model(), before, SHORT), known, count=4, share=0.25)
    gain, shadow = attack_update(_model(), before, after, members, others, trained)
    assert gain.roc.auc.low > 0.5
    assert shadow.roc.auc.low > 0.5
    assert (gain.attack, shadow.attack) == ("loss gain", "shadow updates")
    assert score_by_gain(_model(), before, before, members).tolist() == [0.0] * len(members)


def test_confidence_is_the_log_odds_of_the_label_and_stays_finite() -> None:
    model, rows = _model(), _rows()[0]
    odds = torch.softmax(model.run(model.initial, rows.x).double(), 1).gather(1, rows.y[:, None])[:, 0]
    np.testing.assert_allclose(confidence(model, model.initial, rows), torch.log(odds / (1 - odds)).numpy(), atol=1e-9)
    sure = {name: leaf * 1e3 if name.startswith("1.") else leaf for name, leaf in _overfitted().items()}
    assert np.isfinite(confidence(model, sure, rows)).all()


def test_a_shadow_trains_as_plain_torch_does() -> None:
    members = _rows()[0]
    work = Work(batch=len(members), lr=0.05, epochs=3, momentum=0.9, weight_decay=1e-3)
    result = client_trainer(_model(), _model().initial, work)(members, 0)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    with torch.no_grad():
        for slot, leaf in zip(net.parameters(), (_model().initial[name] for name in _model().parameters)):
            slot.copy_(leaf)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    for _ in range(3):  # the whole set is one batch, so its order does not matter
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(net(members.x), members.y).backward()
        optimiser.step()
    for name, slot in zip(_model().parameters, net.parameters()):
        assert torch.allclose(result[name], slot, atol=1e-5)


def test_a_shadow_of_a_run_trains_as_many_epochs_and_updates_running_statistics() -> None:
    members = _rows()[0].take(np.arange(40))
    model = build("resnet8", (1, 8, 8), 10, seed=0)
    work = Work(batch=40, lr=0.01, epochs=2)
    state = run_trainer(model, model.initial, work, rounds=5, participation=0.2)(members, 0)
    counters = [int(state[name]) for name, role in model.roles.items() if role == "counter"]
    assert set(counters) <= {2}  # 5 rounds, a fifth of the clients, 2 epochs of one batch
    moved = [name for name in model.buffers if not torch.equal(state[name], model.initial[name])]
    assert moved
    assert all(
        torch.equal(leaf, build("resnet8", (1, 8, 8), 10, seed=0).initial[n]) for n, leaf in model.initial.items()
    )


def test_the_same_seed_gives_the_same_shadows() -> None:
    known = _rows()[2].take(np.arange(60))
    train = client_trainer(_model(), _model().initial, SHORT)
    one, two = (train_shadows(train, known, count=2, seed=3) for _ in range(2))
    assert all(torch.equal(a[name], b[name]) for a, b in zip(one, two) for name in a)
    assert score_by_shadows(_model(), one[0], known, one).shape == (60,)


def test_scores_do_not_depend_on_which_candidates_are_members() -> None:
    members, others, known = _rows()
    trained = train_shadows(client_trainer(_model(), _model().initial, SHORT), known, count=2)
    forward = attack_model(_model(), _overfitted(), members, others, trained)[1].roc
    swapped = attack_model(_model(), _overfitted(), others, members, trained)[1].roc
    assert forward.auc.value == pytest.approx(1 - swapped.auc.value)


def test_a_shadow_never_sees_a_row_twice_and_shadows_see_different_rows() -> None:
    """Each shadow gets half of 60 rows, drawn without replacement, with their labels."""
    known, drawn = LabelledRows(torch.arange(60.0)[:, None], 100 + torch.arange(60)), list[LabelledRows]()
    train_shadows(lambda rows, seed: drawn.append(rows) or {}, known, count=8, seed=3)
    sets = [frozenset(rows.x[:, 0].tolist()) for rows in drawn]
    assert [len(rows) for rows in drawn] == [len(rows) for rows in sets] == [30] * 8
    assert len(set(sets)) == 8
    assert all(torch.equal(rows.y, 100 + rows.x[:, 0].long()) for rows in drawn)


def test_a_shadow_on_all_known_rows_sees_each_of_them_once() -> None:
    known, drawn = LabelledRows(torch.arange(20.0)[:, None], torch.arange(20)), list[LabelledRows]()
    train_shadows(lambda rows, seed: drawn.append(rows) or {}, known, count=2, share=1.0)
    assert all(sorted(rows.y.tolist()) == list(range(20)) for rows in drawn)


def test_one_shadow_is_too_few() -> None:
    with pytest.raises(us.UserError, match="at least 2 shadow models"):
        train_shadows(client_trainer(_model(), _model().initial, SHORT), _rows()[2], count=1)
