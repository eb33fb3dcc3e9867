"""From an experiment to a federation: data, partition, model, method, engine, all checked before the first round."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unskew import data as datasets
from unskew import models
from unskew.base.environment import core_count, pick_device
from unskew.base.errors import UserError
from unskew.base.keyed_rng import hash_key
from unskew.base.per_client import ComputedPerClient, clients_for_statistics
from unskew.base.tree import size_in_bytes
from unskew.client.client_rows import ClientRows
from unskew.client.plan import Plan
from unskew.config.experiment import Experiment
from unskew.data import Dataset, label_skew
from unskew.data.augment import Augment, augment_once
from unskew.data.partition import split
from unskew.data.split_cache import ClientRowNumbers
from unskew.engines import engine_registry as engines
from unskew.engines.engine import EngineContext
from unskew.engines.stacked.cohort_memory import available_memory
from unskew.models.model import Model
from unskew.protocol.method import Task
from unskew.protocol.work import Work
from unskew.runner import fingerprints
from unskew.runner.early_stopping import EarlyStopping
from unskew.runner.evaluate_round import ScoredClients, rows_to_score, scored_clients, with_owners
from unskew.runner.header import header
from unskew.runner.process_setup import keep_freed_memory
from unskew.runner.resolve_absence import RunFacts, resolve
from unskew.server.absence import AnyAbsence
from unskew.server.client_store import ClientStore
from unskew.server.federation import Federation
from unskew.server.sampling import Sampling
from unskew.server.storage import DiskStorage, MemoryStorage, Storage

LARGE_COHORT = 5_000  # participants; more than in any known experiment, and an hour of steps on two cores
STATE_IN_MEMORY = 2**30  # bytes of clients' state that the host keeps in memory; above, it is stored on disk


@dataclass(frozen=True)
class SplitAndSampling:
    """The clients' rows and the sampled clients of each round: everything in a run that needs no model."""

    parts: ClientRowNumbers
    task: Task
    sampling: Sampling
    counted: Sequence[int]  # clients in the statistics of the partition: all, unless there are too many
    counts: np.ndarray  # [counted, classes]
    absences: tuple[tuple[AnyAbsence, ...], ...] = ()  # by entry of the section `absence`


@dataclass(frozen=True)
class PreparedRun:
    """A federation ready to run, with its header."""

    experiment: Experiment
    federation: Federation
    dataset: Dataset
    split: SplitAndSampling
    header: list[str]
    stop: EarlyStopping  # when to stop before the last round
    fingerprints: dict[str, str]  # of data, partition and model, which must be the same after a resume
    scored: ScoredClients | None = None  # with `evaluate.clients`


def prepare(
    experiment: Experiment,
    *,
    data: Dataset | None = None,
    model: nn.Sequential | None = None,
    data_dir: Path | None = None,
    state_dir: Path | None = None,
) -> PreparedRun:
    """Prepare everything a run needs. Cheap checks come before data are read.

    state_dir: for clients' state that does not fit into memory; default: a temporary folder.
    """
    method = experiment.create_method().build(experiment.local.work(1, experiment.rounds))
    device = pick_device(experiment.device)
    if model is None:
        models.check_name(experiment.model.name)
    dtype = torch.float64 if experiment.precision == "float64" else torch.float32
    dataset = _augmented(experiment, read_data(experiment, data_dir, data))
    stop = EarlyStopping(experiment.stop, dataset)
    assigned = split_and_sample(experiment, dataset, data_dir)
    parts, task, sampling = assigned.parts, assigned.task, assigned.sampling
    net = _model(experiment, dataset, model, dtype)
    splits, scored = rows_to_score(dataset, device), None
    if experiment.evaluate.clients:
        scored = scored_clients(assigned.counted, assigned.counts)
        if experiment.partition.name == "group":
            splits["test"] = with_owners(splits["test"], dataset, parts, scored.clients)
            owner = splits["test"].owner
            own_rows = 0 if owner is None else len(set(owner.tolist()) & set(range(len(scored.clients))))
            scored = replace(scored, own_rows=own_rows)
    context = EngineContext(
        method,
        net,
        task,
        Plan(experiment.seed),
        _client_rows(experiment, dataset, parts, device, dtype),
        device,
        dtype,
        splits=splits,
        upcoming=sampling.sampled,
    )
    store = ClientStore(context.newcomer_state, _storage(context, sampling, state_dir))
    rows = ComputedPerClient(lambda k: len(parts.rows[k]))
    prints = (
        fingerprints.data_fingerprints(dataset)
        | fingerprints.split_fingerprint(parts)
        | fingerprints.model_fingerprints(net, model)
    )
    keep_freed_memory()
    # The engine last: it may fork, and a failure above must not leave processes behind.
    engine = engines.make(experiment.engine.name, context, experiment.engine.workers or core_count())
    by_rows, policy = experiment.weights == "samples", experiment.reply_policy()
    federation = Federation(method, net, task, sampling, engine, store, by_rows, rows, policy=policy)
    warnings = [f"warning    {line}" for line in cohort_size_warning(sampling)]
    lines = [*header(experiment, federation, dataset, assigned.counts, parts), *warnings, *stop.header]
    lines += [scored.header(len(net.private) > 0)] if scored else []
    return PreparedRun(experiment, federation, dataset, assigned, lines, stop, prints, scored)


