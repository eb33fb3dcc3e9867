"""Scores after a round: of the server's model on each split, and with `evaluate.clients` for each client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from unskew.base.per_client import STATISTICS_CLIENTS
from unskew.client.client_rows import to_device
from unskew.client.round import with_private
from unskew.data import Dataset
from unskew.data.split_cache import ClientRowNumbers
from unskew.engines.engine import ConfusionScore, TestRows, sum_scores
from unskew.results.client_accuracy import accuracy_by_label_shares, accuracy_on_own_rows
from unskew.server.federation import Federation
from unskew.server.snapshot import Snapshot
from unskew.wire.requests_and_replies import Received


@dataclass(frozen=True)
class RoundScores:
    """Confusions and losses by split, and accuracies by client."""

    splits: dict[str, ConfusionScore] = field(default_factory=dict)
    clients: dict[int, float] = field(default_factory=dict)  # accuracy in percent


@dataclass(frozen=True)
class ScoredClients:
    """The clients that `evaluate.clients` scores."""

    clients: Sequence[int]
    counts: np.ndarray  # [K, C] training rows by label
    own_rows: int = 0  # clients with test rows of their own; 0: all are scored by their label shares

    def header(self, private: bool) -> str:
        """The line in the header of the run. private: whether clients keep tensors of the model."""
        who = " that trained in the round, with its private tensors," if private else ""
        if not self.own_rows:
            return (
                f"evaluate   each of {len(self.clients):,} clients{who} on the test rows weighted by its label shares"
            )
        missing = len(self.clients) - self.own_rows
        others = f"; {missing:,} without test rows" if missing else ""
        return f"evaluate   each of {self.own_rows:,} clients{who} on its own test rows{others}"


class Evaluation:
    """Evaluates the server's model or, where clients keep private tensors, those of the clients that trained."""

    def __init__(self, federation: Federation, scored: ScoredClients | None) -> None:
        self._federation, self._scored = federation, scored

    def scores(self, snap: Snapshot) -> RoundScores:
        """Scores on every split. If clients keep private tensors, the scores of all answering clients are added up."""
        federation = self._federation.at_round(snap.round)
        received = federation.received(snap)
        models: dict[int | None, Received] = {None: received}
        if federation.model.private and snap.answered:
            models = {k: with_private(received, to_device(federation.store.get(k), federation.engine.device))
                      for k in sorted(snap.answered)}  # fmt: skip
        splits, clients = {}, {}
        for split in federation.engine.context.splits:
            scores = {k: federation.engine.evaluate(snap.round, model, split) for k, model in models.items()}
            if split == "test" and self._scored:
                clients = self._by_client(self._scored, scores)
            splits[split] = sum_scores(score.pooled for score in scores.values())
        return RoundScores(splits, clients)

    def _by_client(self, scored: ScoredClients, scores: dict[int | None, ConfusionScore]) -> dict[int, float]:
        """Accuracy by client; one that has no test rows, or no model of its own this round, is left out."""
        by_client: dict[int, float] = {}
        for owner, score in scores.items():
            if scored.own_rows:
                values = accuracy_on_own_rows(score.by_owner.numpy()[: len(scored.clients)])
            else:
                values = accuracy_by_label_shares(score.pooled.confusion.numpy(), scored.counts)
            accuracies = dict(zip(scored.clients, values.tolist()))
            by_client |= accuracies if owner is None else {k: v for k, v in accuracies.items() if k == owner}
        return {k: value for k, value in by_client.items() if value == value}


def scored_clients(clients: Sequence[int], counts: np.ndarray) -> ScoredClients:
    """All clients that have rows, or evenly spaced ones if there are very many. counts: [clients, C]."""
    every = -(-len(clients) // STATISTICS_CLIENTS)
    chosen = [i for i in range(0, len(clients), every) if counts[i].sum()]
    return ScoredClients([clients[i] for i in chosen], counts[chosen])


def rows_to_score(dataset: Dataset, device: torch.device) -> dict[str, TestRows]:
    """The splits that the server scores."""
    splits = ({"validation": dataset.validation} if dataset.validation else {}) | {"test": dataset.test}
    return {name: TestRows(split.x.to(device), split.y.to(device)) for name, split in splits.items()}


def with_owners(rows: TestRows, dataset: Dataset, parts: ClientRowNumbers, clients: Sequence[int]) -> TestRows:
    """The test rows with the clients that own them, if they have groups that the clients' training rows have too."""
    owner = _owners(dataset, parts, clients)
    return rows if owner is None else rows._replace(owner=owner.to(rows.x.device), owners=len(clients) + 1)


def _owners(dataset: Dataset, parts: ClientRowNumbers, clients: Sequence[int]) -> Tensor | None:
    """[N] position of the client that has the training rows of a test row's group; the last one has the others."""
    train, test = dataset.train.group, dataset.test.group
    if train is None or test is None:
        return None
    position = {name: i for i, k in enumerate(clients) for name in np.unique(train[parts.rows[k]]).tolist()}
    owner = [position.get(name, len(clients)) for name in test.tolist()]
    return torch.tensor(owner) if min(owner, default=len(clients)) < len(clients) else None
