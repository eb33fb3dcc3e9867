"""FedMix (Yoon et al. 2021): mix each client's rows with means of all clients' rows, which are sent once.

    (1)  x- = mean of M rows of a client,  y- = mean of their one-hot labels     of disjoint groups, for all clients
    (2)  x~ = beta x + (1 - beta) x-,  y~ likewise,  beta ~ Beta(a, a) for each batch
    (3)  L = mean_i CE(f(x~_i), y~_i)                                              variant naive
    (4)  s = (1 - lambda) x
    (5)  L = (1 - lambda) mean_i CE(f(s_i), y_i) + lambda mean_i CE(f(s_i), y-_i)
             + lambda mean_i < d CE(f(s_i), y_i) / d s_i , x-_i >                  variant taylor

Paper: Yoon, Shin, Hwang, Yang, "FedMix: Approximation of Mixup under Mean Augmented Federated Learning", ICLR 2021.
FLea compares with `naive`; HFMDS-FL compares with `taylor`, the original loss, in groups of 2. (5) is the first-order
expansion of mixup with weight lambda; training on it needs second derivatives. Rows that do not fill a group are in no
mean; a client with fewer than M rows sends nothing, nor does one that is absent in round 1.
Differs: means are taken over rows as they are stored, so augmented only with `data.augment.frozen`, as in FLea's code.
The derivative in (5) is that of each sample's loss; public code differentiates the batch's mean, which divides by the
batch size once more. `slope: exact` uses the factor lambda (1 - lambda) from expanding (5)'s first term.
"""

from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from unskew.base.tree import Rows, State, Value, arange_like
from unskew.protocol.client_view import Client
from unskew.protocol.method_registry import method, part
from unskew.protocol.part import Artefact, Exchange, Part, Sizes, Stream
from unskew.protocol.server_view import Messages, Server
from unskew.protocol.step_view import Batch, View, at_least_float32


@part("mix")
class MeanAugmentation(Part):
    """Mixes a client's rows with means of all clients' rows."""

    variant: Literal["naive", "taylor"] = Field(
        "naive", description="naive: plain mixup, as in FLea; taylor: the original loss, as in HFMDS"
    )
    group: int = Field(10, ge=1, description="rows per mean, M; 10 in FLea, 2 in HFMDS")
    a: float = Field(2.0, gt=0, description="parameter of Beta(a, a), for naive; 2 in FLea")
    lam: float = Field(
        0.05, ge=0, le=1, description="weight of the means, for taylor; 0.05 in public code, not given in HFMDS"
    )
    same_class: bool = Field(
        False, description="average only rows of the same label and drop mixed groups; HFMDS describes both"
    )
    slope: Literal["paper", "exact"] = Field("paper", description="factor of the derivative in (5); paper: lambda")

    objective = True
    neutral = {"variant": "taylor", "lam": 0.0}
    shares = {"means": Artefact("statistics", reduce="rows"), "labels": Artefact("labels", reduce="rows")}
    broadcasts = {
        "means": Artefact("statistics", reduce="rows", lasting=True),
        "labels": Artefact("labels", reduce="rows", lasting=True),
    }
    exchange = Exchange("before training", who="all", model=False)

    def draws(self, when: str, sizes: Sizes, generator: np.random.Generator) -> dict:
        if when == "steps":
            return {"beta": generator.beta(self.a, self.a, sizes.steps)}
        if when != "share":
            return {}
        order = generator.permutation(sizes.rows)[: sizes.rows // self.group * self.group]
        return {"pick": (order if len(order) else np.full(self.group, -1)).reshape(-1, self.group)}

    def share(self, client: Client) -> tuple[dict[str, Value], State]:
        pick = client.draws["pick"]
        x, y, keep = client.rows(pick.flatten())
        label = (y.argmax(1) if y.ndim > 1 else y).masked_fill(~keep, len(client.facts.counts))
        if self.same_class:  # groups are then runs of equal labels
            order = label.argsort(stable=True)
            x, y, keep, label = x[order], y[order], keep[order], label[order]
        targets = y.to(x.dtype) if y.ndim > 1 else _one_hot(y, len(client.facts.counts), x.dtype)
        means, labels = (t.view(*pick.shape, *t.shape[1:]).mean(1) for t in (x, targets))  # (1)
        complete = keep.view(pick.shape).all(1)
        if self.same_class:
            complete = complete & (label.view(pick.shape) == label.view(pick.shape)[:, :1]).all(1)
        return {"means": Rows(means, complete), "labels": Rows(labels, complete)}, client.part_state

    def collect(self, server: Server, shared: Messages) -> Server:
        return server.replace(part_state={name: shared.rows(name) for name in self.shares}) if shared else server

    def down(self, server: Server) -> dict[str, Value]:
        return dict(server.part_state)

    def streams(self, received: dict, part_state: State) -> dict[str, Stream]:
        return {"means": Stream(received["means"], received["labels"])} if received else {}

    def loss(self, view: View) -> Tensor:
        means = view.stream("means")
        if means is None:  # no client has M rows
            return view.mean(F.cross_entropy(view.logits, view.y, reduction="none"))
        return self._naive(view, means) if self.variant == "naive" else self._taylor(view, means)

    def _naive(self, view: View, means: Batch) -> Tensor:
        beta = view.draws["beta"]
        z = at_least_float32(view.run(beta * view.x + (1 - beta) * means.x, 0))  # (2)
        own, other = (F.cross_entropy(z, y, reduction="none") for y in (view.y, means.y))
        return view.mean(beta * own + (1 - beta) * other)  # (3)

    def _taylor(self, view: View, means: Batch) -> Tensor:
        lam = self.lam

        def own_loss(z: Tensor) -> Tensor:
            return F.cross_entropy(z, view.y, reduction="none")

        z, slope = view.slope((1 - lam) * view.x, own_loss)  # (4)
        factor = lam if self.slope == "paper" else lam * (1 - lam)
        directional = (slope * means.x).flatten(1).sum(1)
        each = (1 - lam) * own_loss(z) + lam * F.cross_entropy(z, means.y, reduction="none") + factor * directional
        return view.mean(each)  # (5)


def _one_hot(y: Tensor, classes: int, dtype: torch.dtype) -> Tensor:
    return (y[:, None] == arange_like(classes, y)).to(dtype)


method("fedmix", "average", "mix")
