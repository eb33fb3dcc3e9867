"""The model of a run as an ordinary `nn.Module`: the zoo's layers with the trained weights in them."""

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
from unskew.data.dataset import preparer
from unskew.models.norms import norm_tensors, replace_batchnorm
from unskew.protocol.part import Part
from unskew.results.run_folder import manifest_of

if TYPE_CHECKING:
    from unskew.results.load_run import LoadedRun


LOCAL = (
    "model.batchnorm is local: trained BatchNorm never left the clients, so model.safetensors has the untrained "
    "ones; load(run).model_of(client) is a whole model, and the recorded accuracy is that of these models together"
)


def server_model(run: LoadedRun) -> nn.Sequential:
    """What `model.safetensors` holds, as layers."""
    if run.config.model.batchnorm == "local":
        warnings.warn(LOCAL, stacklevel=3)
    changing = [part.name for part in run.config.create_method().parts if type(part).batch is not Part.batch]
    if changing:
        warnings.warn(
            f"{', '.join(changing)}: this part of the method also changes rows when the model is scored, which "
            "prepare does not do; the model alone may score otherwise than recorded",
            stacklevel=3,
        )
    return _filled(run, _read(run.folder / "model.safetensors"))


def client_model(run: LoadedRun, client: int) -> nn.Sequential:
    """The server's model with the tensors that a client keeps to itself."""
    state = _read(run.folder / "model.safetensors")
    if run.config.model.batchnorm != "local":
        return _filled(run, state)
    known = (manifest_of(run.folder) or {})["clients"]
    if str(client) not in known:
        raise UserError(f"{run.folder}: expected a client that has trained, found {client}; there are {_list(known)}")
    kept = unflatten(_read(run.folder / known[str(client)]["file"]), 2)
    return _filled(run, state | kept[PRIVATE])


def prepare(run: LoadedRun, x: Tensor) -> Tensor:
    """Inputs of the model from stored rows."""
    shape = tuple(run.about["shape"])
    if tuple(x.shape[1:]) != shape:
        raise UserError(f"prepare: expected rows of shape [B, {_list(shape)}], found {list(x.shape)}")
    if "mean" not in run.about:
        raise UserError(f"{run.folder}/about.json: expected mean and std of the data, found none; play the run again")
    return preparer(run.about["mean"], run.about["std"], shape, x.device, _dtype(run))(x)


def _filled(run: LoadedRun, state: State) -> nn.Sequential:
    """Fresh layers with these tensors in them."""
    net = _layers(run).to(_dtype(run))
    # By name and not by load_state_dict: a buffer may be in no state dict.
    slots = dict(net.named_parameters()) | dict(net.named_buffers())
    wrong = [name for name in {**slots, **state} if _shape(slots, name) != _shape(state, name)]
    if wrong:
        name = wrong[0]
        raise UserError(
            f"{run.folder}: expected {name} of shape {_shape(state, name)} in the model, found {_shape(slots, name)}; "
            "give us.load the network that the run was given"
        )
    with torch.no_grad():
        for name, slot in slots.items():
            slot.copy_(state[name])
    return net.eval()


def _layers(run: LoadedRun) -> nn.Sequential:
    config = run.config.model
    if run.given is not None:
        net = copy.deepcopy(run.given)
    elif config.name == "custom":
        raise UserError(
            f"{run.folder}: this run trained a network that was given from Python, of which only the weights are kept; "
            "type us.load(folder, model=network)"
        )
    else:
        net = models.blocks(config.name, tuple(run.about["shape"]), len(run.about["classes"]))
    return replace_batchnorm(net) if config.batchnorm == "group" and norm_tensors(net) else net


def _dtype(run: LoadedRun) -> torch.dtype:
    return torch.float64 if run.config.precision == "float64" else torch.float32


def _read(path: Path) -> State:
    try:
        return safetensors.torch.load_file(path)
    except (OSError, safetensors.SafetensorError) as error:
        raise UserError(f"{path}: expected the weights of a run, found: {error}; play the run again") from error


def _shape(tensors: State, name: str) -> list[int] | None:
    return list(tensors[name].shape) if name in tensors else None


def _list(values: object) -> str:
    return ", ".join(map(str, values))  # type: ignore[call-overload]
