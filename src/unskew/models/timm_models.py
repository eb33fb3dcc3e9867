"""Models of the timm library, cut at their stages: `timm:NAME`, with the extra `vision`.

A timm network is cut where it is a plain chain of its children. Whether it is one is not guessed from its name: the
chain must hold every parameter and repeat the network's own output on a probe.
"""

import importlib
import re
from collections.abc import Callable
from types import ModuleType

import torch
from torch import Tensor, nn

from unskew.base.errors import UserError, nearest

PREFIX = "timm:"
CAN_BE_CUT = "resnet18, mobilenetv2_100, efficientnet_b0, convnext_atto, regnetx_002"
_STAGES = re.compile(r"(stages|blocks|layers|features)")
_STAGE = re.compile(r"(layer|stage|stages_|s)\d+")


def load() -> ModuleType:
    """The library, imported only when a model of it is asked for."""
    try:
        return importlib.import_module("timm")
    except ImportError as error:
        raise UserError(
            f"models named {PREFIX}NAME: expected the timm library, found {error}; type pip install 'unskew[vision]'"
        ) from error
    except RuntimeError as error:  # torchvision, which timm imports, fails like this beside another build of torch
        raise UserError(
            f"models named {PREFIX}NAME: expected a torchvision built for torch {torch.__version__}, found one that "
            f"fails with {error}; reinstall torch and torchvision from the same index"
        ) from error


def check(name: str) -> None:
    """Refuse a name that timm does not have."""
    timm, bare = load(), name.removeprefix(PREFIX)
    if not timm.is_model(bare):
        hint = nearest(bare, timm.list_models())
        raise UserError(f"model.name: expected a model of timm such as {CAN_BE_CUT}, found {bare!r}{hint}")


def build(name: str, shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """An untrained timm model for images of `shape`, as blocks: stem, each stage, pooled vector, classifier."""
    net = load().create_model(name.removeprefix(PREFIX), pretrained=False, in_chans=shape[0], num_classes=classes)
    return cut(net, shape, name)


def cut(net: nn.Module, shape: tuple[int, ...], name: str) -> nn.Sequential:
    """`net` as blocks; refused where they are not the whole of it."""
    find: Callable[[], object] = getattr(net, "get_classifier", lambda: None)
    classifier = find()
    if not isinstance(classifier, nn.Linear):
        raise _refusal(name, "its classifier is not one linear layer")
    stem, stages, tail = _split(net, classifier)
    if not stages:
        raise _refusal(name, "it has no stages")
    _settle(net, name)
    # An empty stem would be a cut that says nothing.
    blocks = nn.Sequential(*([nn.Sequential(*stem)] if stem else []), *stages, nn.Sequential(*tail), classifier)
    if {id(p) for p in blocks.parameters()} != {id(p) for p in net.parameters()}:
        raise _refusal(name, "it has parameters outside its stages")
    if not _agree(net, blocks, shape):
        raise _refusal(name, "it is more than a chain of its stages")
    return blocks


def _split(net: nn.Module, classifier: nn.Module) -> tuple[list[nn.Module], list[nn.Module], list[nn.Module]]:
    """The children before, at, and after the stages, without the classifier."""
    stem: list[nn.Module] = []
    stages: list[nn.Module] = []
    tail: list[nn.Module] = []
    for name, child in net.named_children():
        if isinstance(child, nn.Sequential) and _STAGES.fullmatch(name):
            stages += child.children()
        elif _STAGE.fullmatch(name):
            stages.append(child)
        elif child is not classifier:
            holds = any(module is classifier for module in child.modules())
            parts = [part for part in child.children() if part is not classifier] if holds else [child]
            (tail if stages else stem).extend(parts)
    return stem, stages, tail


def _settle(net: nn.Module, name: str) -> None:
    """Make a block leave its input alone, and refuse randomness that no plan can repeat."""
    if getattr(net, "drop_rate", 0):
        raise _refusal(name, "it drops features outside its layers, which no plan can repeat")
    for key, module in net.named_modules():
        if getattr(module, "drop_prob", 0):
            raise _refusal(name, f"{key} drops paths at random, which no plan can repeat")
        if getattr(module, "inplace", False):
            module.inplace = False


@torch.no_grad()
def _agree(net: nn.Module, blocks: nn.Sequential, shape: tuple[int, ...]) -> bool:
    probe = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    training = net.training
    net.eval()
    want: Tensor = net(probe)
    try:
        found = blocks(probe)
    except (ValueError, RuntimeError, TypeError, AttributeError):  # a child that takes or gives more than one tensor
        return False
    finally:
        net.train(training)
    return torch.equal(want, found)


def _refusal(name: str, why: str) -> UserError:
    return UserError(
        f"model {name}: expected a timm model that is a chain of stages, found that {why}; models that can be cut are "
        f"for example {CAN_BE_CUT}"
    )
