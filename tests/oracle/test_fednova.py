"""FedNova: the effective steps, the normalised average, and the combination with a proximal term."""

import pytest
import torch
from toolbox import federation, gather, last_model, messages, run_rounds, server, train_by_hand

from unskew.base.errors import UserError
from unskew.methods.fednova import Nova
from unskew.protocol.work import Work


def sent(w_k: float, a: float) -> dict:
    return {"direction": {"w": torch.tensor((1 - w_k) / a)}, "tau": torch.tensor(a)}


@pytest.mark.papers
def test_merge_is_the_normalised_average() -> None:
    """w = 1, w_k = (0.9, 0.6), a = (1, 3), p = 1/2: tau_eff = 2, mean direction (0.1 + 0.4/3) / 2, so 1 - 0.2333."""
    part = Nova(tau="effective")
    merged = part.merge(server({"w": torch.tensor(1.0)}), gather(part, [(1, sent(0.9, 1.0)), (1, sent(0.6, 3.0))]))
    torch.testing.assert_close(merged.model["w"], torch.tensor(0.766667), rtol=0, atol=1e-6)


def test_merge_with_equal_steps_is_fedavg() -> None:
    """a_k = 4 for all: the mean of the clients' weights, 0.75."""
    part = Nova(tau="effective")
    merged = part.merge(server({"w": torch.tensor(1.0)}), gather(part, [(1, sent(0.9, 4.0)), (1, sent(0.6, 4.0))]))
    torch.testing.assert_close(merged.model["w"], torch.tensor(0.75))


def test_effective_steps_follow_the_proximal_recursion() -> None:
    """a <- a (1 - eta mu) + 1 with eta mu = 0.1: 1, 1.9, 2.71."""
    work = Work(batch=4, lr=0.1, prox_strength=1.0)
    assert [work.effective_steps(n) for n in (1, 2, 3)] == pytest.approx([1.0, 1.9, 2.71])


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_prox_strength_equals_a_proximal_term_in_sgd(momentum: float) -> None:
    """Five steps of torch's SGD on a unit gradient with the proximal gradient mu (w - w_0) added."""
    w = torch.zeros((), dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.SGD([w], 0.1, momentum)
    for _ in range(5):
        w.grad = 1 + 0.7 * w.detach()
        optimiser.step()
    work = Work(batch=4, lr=0.1, momentum=momentum, prox_strength=0.7)
    assert -w.item() / 0.1 == pytest.approx(work.effective_steps(5))


@pytest.mark.parametrize(("method", "tau"), [("fednova", "effective"), ("fednova+prox", "steps")])
def test_tau_depends_on_a_proximal_term_in_the_method(method: str, tau: str) -> None:
    assert next(part for part in federation(method).method.parts if part.name == "nova").tau == tau


def test_round_equals_plain_pytorch() -> None:
    """With every client trained by plain PyTorch: w - (sum p_k a_k) (sum p_k (w - w_k) / a_k)."""
    fed = federation("fednova")
    start, work = fed.start().model, fed.task.work
    rows = torch.tensor([fed.rows[k] for k in range(fed.task.clients)], dtype=torch.float64)
    p = rows / rows.sum()
    a = [work.effective_steps(work.steps_for(int(n))) for n in rows]
    finals = [train_by_hand(fed, start, 1, k) for k in range(fed.task.clients)]
    tau = sum(p_k * a_k for p_k, a_k in zip(p, a))
    want = {n: w - tau * sum(p[k] * (w - finals[k][n]) / a[k] for k in range(len(a))) for n, w in start.items()}
    torch.testing.assert_close(last_model(fed, 1), want, rtol=1e-11, atol=1e-12)


def test_running_statistics_take_the_plain_mean() -> None:
    fed = federation("fednova", sizes=(4, 8), norm=True)
    ((snap, _),) = run_rounds(fed, 1)
    name = "0.1.running_mean"
    kept = [messages(snap)[k]["nova"]["statistics"][name] for k in ("0", "1")]
    torch.testing.assert_close(snap.model[name], (kept[0] + 2 * kept[1]) / 3)


def test_adam_is_refused() -> None:
    with pytest.raises(UserError, match=r"nova: expected local.optimiser: sgd, found adam"):
        federation("fednova", local={"optimiser": "adam"})
