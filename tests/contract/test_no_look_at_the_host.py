"""A recorded step may not look at a number: every method's loss works on tensors that have shapes and no numbers."""

from typing import Any

import pytest
import torch
from small import federation
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

import unskew as us
from unskew.base.tree import tree_map
from unskew.client.feed import BatchFeed, SingleClientFeed
from unskew.client.round import for_steps, step_loss


def test_no_loss_needs_a_number_on_the_host(method: str) -> None:
    """In the second round, when buffers are there. What needs one (.item(), a mask as an index) raises."""
    fed = federation(method, "loop", norm=True)
    snap, _ = fed.play(fed.start())
    fed.store.commit()
    context, received, mine = fed.engine.context, fed.received(snap), fed.store.get(0)  # type: ignore[attr-defined]
    feed = SingleClientFeed(BatchFeed(context, context.client_rows, 2, received, [0], [mine]))
    parts, _ = context.at_round_on_device(2)
    model = context.model
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:

        def without(tree: Any) -> Any:
            return tree_map(mode.from_tensor, tree)

        leaves, buffers = ({k: received.model[k] for k in names} for names in (model.parameters, model.buffers))
        leaves = {name: t.requires_grad_() for name, t in without(leaves).items()}
        given = (without(for_steps(parts, received)), without(mine), without(feed.facts), without(feed.at(0)))
        loss, _ = step_loss(parts, model, leaves, without(buffers), *given)
        gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    assert loss.shape == ()
    assert any(gradient is not None for gradient in gradients)


def test_a_loss_that_looks_is_found_out(spy: Any) -> None:
    class Looks(us.Part):
        def loss(self, view: us.View) -> torch.Tensor | None:
            return view.logits.sum() if float(view.size) > 2 else None

    with pytest.raises(DataDependentOutputException):
        test_no_loss_needs_a_number_on_the_host(spy(Looks))
