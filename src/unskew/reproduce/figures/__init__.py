"""The papers' figures, by the name that `unskew reproduce` knows them by."""

from __future__ import annotations

from functools import partial

from unskew.reproduce.figures import against, curves, labels
from unskew.reproduce.figures.against import Option
from unskew.reproduce.figures.figure import Figure


def _curves(name: str, title: str) -> Figure:
    return Figure(name, title, curves.data, partial(curves.draw, name=name, title=title))


def _against(name: str, title: str, options: dict[str, Option], place: against.Reader = against.by_setting) -> Figure:
    draw = partial(against.draw, name=name, title=title, place=place, options=options)
    return Figure(name, title, partial(against.data, place=place), draw)


def _labels(name: str, title: str) -> Figure:
    return Figure(name, title, labels.data, partial(labels.draw, name=name, title=title), more_than_curves=True)


_ALL = (
    _labels("fedlmd/figure2", "FedLMD Fig. 2: labels that are trained on, and labels that are predicted"),
    _curves("fedlmd/figure4", "FedLMD Fig. 4: what distillation does for FedAvg"),
    _against(
        "fedlmd/figure5",
        "FedLMD Fig. 5: methods without additional computation",
        {
            "s": Option("sharding", "shards of a client, s"),
            "alpha": Option("LDA", "concentration of the Dirichlet draw, α"),
        },
    ),
    _curves("fedlmd/figure6", "FedLMD Fig. 6: accuracy by round"),
    _against(
        "fedlmd/figure7",
        "FedLMD Fig. 7: local work and clients in a round",
        {
            "epochs": Option("local epochs", "epochs of local training, E"),
            "participants": Option("uploaded models", "clients in a round"),
        },
    ),
    _against(
        "fedlmd/figure8",
        "FedLMD Fig. 8: switching from FedLMD-Tf to FedLMD",
        {
            "switch": Option(
                "FedLMD-Tf until round R, then FedLMD", "switching round, R (0: FedLMD, 200: FedLMD-Tf)", False
            )
        },
    ),
    _against(
        "fedlmd/figure9",
        "FedLMD Fig. 9: temperature and strength of distillation",
        {"tau": Option("temperature, β = 1", "τ"), "beta": Option("strength, τ = 1", "β")},
        against.by_method,
    ),
)
FIGURES = {figure.name: figure for figure in _ALL}