def check_same_inputs(
    manifest: dict[str, Any], folder: Path, experiment: Experiment, data: Dataset | None, model: nn.Sequential | None
) -> None:
    """Refuse data or a network from Python that are not those of a finished run; settings cannot tell."""
    now: dict[str, str] = {}
    if data is not None:
        now |= fingerprints.data_fingerprints(_augmented(experiment, read_data(experiment, None, data)))
    if model is not None:
        now |= fingerprints.model_fingerprints(Model(model, "custom", torch.float32, experiment.model.batchnorm), model)
    if changed := fingerprints.changed(manifest["world"], now):
        raise UserError(
            f"{folder}: expected the {' and '.join(changed)} that this finished run was started with, found other "
            "contents; choose another --out"
        )


def _augmented(experiment: Experiment, dataset: Dataset) -> Dataset:
    """The dataset with the rows that are cropped and flipped once for all rounds."""
    augment = experiment.data.augment
    return augment_once(dataset, _augment(experiment), experiment.seed, train=augment.frozen, test=augment.test)


def _work(experiment: Experiment, round: int) -> Work:
    return experiment.local.work(round, experiment.rounds)


def read_data(
    experiment: Experiment,
    root: Path | None,
    custom: Dataset | None = None,
    load: Callable[..., Dataset] | None = None,
) -> Dataset:
    """The dataset of a run; `load` may be a function that reads less of it."""
    config, load = experiment.data, load or datasets.load
    try:
        dataset = custom or load(config.name, root, test=config.test, seed=experiment.seed, verify=config.verify)
    except UserError as error:
        raise UserError(f"data.name: {error}") from error
    if config.validation:
        dataset = dataset.hold_out(config.validation, experiment.seed)
    if any((config.augment.crop, config.augment.flip, config.augment.cutout)) and len(dataset.shape) != 3:
        raise UserError(f"data.augment: expected images [channels, height, width], found rows of shape {dataset.shape}")
    return dataset


def split_rows(experiment: Experiment, dataset: Dataset, root: Path | None) -> ClientRowNumbers:
    """The row numbers of each client."""
    labels = dataset.train.y.numpy()
    cache = datasets.data_root(root) / "partitions"
    try:
        return split(experiment.partition, labels, len(dataset.classes), experiment.seed, dataset.train.group, cache)
    except UserError as error:
        raise UserError(f"partition: {error}") from error


def split_and_sample(experiment: Experiment, dataset: Dataset, root: Path | None) -> SplitAndSampling:
    """The split, its counts, and the sampling of clients by round."""
    parts, classes = split_rows(experiment, dataset, root), len(dataset.classes)
    clients, rounds = len(parts.rows), experiment.rounds
    task = Task(clients, classes, tuple(dataset.shape), rounds, partial(_work, experiment), experiment.rules)
    counted = clients_for_statistics(clients)
    counts = label_skew.counts([parts.rows[k] for k in counted], dataset.train.y.numpy(), classes)
    facts = RunFacts(clients, rounds, experiment.seed, partial(_sizes, parts), partial(_all_counts, parts, dataset))
    absences = tuple(tuple(resolve(entry, facts)) for entry in experiment.absence)
    released = experiment.rules == "released"
    sampling = Sampling(experiment.seed, clients, experiment.participation, tuple(chain(*absences)), released)
    return SplitAndSampling(parts, task, sampling, counted, counts, absences)


