"""The model of a run as an ordinary `nn.Module`: the zoo's layers with the trained weights."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from unskew import models
from unskew.base.errors import UserError
from unskew.base.tree import State, unflatten
from unskew.client.round import PRIVATE
from unskew.config.user_code import check_available
from unskew.data.dataset import input_scaling
from unskew.models.norms import norm_tensors, replace_batchnorm
from unskew.protocol.part import Part
from unskew.results.run_folder import read_manifest

if TYPE_CHECKING:
    from unskew.results.load_run import LoadedRun


LOCAL_BATCHNORM = (
    "model.batchnorm is local: trained BatchNorm layers never left the clients, so model.safetensors has the untrained "
    "ones; load(run).model_of(client) is a fully trained model, and the recorded accuracy is measured with those models"
)


def server_model(run: LoadedRun) -> nn.Sequential:
    """The weights in `model.safetensors` as layers."""
    if run.config.model.batchnorm == "local":
        warnings.warn(LOCAL_BATCHNORM, stacklevel=3)
    if unknown := [name for used in run.config.imports for name in used.missing if name.startswith("part ")]:
        warnings.warn(f"{', '.join(unknown)} is not imported: it may change rows in evaluation", stacklevel=3)
    else:
        _warn_of_changed_rows(run)
    return _load_weights(run, _read(run.folder / "model.safetensors"))


def _warn_of_changed_rows(run: LoadedRun) -> None:
    changing = [part.name for part in run.config.create_method().parts if type(part).batch is not Part.batch]
    if changing:
        warnings.warn(
            f"{', '.join(changing)}: this part of the method also changes rows during evaluation, which prepare "
            "does not; the accuracy of the exported model may differ from the recorded one",
            stacklevel=4,
        )


def client_model(run: LoadedRun, client: int) -> nn.Sequential:
    """The server's model with the tensors that never leave the client."""
    state = _read(run.folder / "model.safetensors")
    if run.config.model.batchnorm != "local":
        return _load_weights(run, state)
    files = (read_manifest(run.folder) or {})["clients"]
    if str(client) not in files:
        raise UserError(f"{run.folder}: expected one of the trained clients {_list(files)}, found {client}")
    client_state = unflatten(_read(run.folder / files[str(client)]["file"]), 2)
    return _load_weights(run, state | client_state[PRIVATE])


def prepare(run: LoadedRun, x: Tensor) -> Tensor:
    """Inputs of the model from stored rows."""
    shape = tuple(run.about["shape"])
    if tuple(x.shape[1:]) != shape:
        raise UserError(f"prepare: expected rows of shape [B, {_list(shape)}], found {list(x.shape)}")
    if "mean" not in run.about:
        raise UserError(f"{run.folder}/about.json: expected mean and std of the data, found none; run it again")
    return input_scaling(run.about["mean"], run.about["std"], shape, x.device, _dtype(run))(x)


def _load_weights(run: LoadedRun, state: State) -> nn.Sequential:
    """New layers with these weights."""
    net = _layers(run).to(_dtype(run))
    # By name instead of load_state_dict, because non-persistent buffers are in no state dict.
    tensors = dict(net.named_parameters()) | dict(net.named_buffers())
    wrong = [name for name in {**tensors, **state} if _shape(tensors, name) != _shape(state, name)]
    if wrong:
        name = wrong[0]
        raise UserError(
            f"{run.folder}: expected {name} of shape {_shape(state, name)} in the model, found "
            f"{_shape(tensors, name)}; pass us.load the same network as to the run"
        )
    with torch.no_grad():
        for name, tensor in tensors.items():
            tensor.copy_(state[name])
    return net.eval()


def _layers(run: LoadedRun) -> nn.Sequential:
    config = run.config.model
    if run.custom_model is not None:
        net = copy.deepcopy(run.custom_model)
    elif config.name == "custom":
        raise UserError(
            f"{run.folder}: this run trained a network passed from Python, of which only the weights were saved; "
            "pass your own network again: us.load(folder, model=network)"
        )
    else:
        if models.registered(config.name) is None:
            check_available(run.config.imports, run.folder, "its model")
        net = models.blocks(config.name, tuple(run.about["shape"]), len(run.about["classes"]))
    return replace_batchnorm(net) if config.batchnorm == "group" and norm_tensors(net) else net


def _dtype(run: LoadedRun) -> torch.dtype:
    return torch.float64 if run.config.precision == "float64" else torch.float32


def _read(path: Path) -> State:
    try:
        return safetensors.torch.load_file(path)
    except (OSError, safetensors.SafetensorError) as error:
        raise UserError(f"{path}: expected the weights of a run, found: {error}; run it again") from error


def _shape(tensors: State, name: str) -> list[int] | None:
    return list(tensors[name].shape) if name in tensors else None


def _list(values: object) -> str:
    return ", ".join(map(str, values))  # type: ignore[call-overload]
