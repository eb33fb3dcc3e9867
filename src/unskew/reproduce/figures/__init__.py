"""The papers' figures, by the name that `unskew reproduce` knows them by."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType

from unskew.reproduce.figures import against, betas, clusters, curves, holdings, labels, leaks, mixing, sweep
from unskew.reproduce.figures.against import Option
from unskew.reproduce.figures.figure import Figure


def _curves(name: str, title: str) -> Figure:
    return Figure(name, title, curves.data, partial(curves.draw, name=name, title=title))


def _against(name: str, title: str, options: dict[str, Option], place: against.Reader = against.by_setting) -> Figure:
    draw = partial(against.draw, name=name, title=title, place=place, options=options)
    return Figure(name, title, partial(against.data, place=place), draw)


def _labels(name: str, title: str) -> Figure:
    return Figure(name, title, labels.data, partial(labels.draw, name=name, title=title), more_than_curves=True)


def _sweep(name: str, title: str, *parts: sweep.Panel, more: bool = False) -> Figure:
    return Figure(name, title, sweep.data, partial(sweep.draw, name=name, title=title, parts=parts), more)


def _of_runs(name: str, title: str, source: ModuleType) -> Figure:
    """A figure that looks at more of its runs than their accuracies."""
    return Figure(name, title, source.data, partial(source.draw, name=name, title=title), more_than_curves=True)


def _planned(name: str, title: str, data: Callable, draw: Callable) -> Figure:
    return Figure(name, title, data, partial(draw, name=name, title=title), planned=True)


_FLEA = (
    _curves("flea/figure2", "FLea Fig. 2: IID data in ever smaller pieces"),
    _of_runs("flea/figure3", "FLea Fig. 3: features by class, before and after local training", clusters),
    _sweep(
        "flea/figure6",
        "FLea Fig. 6: features against averages",
        sweep.by_round("FedMix and FLea"),
        sweep.by_option("share", "FLea", "share of a client's rows", log=True),
    ),
    _of_runs("flea/figure7", "FLea Fig. 7: labels of the buffer, of a client, and mixed", mixing),
    _planned("flea/figure8", "FLea Fig. 8: mixing weights of one batch", betas.data, betas.draw),
    _of_runs("flea/figure9", "FLea Fig. 9: what is given away", leaks),
    _sweep(
        "flea/figure10",
        "FLea Fig. 10: the law of the mixing weights",
        sweep.densities("a", "Beta(a, a)"),
        sweep.by_option("a", "FLea", "a", log=True),
    ),
    _sweep(
        "flea/figure11",
        "FLea Fig. 11: weights of the loss",
        sweep.by_option("lam1", "distillation, λ2 = 0", "λ1", log=False),
        sweep.by_option("lam2", "decorrelation, λ1 = 1", "λ2", log=False, with_c=True),
        more=True,
    ),
    _planned("flea/figure12", "FLea Fig. 12: who holds what, 50 rows a client", holdings.data, holdings.draw_maps),
    _planned("flea/figure13", "FLea Fig. 13: rows of a client", holdings.data, holdings.draw_sizes),
)
_FEDLMD = (
    _labels("fedlmd/figure2", "FedLMD Fig. 2: labels that are trained on, and labels that are predicted"),
    _curves("fedlmd/figure4", "FedLMD Fig. 4: what distillation does for FedAvg"),
    _against(
        "fedlmd/figure5",
        "FedLMD Fig. 5: methods without additional computation",
        {
            "s": Option("sharding", "shards of a client, s"),
            "alpha": Option("LDA", "concentration of the Dirichlet draw, α"),
        },
        against.by_column,
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
FIGURES = {figure.name: figure for figure in (*_FLEA, *_FEDLMD)}
