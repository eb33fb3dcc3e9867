"""The header of a run: what a reader of its results must know."""

from __future__ import annotations

import inspect

import numpy as np

from unskew.config.experiment import Experiment
from unskew.data import Dataset, label_skew
from unskew.data.split_cache import ClientRowNumbers
from unskew.models.norms import POLICIES
from unskew.server.federation import Federation


def header(
    experiment: Experiment, federation: Federation, dataset: Dataset, counts: np.ndarray, parts: ClientRowNumbers
) -> list[str]:
    """What a reader of the results must know, departures included."""
    model, engine, local = federation.model, federation.engine, experiment.local
    much, unit = (local.steps, "step") if local.steps else (local.epochs, "epoch")
    amount = f"{much} {unit}" if much == 1 else f"{much} {unit}s"
    workers = f", {engine.workers} workers" if engine.workers > 1 else ""
    held_out = f", {len(dataset.validation):,} rows held out for validation" if dataset.validation else ""
    lines = [
        f"method     {experiment.label}: {', '.join(_written(part) for part in federation.method.parts)}",
        f"data       {dataset.name}: {len(dataset.train):,} training and {len(dataset.test):,} test rows, "
        f"{len(dataset.classes)} classes{held_out}",
        *(
            f"partition  {line}"
            for line in label_skew.describe(counts, parts.notes, local.batch, federation.task.clients)
        ),
        f"model      {model.name}: {model.count:,} parameters",
        f"work       {len(federation.sampling.sampled(1))} of {federation.task.clients} clients a round, {amount} of "
        f"batch {local.batch}, {local.optimiser} at {local.lr:g} ({local.schedule.name})",
        f"engine     {engine.name} on {engine.device}{workers}, {experiment.precision}",
    ]
    lines += _absences(experiment, federation)
    asked = experiment.data.augment
    once = [rows for rows, yes in (("training rows", asked.frozen), ("test rows", asked.test)) if yes]
    if once and (asked.crop or asked.flip):
        lines.append(f"augment    {' and '.join(once)} are cropped and flipped once, for all rounds")
    if model.has_norm:
        lines.append(f"batchnorm  {model.batchnorm}: {POLICIES[model.batchnorm]}")
    if model.buffers:
        lines.append(
            "batchnorm  a partial batch is filled with further rows of the client (departure from the papers' code)"
        )
    return [*lines, *_departures(federation)]


def _absences(experiment: Experiment, federation: Federation) -> list[str]:
    """Who is away when, and rounds without anybody."""
    lines = []
    for away in experiment.absence:
        first, last = away.rounds[0], min(away.rounds[1] - 1, experiment.rounds)
        if first <= last:
            when = f"in round {first}" if first == last else f"in rounds {first} to {last}"
            who = f"client {away.clients[0]} is" if len(away.clients) == 1 else f"{len(away.clients)} clients are"
            lines.append(f"absence    {who} away {when}")
    rounds = range(1, experiment.rounds + 1) if experiment.absence else ()
    if empty := [t for t in rounds if len(federation.sampling.absent(t)) == federation.task.clients]:
        lines.append(
            f"absence    nobody is there in {len(empty)} of the rounds, first in {empty[0]}: the model stays as it is"
        )
    return lines


def _departures(federation: Federation) -> list[str]:
    """What each method's file says under "Differs:"."""
    lines = {}
    for part in federation.method.parts:
        _, _, text = (inspect.getdoc(inspect.getmodule(type(part))) or "").partition("Differs:")
        if text.strip() and not text.strip().startswith("nothing"):
            lines[type(part).__module__] = f"differs    {part.name}: {' '.join(text.split())}"
    return list(lines.values())


def _written(part: object) -> str:
    fields = getattr(part, "__dataclass_fields__", {})
    inside = ", ".join(f"{name} {getattr(part, name)}" for name in fields)
    return f"{part.name}({inside})" if inside else str(part.name)  # type: ignore[attr-defined]
