"""FLea (Xia et al. 2024): mix in features shared by last round's clients, and decorrelate features from inputs.

    (1)  f_i = h(x_i)                                  head h up to the cut, tail g after it; f_i^F from the buffer
    (2)  f~_i = beta_i f_i + (1 - beta_i) f_i^F,  y~_i likewise,  beta_i ~ Beta(a, a) for each sample
    (3)  L_clf = mean_i CE(g(f~_i), y~_i)
    (4)  L_dis = mean_i KL( softmax g^t(f~_i) || softmax g(f~_i) )        g^t the received tail
    (5)  L_dec = c(x, f), the distance correlation of the batch's inputs and features
    (6)  L = L_clf + lambda1 L_dis + lambda2 L_dec
    (7)  F^{t+1} = { (h^{t+1}(x), y) }  for a share of the rows of round t's clients, by the new model in eval mode
    (8)  exposure = share of the ordered pairs (i, j) of clients such that j has received features of i

Paper: Xia, Ghosh, Qiu, Mascolo, "FLea: Addressing Data Scarcity and Label Skew in Federated Learning via
Privacy-preserving Feature Augmentation", KDD 2024.
In round 1 the buffer is empty: (3) and (4) use the client's own rows, unmixed. A client shares the same rows every
time, and their features are used for one round. Logged: the three terms; c, its value by chance and its bias-corrected
square; buffer; exposure (8) among clients that have rows (the ledger's exposure also counts clients without rows that
received features).
With `rules: released`, as in the authors' code: round 1 has three times the epochs and lambda1 / 2; from then on, CE
on the client's own rows is added, (4) uses the buffer's features unmixed, and lambda2 falls by a thirtieth per round to
a third; shared rows are drawn with replacement, none from fewer than 10.
Differs: harnet is cut after its second unit, as in the released log, where the text says the first; c uses plain
distances, the square root, and (5)'s denominator as in the appendix, all as in the code. A client shares at least one
row. The teacher's input has no gradient. Shared features are of rows augmented only with `data.augment.frozen`, as in
the code. The code runs the head twice; here it runs once.
"""

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from unskew.base.errors import UserError
from unskew.base.tree import Rows, State, Value
from unskew.methods.shared.distance_corr import distance_correlation
from unskew.methods.shared.shared_subset import draw_subset
from unskew.models.model import Model
from unskew.protocol.client_view import Client
from unskew.protocol.method import Method, Task
from unskew.protocol.method_registry import method, part
from unskew.protocol.part import Artefact, Exchange, Part, Sizes, Stream
from unskew.protocol.server_view import Messages, Server
from unskew.protocol.step_view import Batch, View, at_least_float32
from unskew.protocol.work import Work

CUTS = {"mobilenet_v2": 1, "audionet": 2, "harnet": 2}


