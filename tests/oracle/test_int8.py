"""int8: integers times one step size per row, rounded stochastically without bias."""

import pytest
import torch
from sealing import outgoing, round_trip, tampered
from toolbox import federation, last_model, messages, run_rounds

from unskew.base.errors import UserError
from unskew.base.tree import size_in_bytes
from unskew.methods.int8 import Int8, quantise, restore

D = torch.tensor([[1.27, 0.005, -0.634, 0.0], [0.0, 0.0, 0.0, 0.0]], dtype=torch.float64)


def test_a_row_matches_a_calculation_by_hand() -> None:
    """Step 1.27 / 127 = 0.01: 127, 0.5, -63.4. With u = 0.45: 127, 0.95 -> 0, -62.95 -> -63; with 0.55: 1, -63."""
    code = quantise(D, torch.full_like(D, 0.45))
    assert code["int8"].tolist() == [[127, 0, -63, 0], [0, 0, 0, 0]]
    assert code["step"].flatten().tolist() == pytest.approx([0.01, 0.0], rel=1e-7)
    assert quantise(D, torch.full_like(D, 0.55))["int8"].tolist() == [[127, 1, -63, 0], [0, 0, 0, 0]]
    assert quantise(D, torch.full_like(D, 0.39))["int8"][0, 2] == -64
    assert restore(code, D)[0].tolist() == pytest.approx([1.27, 0.0, -0.63, 0.0], abs=1e-6)


def test_every_row_has_its_own_step_and_a_vector_is_one_row() -> None:
    d = torch.tensor([[1.0, -127.0], [0.5, 0.127]])
    assert quantise(d, torch.zeros_like(d))["step"].flatten().tolist() == pytest.approx([1.0, 0.5 / 127])
    assert quantise(d[0], torch.zeros(2))["step"].shape == (1,)
    assert quantise(d[0, 0], torch.zeros(()))["step"].shape == ()


def test_the_largest_entries_are_restored_without_overflow() -> None:
    d = torch.tensor([1.0, -1.0, 0.3])
    for u in (0.0, 0.5, 1 - 2.0**-24):
        code = quantise(d, torch.full_like(d, u))
        assert code["int8"][:2].tolist() in ([127, -127], [127, -126])
        assert (restore(code, d) - d).abs().max() <= 1.001 / 127


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_draw_near_one_rounds_no_integer_up(dtype: torch.dtype) -> None:
    """The largest draw is 1 - 2^-32; in float32 it is 1, and 3 plus even 1 - 2^-24 is 4."""
    integers = torch.arange(-127, 128, dtype=dtype)  # the step is 1
    for near in (2.0**-32, 2.0**-25, 2.0**-24):
        u = torch.full((255,), 1 - near, dtype=torch.float64)
        assert torch.equal(quantise(integers, u)["int8"], integers.to(torch.int8))
    between = torch.tensor([127.0, 3.25, -3.25], dtype=dtype)
    assert quantise(between, torch.full((3,), 1 - 2.0**-32, dtype=torch.float64))["int8"].tolist() == [127, 4, -3]


def test_the_mean_over_draws_is_the_update() -> None:
    """4000 seeds: the mean of a rounded entry has a deviation of at most 0.5 step / sqrt(4000) = 0.008 steps."""
    generator = torch.Generator().manual_seed(0)
    d = torch.randn(50, generator=generator, dtype=torch.float64)
    start = {"w": torch.zeros_like(d)}
    total = sum(round_trip(Int8(), outgoing({"w": d}, start, seed=7919 * seed))[1]["w"] for seed in range(4000))
    step = d.abs().max() / 127
    assert ((total / 4000 - d).abs() / step).max() < 5 * 0.008
    single = round_trip(Int8(), outgoing({"w": d}, start, seed=1))[1]["w"]
    assert ((single - d).abs() / step).max() > 0.5  # a single draw is far coarser


