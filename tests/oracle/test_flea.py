"""FLea: the mixed loss, the gradients of its terms, the buffer and its owners, exposure, and the released rules."""

from typing import Any

import numpy as np
import pytest
import torch
from toolbox import equal, federation, last_model, leaves_of, network, run_rounds, server, view_of
from torch import Tensor, nn
from torch.nn import functional as F

from unskew.base.errors import UserError
from unskew.methods.flea import FLea
from unskew.methods.shared.distance_corr import distance_correlation
from unskew.methods.shared.shared_subset import draw_subset
from unskew.models.model import Model
from unskew.protocol.method import Method
from unskew.protocol.part import Sizes
from unskew.protocol.step_view import Batch, View
from unskew.protocol.work import Work
from unskew.server.round_messages import PartMessages
from unskew.server.sampling import Sampling

SIZES = (30, 25, 1, 8)  # with a tenth: 3, 2, 1 and 1 rows in the buffer
MODEL = Model(network(), dtype=torch.float64)


def rows(b: int, d: int, seed: int = 0) -> Tensor:
    return torch.randn(b, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def step(beta: float | None = None, moved: float = 0.0, w: Tensor | None = None) -> tuple[View, dict[str, Tensor]]:
    """A step of four rows; beta: mix with a buffer; moved: distance of the local model from the received one."""
    away = {name: moved * torch.arange(t.numel()).sin().view_as(t) for name, t in leaves_of(MODEL).items()}
    leaves = {name: (t.detach() + away[name]).requires_grad_() for name, t in leaves_of(MODEL).items()}
    fields: dict[str, Any] = {}
    if beta is not None:
        buffered = Batch(rows(4, 6, 5).relu().requires_grad_(), torch.tensor([2, 2, 1, 0]), torch.ones(4).double())
        fields = {"streams": {"buffer": buffered}, "draws": {"beta": torch.full((4,), beta, dtype=torch.float64)}}
    return view_of(MODEL, leaves, rows(4, 5), torch.tensor([0, 1, 2, 0]), w, **fields), leaves


def test_beta_one_is_cross_entropy_and_beta_zero_is_that_of_the_buffer() -> None:
    part = FLea(lam1=0, lam2=0)
    view, _ = step(1.0)
    assert part.loss(view)[0].item() == pytest.approx(F.cross_entropy(view.logits, view.y).item(), rel=1e-14)
    view, _ = step(0.0)
    buffered = view.stream("buffer")
    want = F.cross_entropy(view.run(buffered.x, 1), buffered.y)
    assert part.loss(view)[0].item() == pytest.approx(want.item(), rel=1e-14)


def test_the_loss_is_the_sum_of_the_three_terms_on_mixed_features() -> None:
    view, leaves = step(0.3, moved=0.1)
    total, logged = FLea(lam1=0.5, lam2=2.0).loss(view)
    buffered, f = view.stream("buffer"), MODEL.run(leaves, view.x, 0, 1)
    mixed = 0.3 * f + 0.7 * buffered.x
    z, z_t = MODEL.run(leaves, mixed, 1), MODEL.run(MODEL.initial, mixed, 1)
    soft = 0.3 * F.one_hot(view.y, 3).double() + 0.7 * F.one_hot(buffered.y, 3).double()
    clf = F.cross_entropy(z, soft)
    dis = F.kl_div(z.log_softmax(1), z_t.softmax(1), reduction="batchmean")
    c = distance_correlation(view.x, f, view.w).c
    for name, want in {"clf": clf, "dis": dis, "c": c}.items():
        assert logged[name].item() == pytest.approx(want.item(), rel=1e-12), name
    assert total.item() == pytest.approx((clf + 0.5 * dis + 2 * c).item(), rel=1e-12)
    assert dis.item() > 1e-4


def test_filler_rows_are_ignored() -> None:
    """The last of four rows has weight 0: the loss is that of the first three."""
    view, _ = step(0.3, 0.1, torch.tensor([1.0, 1, 1, 0], dtype=torch.float64))
    total, _ = FLea().loss(view)
    buffered = view.stream("buffer")
    fields = {
        "streams": {"buffer": Batch(buffered.x[:3], buffered.y[:3], buffered.w[:3])},
        "draws": {"beta": view.draws["beta"][:3]},
    }
    real = view_of(MODEL, view.parameters, view.x[:3], view.y[:3], **fields)
    assert total.item() == pytest.approx(FLea().loss(real)[0].item(), rel=1e-12)


@pytest.mark.parametrize("beta", [None, 0.3])
def test_distillation_is_zero_at_the_received_model(beta: float | None) -> None:
    view, leaves = step(beta)
    _, logged = FLea().loss(view)
    assert logged["dis"].item() == 0
    gradients = torch.autograd.grad(logged["dis"], list(leaves.values()))
    assert max(g.abs().max().item() for g in gradients) < 1e-15


@pytest.mark.parametrize("rules", ["paper", "released"])
def test_the_head_learns_from_all_terms_the_tail_not_from_the_decorrelation_the_buffer_from_none(rules: str) -> None:
    view, leaves = step(0.3, moved=0.1)
    _, logged = FLea(rules=rules).loss(view)
    head, tail, buffered = leaves["0.0.weight"], leaves["1.weight"], view.stream("buffer").x
    reaches = {
        name: [
            g is not None and bool(g.abs().max() > 1e-9)
            for g in torch.autograd.grad(logged[name], (head, tail, buffered), allow_unused=True, retain_graph=True)
        ]
        for name in ("clf", "dis", "c")
    }
    mixes = rules == "paper"  # the released code distils on buffered features only, which the head did not compute
    assert reaches == {"clf": [True, True, False], "dis": [mixes, True, False], "c": [True, False, False]}
    assert all(not t.requires_grad for t in view.start.values())
    assert not any(logged[name].requires_grad for name in ("c by chance", "c2 corrected"))
    assert not view.teacher.run(buffered, 1).requires_grad


@pytest.mark.parametrize("norm", [False, True])
def test_without_buffer_and_strengths_a_round_is_fedavg(norm: bool) -> None:
    """Bit for bit: in the first round with any fraction, and in all rounds if nothing is shared."""
    off = {"lam1": 0.0, "lam2": 0.0}
    first = [last_model(federation([{"flea": off}], norm=norm), 1), last_model(federation("fedavg", norm=norm), 1)]
    assert equal(*first)
    unshared = last_model(federation([{"flea": off | {"fraction": 0.0}}], norm=norm), 3)
    assert equal(unshared, last_model(federation("fedavg", norm=norm), 3))
    assert not equal(
        last_model(federation([{"flea": off}], norm=norm), 2), last_model(federation("fedavg", norm=norm), 2)
    )


def test_buffer_holds_features_of_the_last_rounds_clients_by_the_new_model() -> None:
    fed = federation("flea", SIZES, participation=0.5, norm=True)
    source = fed.engine.context.client_rows
    for snap, report in run_rounds(fed, 4):
        state, clients = snap.parts["flea"], fed.sampling.sampled(snap.round)
        assert sorted(set(state["owners"].tolist())) == clients
        assert report.numbers["flea/owners"] == len(clients)
        for k in clients:
            pick = fed.engine.context.plan.part_draws(fed.method.parts[-1], "init", 0, k, Sizes(SIZES[k], 0, 4, 3, {}))[
                "pick"
            ]
            buffered = source.index[k][pick]
            want = fed.model.run(snap.model, source.prepare(source.x[buffered]), 0, 1)
            torch.testing.assert_close(state["features"][state["owners"] == k], want, rtol=1e-12, atol=1e-13)
            assert torch.equal(state["labels"][state["owners"] == k], source.y[buffered])


def test_sizes_of_the_shares_and_of_the_buffer_are_recorded() -> None:
    """Every client shares at least one row; the label histogram adds up."""
    *_, (snap, report) = run_rounds(federation("flea", SIZES), 2)
    assert torch.bincount(snap.parts["flea"]["owners"]).tolist() == [3, 2, 1, 1]
    assert report.numbers["flea/buffer"] == 7
    assert sum(report.numbers[f"flea/buffer/{c}"] for c in range(3)) == 7
    assert {e.client: e.bytes for e in snap.ledger.entries if (e.artefact, e.direction) == ("labels", "up")} == {
        0: 24, 1: 16, 2: 8, 3: 8,
    }  # fmt: skip
    assert set(report.terms[2]) == {
        "flea", "flea clf", "flea dis", "flea c", "flea c by chance", "flea c2 corrected",
    }  # fmt: skip
    assert report.terms[2]["flea c"] == 0


def test_a_share_that_rounds_to_zero_is_recorded_with_zero_bytes() -> None:
    """Released rule: int(0.1 n) rows, so clients of 1 and 8 rows have an entry of 0 bytes; they still train."""
    fed = federation([{"flea": {"rules": "released"}}], SIZES)
    *_, (snap, report) = run_rounds(fed, 2)
    assert set(snap.parts["flea"]["owners"].tolist()) == {0, 1}
    assert {e.client: e.bytes for e in snap.ledger.entries if (e.artefact, e.direction) == ("features", "up")} == {
        0: 3 * 48, 1: 2 * 48, 2: 0, 3: 0,
    }  # fmt: skip
    assert set(report.terms) == {0, 1, 2, 3}


def test_a_buffer_without_one_class_works() -> None:
    fed = federation("flea", (1, 3))
    reports = [report for _, report in run_rounds(fed, 3)]
    assert 0 in [reports[-1].numbers[f"flea/buffer/{c}"] for c in range(3)]
    assert all(np.isfinite(list(terms.values())).all() for report in reports for terms in report.terms.values())


def test_features_live_for_one_round() -> None:
    """All clients are absent in round 2, so the buffer is empty, and round 3 trains without it."""
    away = [{"clients": [0, 1, 2, 3], "rounds": [2, 3]}]
    snaps = [snap for snap, _ in run_rounds(federation("flea", SIZES, absence=away), 3)]
    assert [len(snap.parts["flea"]["owners"]) for snap in snaps] == [7, 0, 7]
    assert not [e for e in snaps[2].ledger.entries if e.kind == "features" and e.direction == "down"]


def test_a_client_shares_the_same_rows_every_time() -> None:
    fed = federation("flea", SIZES)
    labels = [snap.parts["flea"]["labels"] for snap, _ in run_rounds(fed, 3)]
    assert all(torch.equal(labels[0], later) for later in labels[1:])
    assert not fed.store.entries


def test_subset_sizes_follow_the_paper_or_the_released_code() -> None:
    draw = np.random.default_rng(0)
    assert [len(draw_subset(draw, n, 0.1, 1, False)) for n in (1, 14, 16, 25, 100)] == [1, 1, 2, 2, 10]
    assert [len(draw_subset(draw, n, 0.1, 0, True)) for n in (10, 19, 100)] == [1, 1, 10]
    assert draw_subset(draw, 9, 0.1, 0, True).tolist() == draw_subset(draw, 4, 0.1, 0, False).tolist() == [-1]
    assert len(set(draw_subset(draw, 50, 1.0, 1, False).tolist())) == 50
    assert len(set(draw_subset(draw, 50, 1.0, 1, True).tolist())) < 50


def test_exposure_counts_pairs_of_owner_and_receiver() -> None:
    """Pairs are ordered; compared with a simulation of the sampling; 0 in round 1."""
    fed = federation("flea", (4,) * 8, participation=0.5)
    pairs: set[tuple[int, int]] = set()
    for snap, report in run_rounds(fed, 5):
        before, clients = fed.sampling.sampled(snap.round - 1), fed.sampling.sampled(snap.round)
        pairs |= {(i, j) for i in before for j in clients} if snap.round > 1 else set()
        assert report.numbers["flea/exposure"] == pytest.approx(100 * len(pairs) / 64)


@pytest.mark.papers
def test_exposure_is_39_percent_in_round_50_with_a_tenth_of_the_clients() -> None:
    """1 - 0.99^49 = 38.9 %, from `collect` and `report` with 200 clients."""
    sampling, part = Sampling(0, 200, 0.1), FLea()
    current = server({}, part.server_init(MODEL, server({}).task), clients=200)
    for round in range(1, 51):
        shared = PartMessages()
        for k in sampling.sampled(round):
            sent = {"features": torch.zeros(1, 1, 6), "labels": torch.zeros(1, 1).long()}
            shared.add_rows([k], [1], [1.0], sent, [0], part.shares)
        current = part.collect(current, shared)
        if round == 1:
            assert part.report(current)["exposure"] == 0
    assert part.report(current)["exposure"] == pytest.approx(38.9, abs=2)


def test_mixing_weights_are_drawn_for_each_sample() -> None:
    beta = FLea(a=2.0).draws("steps", Sizes(100, 50, 32, 10, {}), np.random.default_rng(0))["beta"]
    assert beta.shape == (50, 32)
    assert beta.mean() == pytest.approx(0.5, abs=0.02)
    assert beta.var() == pytest.approx(0.05, abs=0.005)  # the variance of Beta(2, 2)


def test_released_preset_changes_epochs_and_strengths_by_round() -> None:
    """Round 1: three times the epochs and half of lambda1; lambda2 is 3, 2.9, ... down to 1 from round 21 on."""
    part = FLea(rules="released")
    work = Work(batch=4, lr=0.1, epochs=5)
    (first, longer), (second, same) = part.at_round(1, work), part.at_round(2, work)
    assert (longer.epochs, same.epochs, longer.steps) == (15, 5, None)
    assert (first.lam1, second.lam1) == (0.5, 1.0)
    actual = [part.at_round(t, work)[0].lam2 for t in (1, 2, 11, 20, 21, 60)]
    assert actual == pytest.approx([3, 2.9, 2.0, 1.1, 1.0, 1.0])
    assert FLea().at_round(1, work) == (FLea(), work)


def test_released_loss_adds_cross_entropy_of_own_rows_and_distils_on_the_unmixed_buffer() -> None:
    view, leaves = step(0.3, moved=0.1)
    total, logged = FLea(rules="released").loss(view)
    buffered = view.stream("buffer")
    z, z_t = MODEL.run(leaves, buffered.x, 1), MODEL.run(MODEL.initial, buffered.x, 1)
    dis = F.kl_div(z.log_softmax(1), z_t.softmax(1), reduction="batchmean")
    plain, _ = step(0.3, moved=0.1)
    mixed = FLea(rules="paper").loss(plain)[1]["clf"]
    own = F.cross_entropy(MODEL.run(leaves, view.x), view.y)
    assert logged["dis"].item() == pytest.approx(dis.item(), rel=1e-12)
    assert logged["clf"].item() == pytest.approx((own + mixed).item(), rel=1e-12)
    assert total.item() == pytest.approx((logged["clf"] + dis + 3 * logged["c"]).item(), rel=1e-12)


def test_released_passes_through_the_tail_are_own_mixed_and_buffered_rows_in_this_order() -> None:
    """BatchNorm in the tail: its running mean after the step is that of ordinary PyTorch in the authors' order."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        net = nn.Sequential(nn.Linear(5, 6), nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 3))).double()
    model, beta = Model(net, dtype=torch.float64), torch.tensor([0.2, 0.9, 0.5, 0.4], dtype=torch.float64)
    buffered = Batch(rows(4, 6, 5), torch.tensor([2, 2, 1, 0]), torch.ones(4).double())
    fields: dict[str, Any] = {"streams": {"buffer": buffered}, "draws": {"beta": beta}}
    view = view_of(model, leaves_of(model), rows(4, 5), torch.tensor([0, 1, 2, 0]), **fields)
    FLea(rules="released").loss(view)
    f = net[0](rows(4, 5))
    net.train()
    for h in (f, beta[:, None] * f + (1 - beta[:, None]) * buffered.x, buffered.x):
        net[1](h)
    (mean,) = [name for name in model.buffers if name.endswith("running_mean")]
    torch.testing.assert_close(view._pass.buffers[mean], net[1][0].running_mean, rtol=1e-12, atol=1e-14)


def test_the_preset_of_the_run_is_used_unless_the_part_has_its_own() -> None:
    work = Work(batch=4, lr=0.1)
    for rules in ("paper", "released"):
        assert federation("flea", rules=rules).method.parts[-1].rules == rules
        fixed = Method((FLea(rules="paper"), federation("fedavg").method.parts[1]), rules)
        assert fixed.build(work).parts[0].rules == "paper"


def test_default_cut_depends_on_the_network() -> None:
    for name, cut in {"mobilenet_v2": 1, "audionet": 2, "harnet": 2, "cnn": 1}.items():
        net = Model(network(), name)
        assert FLea()._cut(net) == cut
        assert FLea(cut=3)._cut(net) == 3
    with pytest.raises(UserError, match=r"method.flea.cut: expected 1 to 1 for custom, found 2"):
        federation([{"flea": {"cut": 2}}]).start()


def test_traffic_is_the_model_twice_and_the_buffer() -> None:
    """Down: w, F, and w again after the merge. Up: w, n_k, and the shared features and labels."""
    first, (snap, _) = run_rounds(federation("flea", SIZES), 2)
    size = sum(t.numel() * 8 for t in MODEL.initial.values())
    sent_bytes = {(e.phase, e.artefact, e.direction): e.bytes for e in snap.ledger.entries if e.client == 1}
    assert sent_bytes == {
        ("train", "weights", "down"): size,
        ("train", "features", "down"): 7 * 48,
        ("train", "labels", "down"): 7 * 8,
        ("train", "samples", "up"): 8,
        ("train", "weights", "up"): size,
        ("after merge", "weights", "down"): size,
        ("after merge", "features", "up"): 2 * 48,
        ("after merge", "labels", "up"): 16,
    }
    assert not [e for e in first[0].ledger.entries if e.kind == "features" and e.direction == "down"]
    assert {e.kind for e in snap.ledger.entries} == {"weights", "counts", "features", "labels"}


def test_a_buffer_of_another_size_reuses_the_step() -> None:
    """The stacked engine reuses the memory of the previous round, whatever the length of the buffer."""
    fed = federation("flea", SIZES, participation=0.5, engine={"name": "stacked"})
    stacks, sizes = [], set()
    for snap, report in run_rounds(fed, 5):
        sizes.add(report.numbers["flea/buffer"])
        stacks.append(fed.engine._stack)  # type: ignore[attr-defined]
        assert snap.round == len(stacks)
    assert len(sizes) > 1
    assert len({id(stack) for stack in stacks[1:]}) == 1
    assert stacks[0] is not stacks[1]
