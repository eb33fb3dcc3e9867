"""Models of the timm library, cut at their stages: `timm:NAME`, with the extra `vision`.

A timm network can be cut if it is a plain chain of its children. This is not guessed from its name: the chain must
contain every parameter and reproduce the network's own output on a random input.
"""

import importlib
import re
from collections.abc import Callable
from types import ModuleType

import torch
from torch import Tensor, nn

from unskew.base.errors import UserError, did_you_mean

PREFIX = "timm:"
CAN_BE_CUT = "resnet18, mobilenetv2_100, efficientnet_b0, convnext_atto, regnetx_002"
_STAGES = re.compile(r"(stages|blocks|layers|features)")
_STAGE = re.compile(r"(layer|stage|stages_|s)\d+")


def load() -> ModuleType:
    """The timm library, imported only when one of its models is used."""
    try:
        return importlib.import_module("timm")
    except ImportError as error:
        raise UserError(
            f"models named {PREFIX}NAME: expected the timm library, found: {error}; type pip install 'unskew[vision]'"
        ) from error
    except RuntimeError as error:  # torchvision, which timm imports, fails like this with another build of torch
        raise UserError(
            f"models named {PREFIX}NAME: expected a torchvision built for torch {torch.__version__}, found one that "
            f"fails with: {error}; reinstall torch and torchvision from the same index"
        ) from error


def check(name: str) -> None:
    """Refuse a name that is not in timm."""
    timm, bare = load(), name.removeprefix(PREFIX)
    if not timm.is_model(bare):
        hint = did_you_mean(bare, timm.list_models())
        raise UserError(f"model.name: expected a timm model such as {CAN_BE_CUT}, found {bare!r}{hint}")


def build(name: str, shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """An untrained timm model for images of `shape`, as blocks: stem, each stage, pooled vector, classifier."""
    net = load().create_model(name.removeprefix(PREFIX), pretrained=False, in_chans=shape[0], num_classes=classes)
    return cut_into_blocks(net, shape, name)


def cut_into_blocks(net: nn.Module, shape: tuple[int, ...], name: str) -> nn.Sequential:
    """`net` as blocks; refused if the chain of blocks is not equivalent to `net`."""
    get_classifier: Callable[[], object] = getattr(net, "get_classifier", lambda: None)
    classifier = get_classifier()
    if not isinstance(classifier, nn.Linear):
        raise _cannot_cut(name, "its classifier is not one linear layer")
    stem, stages, tail = _split(net, classifier)
    if not stages:
        raise _cannot_cut(name, "it has no stages")
    _make_pure(net, name)
    # An empty stem would add a useless cut.
    blocks = nn.Sequential(*([nn.Sequential(*stem)] if stem else []), *stages, nn.Sequential(*tail), classifier)
    if {id(p) for p in blocks.parameters()} != {id(p) for p in net.parameters()}:
        raise _cannot_cut(name, "it has parameters outside its stages")
    if not _same_output(net, blocks, shape):
        raise _cannot_cut(name, "it is more than a chain of its stages")
    return blocks


def _split(net: nn.Module, classifier: nn.Module) -> tuple[list[nn.Module], list[nn.Module], list[nn.Module]]:
    """The children before the stages, the stages, and the children after them without the classifier."""
    stem: list[nn.Module] = []
    stages: list[nn.Module] = []
    tail: list[nn.Module] = []
    for name, child in net.named_children():
        if isinstance(child, nn.Sequential) and _STAGES.fullmatch(name):
            stages += child.children()
        elif _STAGE.fullmatch(name):
            stages.append(child)
        elif child is not classifier:
            has_classifier = any(module is classifier for module in child.modules())
            modules = [m for m in child.children() if m is not classifier] if has_classifier else [child]
            (tail if stages else stem).extend(modules)
    return stem, stages, tail


def _make_pure(net: nn.Module, name: str) -> None:
    """Turn off in-place layers, which would change their input, and refuse randomness that cannot be replayed."""
    if getattr(net, "drop_rate", 0):
        raise _cannot_cut(name, "it drops features outside its layers, which cannot be replayed")
    for key, module in net.named_modules():
        if getattr(module, "drop_prob", 0):
            raise _cannot_cut(name, f"{key} drops paths at random, which cannot be replayed")
        if getattr(module, "inplace", False):
            module.inplace = False


@torch.no_grad()
def _same_output(net: nn.Module, blocks: nn.Sequential, shape: tuple[int, ...]) -> bool:
    """Whether network and blocks give the same output for a random input."""
    probe = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    training = net.training
    net.eval()
    expected: Tensor = net(probe)
    try:
        actual = blocks(probe)
    except (ValueError, RuntimeError, TypeError, AttributeError):  # a child that takes or returns more than one tensor
        return False
    finally:
        net.train(training)
    return torch.equal(expected, actual)


def _cannot_cut(name: str, reason: str) -> UserError:
    return UserError(
        f"model {name}: expected a timm model that is a chain of stages, found that {reason}; "
        f"try, for example, {CAN_BE_CUT}"
    )
