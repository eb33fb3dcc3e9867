"""A model is a sequence of blocks and a pure function of its state; a cut is an integer.

Cut 0 is the input, cut i the output of block i, cut `depth` the logits. `feature` is the cut before the last block:
the representation used by contrastive and decorrelation losses.
"""

import copy
from collections.abc import Callable, Iterable
from typing import Self

import torch
from torch import Tensor, nn
from torch.func import functional_call

from unskew.base.errors import UserError
from unskew.base.tree import Role, State
from unskew.models.norms import BatchNormPolicy, freeze_batchnorm, norm_tensors, replace_batchnorm
from unskew.models.seeded_dropout import SeededDropout, replace_dropout


class Model:
    """Blocks without tensors: `run` takes the state as an argument and never changes it."""

    def __init__(
        self,
        blocks: nn.Sequential,
        name: str = "custom",
        dtype: torch.dtype = torch.float32,
        batchnorm: BatchNormPolicy = "average",
        bf16: bool = False,
    ) -> None:
        _check(blocks, name)
        self.bf16 = bf16  # activations and matmuls in bf16; weights, statistics and losses keep their type
        # The caller's module is copied, not changed. There are two skeletons below, one in train and one in eval mode,
        # because switching a single one between the modes would be hidden state.
        blocks = replace_dropout(copy.deepcopy(blocks))
        self.batchnorm, self.has_norm = batchnorm, bool(norm_tensors(blocks))
        if batchnorm == "group":
            blocks = replace_batchnorm(blocks)
        norms = [layer for layer in blocks.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)]
        # Whether the output of a row in eval mode is independent of the other rows of its batch.
        self.rows_independent = all(layer.track_running_stats for layer in norms)
        self.has_convolution = any(isinstance(layer, nn.modules.conv._ConvNd) for layer in blocks.modules())
        self.name, self.depth, self.feature = name, len(blocks), len(blocks) - 1
        self.initial: State = {
            key: tensor.detach().clone().to(dtype if tensor.is_floating_point() else tensor.dtype)
            for key, tensor in _tensors(blocks)
        }
        self.roles: dict[str, Role] = {key: _role(key, blocks) for key, _ in _tensors(blocks)}
        self.parameters = tuple(key for key, role in self.roles.items() if role == "parameter")
        self.buffers = tuple(key for key, role in self.roles.items() if role != "parameter")
        # The tensors that never leave a client (FedBN), and the trained tensors that do.
        self.private = norm_tensors(blocks) if batchnorm == "local" else ()
        self.shared = tuple(key for key in self.parameters if key not in self.private)
        layers = [key for key, module in blocks.named_modules() if isinstance(module, SeededDropout)]
        self._seeds = [
            [(n, f"{key}.seed".removeprefix(f"{i}.")) for n, key in enumerate(layers) if f"{key}.".startswith(f"{i}.")]
            for i in range(self.depth)
        ]
        self.has_dropout = bool(layers)  # whether training draws dropout masks
        # For each block, its tensor names and their state keys; a tensor shared by several layers has several names.
        owner = {id(tensor): key for key, tensor in _tensors(blocks)}
        self._keys = [tuple((name, owner[id(tensor)]) for name, tensor in _named_slots(block)) for block in blocks]
        skeleton = blocks.to("meta")
        self._train, self._eval = copy.deepcopy(skeleton).train(), skeleton.eval()
        if batchnorm == "frozen":
            freeze_batchnorm(self._train)

    def with_layers(self, rewrite: Callable[[nn.Sequential], nn.Sequential]) -> Self:
        """The same model and tensors with other layers; engines use it to replace layers by their own."""
        other = copy.copy(self)
        other._train, other._eval = (rewrite(copy.deepcopy(blocks)) for blocks in (self._train, self._eval))
        return other

    @property
    def parameter_count(self) -> int:
        """Number of parameters."""
        return sum(self.initial[name].numel() for name in self.parameters)

    def run(self, state: State, h: Tensor, start: int = 0, stop: int | None = None) -> Tensor:
        """Blocks start..stop on `h` [b, ...] in eval mode."""
        for i in range(start, self.depth if stop is None else stop):
            h = self.block(state, h, i, train=False)
        return h

    # With `train`, running statistics in `state` are updated in place, so the caller passes clones.
    def block(self, state: State, h: Tensor, i: int, *, train: bool, seed: Tensor | None = None) -> Tensor:
        """Block i on `h` [b, ...]; `seed` [] int64 drives dropout in training."""
        tensors = {name: state[key] for name, key in self._keys[i]}
        for number, name in self._seeds[i]:
            # Each dropout layer has its own seed; in eval mode the seed is not read.
            tensors[name] = torch.zeros((), dtype=torch.int64) if seed is None else seed + 0x85EBCA6B * number
        block = (self._train if train else self._eval)[i]
        if not self.bf16:
            return functional_call(block, tensors, (h,), tie_weights=False)
        # Without the cache of cast weights, because a replayed CUDA graph must cast them again.
        with torch.autocast(h.device.type, torch.bfloat16, cache_enabled=False):
            return functional_call(block, tensors, (h,), tie_weights=False)


def _tensors(module: nn.Module) -> Iterable[tuple[str, Tensor]]:
    yield from module.named_parameters()
    yield from ((key, buffer) for key, buffer in module.named_buffers() if not _is_seed(key, module))


def _named_slots(block: nn.Module) -> Iterable[tuple[str, Tensor]]:
    """Like `_tensors` for one block, but a shared tensor appears once for every layer that has it."""
    for prefix, module in block.named_modules():
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            key = f"{prefix}.{name}" if prefix else name
            if tensor is not None and not _is_seed(key, block):
                yield key, tensor


def _is_seed(key: str, module: nn.Module) -> bool:
    owner, _, leaf = key.rpartition(".")
    return leaf == "seed" and isinstance(module.get_submodule(owner), SeededDropout)


def _role(key: str, blocks: nn.Sequential) -> Role:
    if key in dict(blocks.named_parameters()):
        return "parameter"
    return "statistic" if blocks.get_buffer(key).is_floating_point() else "counter"


def _check(blocks: nn.Sequential, name: str) -> None:
    """Refuse layers that are not a pure function of state and batch, and name an alternative."""
    if not isinstance(blocks, nn.Sequential) or len(blocks) < 2:
        raise UserError(
            f"model {name}: expected an nn.Sequential of at least 2 blocks (the last is the classifier), found "
            f"{type(blocks).__name__}; wrap the parts of your network as nn.Sequential(body, head)"
        )
    for key, module in blocks.named_modules():
        if (
            isinstance(module, nn.modules.batchnorm._BatchNorm)
            and module.momentum is None
            and module.track_running_stats
        ):
            raise UserError(
                f"model {name}: {key} is a BatchNorm with momentum=None, whose average depends on a counter "
                "read during training; give it a momentum such as 0.1"
            )
        if isinstance(module, nn.RNNBase | nn.MultiheadAttention) and module.dropout > 0:
            raise UserError(f"model {name}: {key} draws dropout masks that cannot be replayed; set its dropout to 0")
        if isinstance(module, nn.AlphaDropout | nn.FeatureAlphaDropout):
            raise UserError(
                f"model {name}: {key} is {type(module).__name__}, whose masks cannot be replayed; use nn.Dropout"
            )
    owners = [(tensor, i) for i, block in enumerate(blocks) for tensor in block.parameters()]
    if len({id(tensor) for tensor, _ in owners}) < len(owners):
        raise UserError(
            f"model {name}: two blocks share a tensor, so the model cannot be cut between them; put both layers that "
            "share it into one block"
        )
