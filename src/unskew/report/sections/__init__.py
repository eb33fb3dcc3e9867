"""The sections of the page in their order: a heading, what to look for, and a function from a setting to its panel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from unskew.report.group_runs import Setting
from unskew.report.report_panel import FigureRenderer, ReportPanel
from unskew.report.sections import client_sections, cost_sections, outcome_sections


@dataclass(frozen=True)
class ReportSection:
    title: str
    lead: str
    panel: Callable[[Setting, FigureRenderer], ReportPanel]

    @property
    def anchor(self) -> str:
        return self.title.lower().replace(" ", "-")


RESULTS = (
    ReportSection(
        "Accuracy by round", "The higher and the earlier a curve rises, the better.", outcome_sections.curves
    ),
    ReportSection("Numbers", "", outcome_sections.table),
    ReportSection(
        "Paired differences", "The same seed means the same split, clients and batches.", outcome_sections.paired
    ),
)
DETAILS = (
    ReportSection("Who holds what", "", client_sections.holdings),
    ReportSection(
        "Class by class",
        "A mean hides classes that the model never learnt, or learns and forgets from round to round.",
        client_sections.classes,
    ),
    ReportSection(
        "What the model predicts",
        "Under label skew a model favours the classes of the clients it met last. Even colour is good; a strong cell "
        "is a class that takes the predictions of others.",
        client_sections.predictions,
    ),
    ReportSection(
        "Bytes sent", "From the ledger; what comes on top of weights is the price of a method.", cost_sections.traffic
    ),
    ReportSection(
        "Loss terms", "Training loss by part, mean over the clients of a round and over seeds.", cost_sections.losses
    ),
    ReportSection("Time", "", cost_sections.times),
)
