"""The sections of the page in their order: a heading, what to look for, and a function from a setting to its panel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from unskew.report.panel import Panel, Studio
from unskew.report.sections import clients, costs, outcome
from unskew.report.settings import Setting


@dataclass(frozen=True)
class Section:
    title: str
    lead: str
    panel: Callable[[Setting, Studio], Panel]

    @property
    def anchor(self) -> str:
        return self.title.lower().replace(" ", "-")


RESULTS = (
    Section("Accuracy by round", "The higher and the earlier a curve rises, the better.", outcome.curves),
    Section("Numbers", "", outcome.table),
    Section("Paired differences", "The same seed means the same split, clients and batches.", outcome.paired),
)
DETAILS = (
    Section("Who holds what", "", clients.holdings),
    Section(
        "Class by class",
        "A mean hides classes that the model never learnt, or learns and forgets from round to round.",
        clients.classes,
    ),
    Section(
        "What the model predicts",
        "Under label skew a model favours the classes of the clients it met last. Even colour is good; a strong cell "
        "is a class that takes the predictions of others.",
        clients.predictions,
    ),
    Section("Bytes sent", "From the ledger; what comes on top of weights is the price of a method.", costs.traffic),
    Section("Loss terms", "Training loss by part, mean over the clients of a round and over seeds.", costs.losses),
    Section("Time", "", costs.times),
)