def _sizes(parts: ClientRowNumbers) -> list[int]:
    return [len(parts.rows[k]) for k in range(len(parts.rows))]


def _all_counts(parts: ClientRowNumbers, dataset: Dataset) -> np.ndarray:
    """Rows by client and class, of all clients."""
    rows = [parts.rows[k] for k in range(len(parts.rows))]
    return label_skew.counts(rows, dataset.train.y.numpy(), len(dataset.classes))


def cohort_size_warning(sampling: Sampling) -> list[str]:
    """A warning for very large rounds, which a share of a million clients easily causes by mistake."""
    if sampling.clients_per_round <= LARGE_COHORT:
        return []
    return [
        f"{sampling.clients_per_round:,} clients train in every round, which takes long; for about 100 clients type "
        f"participation={100 / sampling.clients:.3g}"
    ]


def _model(experiment: Experiment, dataset: Dataset, custom: nn.Sequential | None, dtype: torch.dtype) -> Model:
    shape, classes, bf16 = tuple(dataset.shape), len(dataset.classes), experiment.precision == "bf16"
    if custom is None:
        seed = hash_key(experiment.seed, "model")
        net = models.build(experiment.model.name, shape, classes, seed, dtype, experiment.model.batchnorm, bf16)
    else:
        net = Model(custom, "custom", dtype, experiment.model.batchnorm, bf16)
    _check_model(net, dataset.prepare(dataset.train.x[:2]).to(dtype), classes)
    return net


def _check_model(net: Model, x: Tensor, classes: int) -> None:
    """Run two rows: the shapes must fit, and all random numbers in training must come from the plan's seed."""
    seed = torch.zeros((), dtype=torch.int64)
    try:
        out = net.run(net.initial, x)
        for i, h in enumerate(_block_inputs(net, x)):
            state = {name: tensor.clone() for name, tensor in net.initial.items()}
            first, again = (net.block(state, h, i, train=True, seed=seed) for _ in range(2))
            if not torch.equal(first, again):
                raise UserError(
                    f"model {net.name}: block {i} gives different outputs for the same input and seed; replace "
                    "F.dropout and other random functions by nn.Dropout, whose masks come from the plan"
                )
    except (RuntimeError, ValueError) as error:
        raise UserError(f"model {net.name} does not take rows of shape {tuple(x.shape[1:])}: {error}") from error
    if out.shape != (len(x), classes):
        raise UserError(f"model {net.name}: expected {classes} outputs a row, found {tuple(out.shape[1:])}")


def _block_inputs(net: Model, x: Tensor) -> Iterator[Tensor]:
    """The input of every block in eval mode."""
    for i in range(net.depth):
        yield x
        x = net.block(net.initial, x, i, train=False)


def _augment(experiment: Experiment) -> Augment:
    config = experiment.data.augment
    return Augment(config.crop, config.flip, config.cutout)


def _client_rows(
    experiment: Experiment, dataset: Dataset, parts: ClientRowNumbers, device: torch.device, dtype: torch.dtype
) -> ClientRows:
    index = ComputedPerClient(lambda k: torch.from_numpy(np.ascontiguousarray(parts.rows[k])))
    augment = Augment() if experiment.data.augment.frozen else _augment(experiment)
    x, y = dataset.train.x.to(device), dataset.train.y.to(device)
    return ClientRows(x, y, index, len(dataset.classes), dataset.input_scaling(device, dtype), dtype, augment)


def _storage(context: EngineContext, sampling: Sampling, folder: Path | None) -> Storage:
    """Client state stays on the GPU if it takes less than a quarter of it, else on the host if little, else on disk."""
    state_bytes = size_in_bytes(context.newcomer_state(0))  # type: ignore[arg-type]
    # An exchange may ask all clients; without one, only sampled clients have a state.
    asks_all = any(part.exchange is not None and part.exchange.who == "all" for part in context.method.parts)
    trained = context.task.last_round * len(sampling.sampled(1))
    size = state_bytes * (sampling.clients if asks_all else min(sampling.clients, trained))
    if context.device.type == "cuda" and size < available_memory(context.device) / 4:
        return MemoryStorage(context.device)
    return MemoryStorage(torch.device("cpu")) if size <= STATE_IN_MEMORY else DiskStorage(folder)
