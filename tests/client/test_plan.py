"""Every random choice of a client depends only on its key: orders of rows, streams, and the parts' draws."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import unskew as us
from unskew.base.keyed_rng import hash_key
from unskew.client.feed import BatchFeed
from unskew.client.plan import Plan
from unskew.client.round import StepInputs
from unskew.protocol import method_registry
from unskew.protocol.part import Part, Sizes, Stream
from unskew.protocol.work import Work
from unskew.runner.prepare_run import prepare

PLAN = Plan(seed=5)


def test_equal_keys_give_equal_numbers() -> None:
    a, b = (torch.from_numpy(PLAN.generator(3, 7, "order").random(8)) for _ in range(2))
    assert torch.equal(a, b)


@pytest.mark.parametrize("key", [(4, 7, "order"), (3, 8, "order"), (3, 7, "other"), (3, "7", "order"), (37, "order")])
def test_different_keys_give_different_numbers(key: tuple[int | str, ...]) -> None:
    a, b = (torch.from_numpy(PLAN.generator(*k).random(8)) for k in ((3, 7, "order"), key))
    assert not torch.equal(a, b)


def test_seed_is_part_of_every_key() -> None:
    a, b = (torch.from_numpy(Plan(seed).generator(1).random(8)) for seed in (5, 6))
    assert not torch.equal(a, b)


@settings(max_examples=60, deadline=None)
@given(rows=st.integers(1, 40), batch=st.integers(1, 12), epochs=st.integers(1, 3), round=st.integers(1, 5))
def test_every_epoch_is_a_permutation(rows: int, batch: int, epochs: int, round: int) -> None:
    """Each real row once per epoch; filler has weight 0, only at the end of the epoch, from the same client."""
    order = PLAN.order(round, 2, rows, Work(batch=batch, lr=0.1, epochs=epochs))
    per_epoch = -(-rows // batch)
    assert order.index.shape == order.weight.shape == (epochs * per_epoch, batch)
    assert int(order.index.min()) >= 0
    assert int(order.index.max()) < rows
    for index, weight in zip(order.index.view(epochs, -1), order.weight.view(epochs, -1)):
        assert weight.tolist() == [1.0] * rows + [0.0] * (per_epoch * batch - rows)
        assert sorted(index[weight > 0].tolist()) == list(range(rows))


def test_every_epoch_is_shuffled_again() -> None:
    order = PLAN.order(1, 2, 30, Work(batch=10, lr=0.1, epochs=3))
    epochs = {tuple(e.tolist()) for e in order.index.view(3, -1)}
    assert len(epochs) == 3
    assert tuple(range(30)) not in epochs


def test_order_depends_on_round_and_client_only() -> None:
    work = Work(batch=10, lr=0.1)
    first = PLAN.order(1, 2, 30, work).index
    assert torch.equal(first, PLAN.order(1, 2, 30, Work(batch=10, lr=0.9, optimiser="adam", scope="step")).index)
    assert not torch.equal(first, PLAN.order(2, 2, 30, work).index)
    assert not torch.equal(first, PLAN.order(1, 3, 30, work).index)


def test_a_client_smaller_than_a_batch_gets_filler() -> None:
    """Three rows in a batch of eight: three real ones, then the same three repeated as filler."""
    order = PLAN.order(1, 0, 3, Work(batch=8, lr=0.1, epochs=2))
    assert order.index.shape == (2, 8)
    assert order.weight.sum(1).tolist() == [3.0, 3.0]
    assert torch.equal(order.index[:, 3:6], order.index[:, :3])
    assert torch.equal(order.index[:, 6:], order.index[:, :2])


def test_a_number_of_steps_ends_training_within_an_epoch() -> None:
    """Ten rows in batches of 4 are 3 steps an epoch; 5 steps are the first 5 of two epochs."""
    short, full = (PLAN.order(1, 0, 10, Work(batch=4, lr=0.1, epochs=2, steps=steps)) for steps in (5, None))
    assert torch.equal(short.index, full.index[:5])
    assert short.weight.sum(1).tolist() == [4.0, 4.0, 2.0, 4.0, 4.0]


@pytest.mark.parametrize("steps", [None, 5])
def test_a_client_without_rows_takes_no_steps(steps: int | None) -> None:
    order = PLAN.order(1, 0, 0, Work(batch=4, lr=0.1, steps=steps))
    assert order.index.shape == order.weight.shape == (0, 4)


def test_orders_of_many_clients_equal_those_of_each() -> None:
    """One generator is reset for each client; the previous client's draws must have no effect."""
    clients, rows, work = [3, 0, 17, 4], [10, 30, 1, 0], Work(batch=5, lr=0.1, epochs=2)
    for k, n, index in zip(clients, rows, PLAN.orders(2, clients, rows, work), strict=True):
        assert np.array_equal(index, PLAN.order(2, k, n, work).index)
        assert np.array_equal(index[:2].flatten()[:n], PLAN.generator(2, k, "order").permutation(n)[:10])


def test_dropout_seeds_equal_those_drawn_by_integers() -> None:
    """Odd and even numbers of steps, so that some clients leave half of a word unused."""
    clients, steps = [3, 0, 17, 4, 9], [5, 8, 0, 1, 200]
    for k, n, seeds in zip(clients, steps, PLAN.step_seeds(2, clients, steps), strict=True):
        drawn = PLAN.generator(2, k, "dropout").integers(2**31, size=n)
        assert seeds.dtype == drawn.dtype
        assert np.array_equal(seeds, drawn)