@part("flea")
class FLea(Part):
    """Cross-entropy and distillation on mixed features, and decorrelation of features from their inputs."""

    lam1: float = Field(1.0, ge=0, description="strength of the distillation; 1 in the paper")
    lam2: float = Field(3.0, ge=0, description="strength of the decorrelation; 3 in the paper")
    a: float = Field(2.0, gt=0, description="parameter of Beta(a, a) for the mixing weights; 2 in the paper")
    fraction: float = Field(
        0.1, ge=0, le=1, description="share of a client's rows used for shared features; 0.1 in the paper"
    )
    cut: int = Field(
        0,
        ge=0,
        description="cut at which features are taken; 0 (default): 2 for audionet and harnet as in the paper, else 1",
    )
    rules: Literal["run", "paper", "released"] = Field(
        "run", description="as in the paper or its released code; run: follow the run's `rules`"
    )

    objective = True
    neutral = {"lam1": 0.0, "lam2": 0.0, "fraction": 0.0}
    shares = {"features": Artefact("features", reduce="rows"), "labels": Artefact("labels", reduce="rows")}
    broadcasts = {"features": Artefact("features", reduce="rows"), "labels": Artefact("labels", reduce="rows")}
    exchange = Exchange("after merge")

    def build(self, method: Method, work: Work) -> "FLea":
        return replace(self, rules=method.rules) if self.rules == "run" else self

    def server_init(self, model: Model, task: Task) -> State:
        if not 0 < self._cut(model) < model.depth:
            raise UserError(f"method.flea.cut: expected 1 to {model.depth - 1} for {model.name}, found {self.cut}")
        none = torch.zeros(0, dtype=torch.int64)
        # owners: the client of each buffer row. pairs: each pair (i, j) of (8), encoded as i * clients + j.
        return {"owners": none, "pairs": none}

    def at_round(self, round: int, work: Work) -> tuple[Part, Work]:
        if self.rules != "released":
            return self, work
        decayed = replace(self, lam2=self.lam2 * max(1 - (round - 1) / 30, 1 / 3))
        if round > 1:
            return decayed, work
        longer = {name: 3 * n for name in ("epochs", "steps") if (n := getattr(work, name)) is not None}
        return replace(decayed, lam1=self.lam1 / 2), replace(work, **longer)

    def draws(self, when: str, sizes: Sizes, generator: np.random.Generator) -> dict:
        if when == "init":
            return {"pick": draw_subset(generator, sizes.rows, self.fraction, 1, self.rules == "released")}
        return {"beta": generator.beta(self.a, self.a, (sizes.steps, sizes.batch))} if when == "steps" else {}

    def streams(self, received: dict, part_state: State) -> dict[str, Stream]:
        return {"buffer": Stream(received["features"], received["labels"])} if received else {}

    def loss(self, view: View) -> tuple[Tensor, State]:
        cut, buffer = self._cut(view.model), view.stream("buffer")
        f = view.at(cut)  # (1)
        dec = distance_correlation(view.x, f, view.w)  # (5)
        if buffer is None:
            clf, dis = _cross_entropy(view), view.mean(_kl(view.teacher.logits, view.logits))
        else:
            clf, dis = self._losses_on_mixed_features(view, f, buffer, cut)
        total = clf + self.lam1 * dis + self.lam2 * dec.c  # (6)
        logged = {"clf": clf, "dis": dis, "c": dec.c, "c by chance": dec.chance, "c2 corrected": dec.corrected}
        return total, logged

    def _losses_on_mixed_features(self, view: View, f: Tensor, buffer: Batch, cut: int) -> tuple[Tensor, Tensor]:
        beta, buffered = view.draws["beta"], buffer.x.detach()
        # Own rows first, then mixed, then buffered ones, as in the code: each pass updates BatchNorm's statistics.
        own_rows = _cross_entropy(view) if self.rules == "released" else None
        weight = beta.view(-1, *(1,) * (f.ndim - 1))
        mixed = weight * f + (1 - weight) * buffered  # (2)
        z = at_least_float32(view.run(mixed, cut))
        # Cross-entropy is linear in the label, so that of a mixed label is the mixture of both.
        own, other = (F.cross_entropy(z, y, reduction="none") for y in (view.y, buffer.y))
        clf = view.mean(beta * own + (1 - beta) * other)  # (3)
        if own_rows is not None:
            clf, mixed = clf + own_rows, buffered
            z = at_least_float32(view.run(mixed, cut))
        return clf, view.mean(_kl(at_least_float32(view.teacher.run(mixed.detach(), cut)), z))  # (4)

    def share(self, client: Client) -> tuple[dict[str, Value], State]:
        x, y, keep = client.rows(client.draws["pick"])
        features = client.at(x, self._cut(client.model))  # (7)
        return {"features": Rows(features, keep), "labels": Rows(y, keep)}, client.part_state

    def collect(self, server: Server, shared: Messages) -> Server:
        sent, old = shared.each("labels"), server.part_state
        if not sent:  # no client took part: the buffer is emptied, because features are used for one round
            return server.replace(part_state={name: t if name == "pairs" else t[:0] for name, t in old.items()})
        clients = old["pairs"].new_tensor([client for client, _ in sent])
        # The clients of this round received the old buffer, so they are paired with its owners.
        new_pairs = torch.unique(old["owners"])[:, None] * server.task.clients + clients
        buffer = {
            "features": shared.rows("features"),
            "labels": shared.rows("labels"),
            "owners": clients.repeat_interleave(clients.new_tensor([len(y) for _, y in sent])),
            "pairs": torch.unique(torch.cat([old["pairs"], new_pairs.flatten()])),
        }
        return server.replace(part_state=buffer)

    def down(self, server: Server) -> dict[str, Value]:
        return {name: server.part_state[name] for name in self.broadcasts} if len(server.part_state["owners"]) else {}

    def report(self, server: Server) -> dict[str, float]:
        owners, pairs, task = server.part_state["owners"], server.part_state["pairs"], server.task
        exposure = 100 * len(pairs) / task.clients**2  # (8)
        logged = {"buffer": len(owners), "owners": len(torch.unique(owners)), "exposure": exposure}
        labels: Any = server.part_state.get("labels", owners)
        counts = labels.sum(0) if labels.ndim > 1 else torch.bincount(labels, minlength=task.classes)
        return logged | {f"buffer/{c}": count for c, count in enumerate(counts.tolist())}

    def _cut(self, model: Model) -> int:
        return self.cut or CUTS.get(model.name, 1)


def _cross_entropy(view: View) -> Tensor:
    return view.mean(F.cross_entropy(view.logits, view.y, reduction="none"))


def _kl(teacher: Tensor, student: Tensor) -> Tensor:
    log_t, log_s = teacher.log_softmax(1), student.log_softmax(1)
    return (log_t.exp() * (log_t - log_s)).sum(1)


method("flea", "average", "flea")
