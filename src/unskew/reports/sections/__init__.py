"""The sections of the page in order: a title, a lead sentence, and a function from a setting to its panel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from unskew.reports.group_runs import Setting
from unskew.reports.report_panel import FigureRenderer, ReportPanel
from unskew.reports.sections import client_sections, cost_sections, outcome_sections


@dataclass(frozen=True)
class ReportSection:
    title: str
    lead: str
    panel: Callable[[Setting, FigureRenderer], ReportPanel]

    @property
    def anchor(self) -> str:
        return self.title.lower().replace(" ", "-")


RESULTS = (
    ReportSection("Accuracy by round", "A curve that rises higher and earlier is better.", outcome_sections.curves),
    ReportSection("Results by method", "", outcome_sections.table),
    ReportSection(
        "Paired differences",
        "Runs are paired by seed: the same seed means the same split, clients and batches.",
        outcome_sections.paired,
    ),
)
DETAILS = (
    ReportSection("Data by client", "", client_sections.holdings),
    ReportSection(
        "Accuracy by client",
        "A mean may hide clients for which the model does not work.",
        client_sections.by_client,
    ),
    ReportSection(
        "Accuracy by class",
        "The mean accuracy hides classes that the model never learns, or learns and forgets again.",
        client_sections.classes,
    ),
    ReportSection(
        "Predicted classes",
        "Under label skew a model favours the classes of the clients that trained it last. An even colour is good; a "
        "strong colour marks a class that is predicted too often.",
        client_sections.predictions,
    ),
    ReportSection(
        "Communication",
        "Bytes from the ledger. Everything except the weights and the number of rows is an extra cost of the method.",
        cost_sections.traffic,
    ),
    ReportSection(
        "Training loss", "Loss terms by part, mean over the clients of a round and over seeds.", cost_sections.losses
    ),
    ReportSection("Time", "", cost_sections.times),
)
