"""The header of a run: the facts needed to read its results."""

from __future__ import annotations

import inspect

import numpy as np

from unskew.config.experiment import Experiment
from unskew.data import Dataset, label_skew
from unskew.data.split_cache import ClientRowNumbers
from unskew.models.norms import POLICIES
from unskew.server.absence import Absence
from unskew.server.federation import Federation


def header(
    experiment: Experiment, federation: Federation, dataset: Dataset, counts: np.ndarray, parts: ClientRowNumbers
) -> list[str]:
    """One line for each fact, departures from the papers included."""
    model, engine, local = federation.model, federation.engine, experiment.local
    number, unit = (local.steps, "step") if local.steps else (local.epochs, "epoch")
    amount = f"{number} {unit}" if number == 1 else f"{number} {unit}s"
    workers = f", {engine.workers} workers" if engine.workers > 1 else ""
    held_out = f", {len(dataset.validation):,} rows held out for validation" if dataset.validation else ""
    lines = [
        f"method     {experiment.label}: {', '.join(_part_with_settings(part) for part in federation.method.parts)}",
        f"data       {dataset.name}: {len(dataset.train):,} training and {len(dataset.test):,} test rows, "
        f"{len(dataset.classes)} classes{held_out}",
        *(
            f"partition  {line}"
            for line in label_skew.describe(counts, parts.notes, local.batch, federation.task.clients)
        ),
        f"model      {model.name}: {model.parameter_count:,} parameters",
        f"work       {len(federation.sampling.sampled(1))} of {federation.task.clients} clients per round, {amount} of "
        f"batch {local.batch}, {local.optimiser} at {local.lr:g} ({local.schedule.name})",
        f"engine     {engine.name} on {engine.device}{workers}, {experiment.precision}",
    ]
    lines += _absences(experiment, federation)
    augment = experiment.data.augment
    once = [rows for rows, is_set in (("training rows", augment.frozen), ("test rows", augment.test)) if is_set]
    if once and (augment.crop or augment.flip):
        lines.append(f"augment    {' and '.join(once)} are cropped and flipped once for all rounds")
    if model.has_norm:
        lines.append(f"batchnorm  {model.batchnorm}: {POLICIES[model.batchnorm]}")
    if model.buffers:
        lines.append(
            "batchnorm  a partial batch is filled with further rows of the client (departure from the papers' code)"
        )
    return [*lines, *_departures(federation)]


def _absences(experiment: Experiment, federation: Federation) -> list[str]:
    """Absent clients by round, and rounds in which all are absent."""
    sampling = federation.sampling
    described = [each.describe(experiment.rounds) for each in sampling.absences]
    lines = [f"absence    {text}" for text in described if text]
    certain = all(isinstance(each, Absence) for each in sampling.absences)
    rounds = range(1, experiment.rounds + 1) if sampling.absences and certain else ()
    if empty := [t for t in rounds if len(sampling.absent(t)) == federation.task.clients]:
        lines.append(
            f"absence    no client is present in {len(empty)} of the rounds, first in round {empty[0]}: the model "
            "stays unchanged"
        )
    return lines


def _departures(federation: Federation) -> list[str]:
    """The text after "Differs:" in the docstring of each part's module."""
    lines = {}
    for part in federation.method.parts:
        _, _, text = (inspect.getdoc(inspect.getmodule(type(part))) or "").partition("Differs:")
        if text.strip() and not text.strip().startswith("nothing"):
            lines[type(part).__module__] = f"differs    {part.name}: {' '.join(text.split())}"
    return list(lines.values())


def _part_with_settings(part: object) -> str:
    fields = getattr(part, "__dataclass_fields__", {})
    settings = ", ".join(f"{name} {getattr(part, name)}" for name in fields)
    return f"{part.name}({settings})" if settings else str(part.name)  # type: ignore[attr-defined]