def test_every_client_and_round_has_its_own_draws() -> None:
    fed = federation("fedavg-int8")
    part = fed.method.sealing_parts[0]
    seeds = {
        int(fed.engine.context.plan.part_draws(part, "seal", t, k, None)["seed"]) for t in (1, 2, 3) for k in range(4)
    }  # type: ignore[arg-type]
    assert len(seeds) == 12


def test_entries_take_one_byte_and_steps_four() -> None:
    """Linear 5 -> 6 and 6 -> 3: 57 entries; rows 6 + 3, and one for each of the two biases."""
    fed = federation("fedavg-int8", precision="float32")
    *_, (snap, _) = run_rounds(fed, 1)
    entries = [e for e in snap.ledger.entries if (e.direction, e.part) == ("up", "average")]
    assert {e.bytes for e in entries} == {57 + 4 * (6 + 1 + 3 + 1)}
    assert size_in_bytes(messages(snap)["0"]) == entries[0].bytes


def test_running_statistics_are_sent_in_full() -> None:
    fed = federation("fedavg-int8", norm=True)
    *_, (snap, _) = run_rounds(fed, 1)
    sent = messages(snap)["0"]["average"]["weights"]
    plain = messages(next(iter(run_rounds(federation("fedavg", norm=True), 1)))[0])["0"]["average"]["weights"]
    rest = [n for n in fed.model.initial if n not in fed.model.shared]
    assert rest
    assert all(torch.equal(sent[n], plain[n]) for n in rest)


def test_scaffold_keeps_its_variates_exact() -> None:
    """Only the model is rounded: c stays the mean of the clients' c_k."""
    local = {"epochs": 2, "batch": 4, "lr": 0.1}
    fed = federation("scaffold+int8", local=local)
    *_, (snap, _) = run_rounds(fed, 3)
    assert all(t.dtype == torch.float64 for t in messages(snap)["0"]["scaffold"]["dc"].values())
    for name, c in snap.parts["scaffold"].items():
        mean = torch.stack([fed.store.get(k)["scaffold"][name] for k in range(4)]).mean(0)
        torch.testing.assert_close(c, mean, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("method", ["fednova", "fedavgm", "fedlmd", "scaffold", "fedcurv", "moon"])
@pytest.mark.parametrize("codec", ["int8", "bf16"])
def test_a_codec_changes_the_model_little_with_every_method(method: str, codec: str) -> None:
    """One round, four clients: the new model differs, but by less than a tenth of the update."""
    local = {"epochs": 2, "batch": 4, "lr": 0.1}
    coded, plain = (last_model(federation(name, local=local), 1) for name in (f"{method}+{codec}", method))
    start = federation(method).start().model
    for name in plain:
        moved = (plain[name] - start[name]).abs().max()
        assert (coded[name] - plain[name]).abs().max() <= 0.1 * moved
    assert any(not torch.equal(coded[name], plain[name]) for name in plain)


def test_a_non_finite_number_makes_the_tensor_non_finite() -> None:
    for bad in (torch.nan, torch.inf):
        d = torch.tensor([1.0, bad])
        assert not torch.isfinite(round_trip(Int8(), outgoing({"w": d}, {"w": torch.zeros(2)}))[1]["w"]).all()


def test_two_codecs_are_refused() -> None:
    with pytest.raises(UserError, match="int8 and topk both encode the update"):
        federation("fedavg+int8+topk")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"w step": torch.zeros(3)}, r"w step: expected torch.float32 of shape \[2, 1\], found .*\[3\]"),
        ({"w int8": torch.zeros(2, 4)}, "expected torch.int8 .*, found torch.float32"),
        ({"w step": None}, "found nothing"),
        ({"w": torch.zeros(2, 4)}, "found 'w' too"),
    ],
)
def test_mismatching_tensors_are_refused(changes: dict, message: str) -> None:
    part = Int8()
    with pytest.raises(UserError, match=message):
        part.open(tampered(part, outgoing({"w": D}, {"w": torch.zeros_like(D)}), **changes))
