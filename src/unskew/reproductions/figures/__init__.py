"""The papers' figures, by their name in `unskew reproduce`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType

from unskew.reproductions.figures import (
    accuracy_by_option,
    accuracy_curves,
    client_holdings,
    feature_clusters,
    feature_leaks,
    label_heat_maps,
    mixed_labels,
    mixing_weights,
    option_sweep,
)
from unskew.reproductions.figures.accuracy_by_option import PanelOption
from unskew.reproductions.figures.paper_figure import PaperFigure


def _curves(name: str, title: str) -> PaperFigure:
    return PaperFigure(name, title, accuracy_curves.data, partial(accuracy_curves.draw, name=name, title=title))


def _by_option(
    name: str,
    title: str,
    options: dict[str, PanelOption],
    parse_label: accuracy_by_option.LabelParser = accuracy_by_option.by_setting,
) -> PaperFigure:
    draw = partial(accuracy_by_option.draw, name=name, title=title, parse_label=parse_label, options=options)
    return PaperFigure(name, title, partial(accuracy_by_option.data, parse_label=parse_label), draw)


def _labels(name: str, title: str) -> PaperFigure:
    return PaperFigure(
        name, title, label_heat_maps.data, partial(label_heat_maps.draw, name=name, title=title), more_than_curves=True
    )


def _sweep(name: str, title: str, *parts: option_sweep.SweepPanel, more: bool = False) -> PaperFigure:
    return PaperFigure(
        name, title, option_sweep.data, partial(option_sweep.draw, name=name, title=title, parts=parts), more
    )


def _of_runs(name: str, title: str, source: ModuleType) -> PaperFigure:
    """A figure that needs more of its runs than their accuracies."""
    return PaperFigure(name, title, source.data, partial(source.draw, name=name, title=title), more_than_curves=True)


def _planned(name: str, title: str, data: Callable, draw: Callable) -> PaperFigure:
    return PaperFigure(name, title, data, partial(draw, name=name, title=title), planned=True)


_FLEA_FIGURES = (
    _curves("flea/figure2", "FLea Fig. 2: IID data with fewer and fewer rows per client"),
    _of_runs("flea/figure3", "FLea Fig. 3: features by class, before and after local training", feature_clusters),
    _sweep(
        "flea/figure6",
        "FLea Fig. 6: sharing features or batch means",
        option_sweep.by_round("FedMix and FLea"),
        option_sweep.by_option("share", "FLea", "share of a client's rows", log=True),
    ),
    _of_runs(
        "flea/figure7", "FLea Fig. 7: labels of the feature buffer, of a client, and of mixed batches", mixed_labels
    ),
    _planned("flea/figure8", "FLea Fig. 8: mixing weights of one batch", mixing_weights.data, mixing_weights.draw),
    _of_runs("flea/figure9", "FLea Fig. 9: privacy of the shared features", feature_leaks),
    _sweep(
        "flea/figure10",
        "FLea Fig. 10: distribution of the mixing weights",
        option_sweep.densities("a", "Beta(a, a)"),
        option_sweep.by_option("a", "FLea", "a", log=True),
    ),
    _sweep(
        "flea/figure11",
        "FLea Fig. 11: loss weights",
        option_sweep.by_option("lam1", "distillation, λ2 = 0", "λ1", log=False),
        option_sweep.by_option("lam2", "decorrelation, λ1 = 1", "λ2", log=False, with_c=True),
        more=True,
    ),
    _planned(
        "flea/figure12",
        "FLea Fig. 12: label distribution across clients, 50 rows per client",
        client_holdings.data,
        client_holdings.draw_maps,
    ),
    _planned("flea/figure13", "FLea Fig. 13: rows per client", client_holdings.data, client_holdings.draw_sizes),
)
_FEDLMD_FIGURES = (
    _labels("fedlmd/figure2", "FedLMD Fig. 2: labels trained on and labels predicted"),
    _curves("fedlmd/figure4", "FedLMD Fig. 4: the effect of distillation on FedAvg"),
    _by_option(
        "fedlmd/figure5",
        "FedLMD Fig. 5: methods without extra computation",
        {
            "s": PanelOption("sharding", "shards per client, s"),
            "alpha": PanelOption("LDA", "Dirichlet concentration, α"),
        },
        accuracy_by_option.by_column,
    ),
    _curves("fedlmd/figure6", "FedLMD Fig. 6: accuracy by round"),
    _by_option(
        "fedlmd/figure7",
        "FedLMD Fig. 7: local epochs and clients per round",
        {
            "epochs": PanelOption("local epochs", "local epochs, E"),
            "participants": PanelOption("uploaded models", "clients per round"),
        },
    ),
    _by_option(
        "fedlmd/figure8",
        "FedLMD Fig. 8: switching from FedLMD-Tf to FedLMD",
        {
            "switch": PanelOption(
                "FedLMD-Tf until round R, then FedLMD", "switching round, R (0: FedLMD, 200: FedLMD-Tf)", False
            )
        },
    ),
    _by_option(
        "fedlmd/figure9",
        "FedLMD Fig. 9: distillation temperature and strength",
        {"tau": PanelOption("temperature, β = 1", "τ"), "beta": PanelOption("strength, τ = 1", "β")},
        accuracy_by_option.by_method,
    ),
)
FIGURES = {figure.name: figure for figure in (*_FLEA_FIGURES, *_FEDLMD_FIGURES)}