def test_the_generator_equals_numpys_philox_with_the_same_key() -> None:
    key = hash_key(PLAN.seed, 3, 7, "order", bits=128)
    same = np.random.Generator(np.random.Philox(key=key))
    assert np.array_equal(PLAN.generator(3, 7, "order").random(9), same.random(9))


def test_a_stream_cycles_through_its_rows() -> None:
    """Five rows, 4 steps of 3: two full passes and two more rows."""
    rows = Stream(torch.zeros(5, 2), torch.zeros(5))
    index = PLAN.stream_order(1, 0, "public", rows, 4, 3).flatten()
    assert sorted(index[:5].tolist()) == sorted(index[5:10].tolist()) == list(range(5))
    assert len(set(index[10:].tolist())) == 2


def test_every_pass_over_a_stream_is_shuffled_again() -> None:
    """30 rows, 9 steps of 10: three passes, each a permutation and none in the order of another."""
    rows = Stream(torch.zeros(30, 2), torch.zeros(30))
    passes = [p.tolist() for p in PLAN.stream_order(1, 0, "public", rows, 9, 10).view(3, 30)]
    assert all(sorted(each) == list(range(30)) for each in passes)
    assert len({tuple(each) for each in (*passes, range(30))}) == 4


def test_a_uniform_stream_draws_with_replacement() -> None:
    """1000 draws of 5 rows: each about 200 times, standard deviation 12.6, five of them allowed."""
    rows = Stream(torch.zeros(5, 2), torch.zeros(5), order="uniform")
    counts = torch.bincount(PLAN.stream_order(1, 0, "public", rows, 100, 10).flatten(), minlength=5)
    assert len(counts) == 5
    assert (counts - 200).abs().max() < 63


class ManyDraws(Part):
    """A part that draws many random numbers."""

    def draws(self, when: str, sizes: Sizes, generator: np.random.Generator) -> dict:
        return {"u": generator.random((max(sizes.steps, 1), 100))}


def test_draws_of_a_part_depend_on_occasion_client_and_round() -> None:
    sizes = Sizes(rows=9, steps=3, batch=4, classes=2, streams={})

    def draw(when: str = "steps", round: int = 1, client: int = 0) -> Tensor:
        return PLAN.part_draws(ManyDraws(), when, round, client, sizes)["u"]

    assert torch.equal(draw(), draw())
    for other in (draw(when="share"), draw(round=2), draw(client=1)):
        assert not torch.equal(draw(), other)
    assert torch.equal(draw(when="init"), draw(when="init", round=2))
    assert not torch.equal(draw(when="init"), draw(when="init", client=1))


def first_steps(method: str) -> list[StepInputs]:
    """Inputs of two clients' first steps in round 2, images augmented."""
    x = np.random.default_rng(0).integers(0, 256, (24, 1, 4, 4)).astype("uint8")
    data = us.from_arrays(x, np.arange(24) % 3, test=0.25)
    experiment = us.Experiment(
        method=method,
        partition={"name": "iid", "clients": 3},
        data={"augment": {"crop": 1, "flip": True, "cutout": 2}},
        local={"batch": 4, "epochs": 2},
        device="cpu",
        engine={"name": "loop", "workers": 1},
    )
    fed = prepare(experiment, data=data, model=nn.Sequential(nn.Flatten(), nn.Linear(16, 3))).federation
    received = fed.received(fed.start())
    context = fed.engine.context
    cohort = BatchFeed(context, context.client_rows, 2, received, [0, 2], [fed.store.get(k) for k in (0, 2)])
    return [cohort.at(step, 2) for step in range(min(cohort.steps))]


def test_another_part_does_not_change_other_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches, augmentation and dropout seeds are equal in all methods, also with a part that draws many numbers."""
    method_registry.method_names()
    monkeypatch.setattr(method_registry, "PARTS", dict(method_registry.PARTS))
    method_registry.part("many-draws")(ManyDraws)
    plain = first_steps("fedavg")
    assert len(plain) >= 4
    for method in ("many-draws+fedavg", "fedavg+many-draws", "scaffold", "moon"):
        for a, b in zip(plain, first_steps(method), strict=True):
            torch.testing.assert_close((a.batch, a.clock), (b.batch, b.clock), rtol=0, atol=0)
            assert ("many-draws" in b.draws) == ("many-draws" in method)


def test_the_header_lists_absent_clients_and_empty_rounds() -> None:
    absence = [
        {"clients": [0, 1], "rounds": [2, 4]},
        {"clients": [2], "rounds": [3, 4]},
        {"clients": [1], "rounds": [9, 10]},
    ]
    partition = {"name": "iid", "clients": 3}
    lines = prepare(us.Experiment(rounds=5, partition=partition, absence=absence, engine={"name": "stacked"})).header
    assert [line.split(maxsplit=1)[1] for line in lines if line.startswith("absence")] == [
        "2 clients are absent in rounds 2 to 3",
        "client 2 is absent in round 3",
        "no client is present in 1 of the rounds, first in round 3: the model stays unchanged",
    ]
