"""A step in a CUDA graph cannot read values on the host: every method's loss works on fake tensors without data."""

from typing import Any

import pytest
import torch
from small import federation
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

import unskew as us
from unskew.base.tree import tree_map
from unskew.client.feed import BatchFeed, SingleClientFeed
from unskew.client.round import step_loss, without_row_broadcasts


def test_no_loss_reads_a_value_on_the_host(method: str) -> None:
    """In the second round, when buffers exist. Reading a value (.item(), a mask as an index) raises."""
    fed = federation(method, "loop", norm=True)
    snap, _ = fed.run_round(fed.start())
    fed.store.commit()
    context, received, state = fed.engine.context, fed.received(snap), fed.store.get(0)  # type: ignore[attr-defined]
    feed = SingleClientFeed(BatchFeed(context, context.client_rows, 2, received, [0], [state]))
    parts, _ = context.at_round_on_device(2)
    model = context.model
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:

        def fake(tree: Any) -> Any:
            return tree_map(mode.from_tensor, tree)

        leaves, buffers = ({k: received.model[k] for k in names} for names in (model.parameters, model.buffers))
        leaves = {name: t.requires_grad_() for name, t in fake(leaves).items()}
        inputs = (fake(without_row_broadcasts(parts, received)), fake(state), fake(feed.facts), fake(feed.at(0)))
        loss, _ = step_loss(parts, model, leaves, fake(buffers), *inputs)
        gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    assert loss.shape == ()
    assert any(gradient is not None for gradient in gradients)


def test_a_loss_that_reads_a_value_is_detected(fedavg_with: Any) -> None:
    class ReadsValue(us.Part):
        def loss(self, view: us.View) -> torch.Tensor | None:
            return view.logits.sum() if float(view.size) > 2 else None

    with pytest.raises(DataDependentOutputException):
        test_no_loss_reads_a_value_on_the_host(fedavg_with(ReadsValue))
