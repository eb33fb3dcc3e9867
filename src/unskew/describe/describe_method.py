"""A method as a page shows it: its files' words, its fields, what travels, what is kept. All read from the parts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from unskew.describe import method_docstring
from unskew.describe.method_docstring import MethodDocstring
from unskew.protocol import method_registry
from unskew.protocol.method import Method
from unskew.protocol.part import Artefact, Exchange, Part

Direction = Literal["up", "down"]
_LIMITS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


@dataclass(frozen=True)
class HyperParameter:
    """One hyper-parameter."""

    part: str
    name: str
    type: str
    default: Any
    limits: str
    told: str  # what it does, and where its value comes from
    neutral: Any  # the value at which the part changes nothing; None where there is none


@dataclass(frozen=True)
class ArtefactFlow:
    """One artefact that crosses between client and server."""

    direction: Direction
    part: str
    name: str
    kind: str
    reduce: str
    when: str
    beyond: bool  # more than the model and the number of rows, which every method needs
    form: str = ""  # how it travels, where a part seals it


@dataclass(frozen=True)
class MethodDescription:
    """Everything that is declared about a method."""

    name: str
    parts: tuple[str, ...]
    headline: MethodDocstring
    files: tuple[MethodDocstring, ...]
    settings: tuple[HyperParameter, ...]
    flows: tuple[ArtefactFlow, ...]

    @property
    def beyond(self) -> str:
        """What leaves a client beyond the model, by kind; "nothing" for FedAvg."""
        kinds: dict[str, list[str]] = {}
        for flow in self.flows:
            if flow.beyond and flow.direction == "up":
                kinds.setdefault(flow.kind, []).append(flow.name)
        told = [kind if names == [kind] else f"{kind} {', '.join(names)}" for kind, names in kinds.items()]
        return "; ".join(told) or "nothing"


def shipped() -> list[str]:
    """The methods that come with the package: fedavg, then by name."""
    names = [name for name in method_registry.known() if all(_own(part) for part in method_registry.resolve(name))]
    return sorted(names, key=lambda name: (name != "fedavg", name))


def describe(name: str) -> MethodDescription:
    """A registered method, or any sum of methods and parts such as fedprox+avgm."""
    method = method_registry.create(method_registry.resolve(name))
    classes = [type(part) for part in method.parts]
    flows = [
        ArtefactFlow("down", "model", "weights", "weights", "", "before training", False),
        ArtefactFlow("up", "model", "samples", "counts", "", "after training", False),
        *(_sealed(flow, method) for part in classes for flow in _flows(part)),
    ]
    # A method's own file is that of the last part it adds; a sum is described by all of them.
    own = [word for word in method_registry.METHODS.get(name, ()) if word in method_registry.PARTS]
    headline = method_docstring.read(method_registry.PARTS[own[-1]] if own else classes[-1])
    settings = tuple(setting for part in classes for setting in _settings(part))
    # A method's own file comes first; in a sum nothing is first, and the order is that of the parts.
    files = sorted(method_docstring.of_parts(classes), key=lambda file: bool(own) and file.module != headline.module)
    return MethodDescription(
        method_registry.label(name),
        tuple(part.name for part in classes),
        headline,
        tuple(files),
        settings,
        tuple(flows),
    )


def _own(part: str) -> bool:
    return method_registry.PARTS[part].__module__.startswith("unskew.")


def _flows(part: type[Part]) -> list[ArtefactFlow]:
    when = _when(part.exchange) if part.exchange else ""
    return [
        *(_flow("up", part, name, each, "after training") for name, each in part.sends.items()),
        *(_flow("up", part, name, each, when) for name, each in part.shares.items()),
        *(_flow("down", part, name, each, "before training") for name, each in part.broadcasts.items()),
    ]


def _sealed(flow: ArtefactFlow, method: Method) -> ArtefactFlow:
    forms = [part.travels_as for part in method.seals if part.travels_as]
    update = forms and (flow.direction, flow.part, flow.name) == ("up", *method.update[:2])
    return replace(flow, form=", ".join(forms)) if update else flow


def _when(exchange: Exchange) -> str:
    who = "" if exchange.who == "participants" else f", {exchange.who}"
    every = "" if exchange.every == 1 else f", every {exchange.every} rounds"
    return f"{exchange.when}{who}{every}"


def _flow(direction: Direction, part: type[Part], name: str, artefact: Artefact, when: str) -> ArtefactFlow:
    model = part.owner and direction == "up" and artefact.kind == "weights"
    lasting = ", when changed" if artefact.lasting else ""
    reduce = artefact.reduce if direction == "up" else ""
    return ArtefactFlow(direction, part.name, name, artefact.kind, reduce, when + lasting, not model)


def _settings(part: type[Part]) -> list[HyperParameter]:
    fields: dict[str, FieldInfo] = part.__pydantic_fields__  # type: ignore[attr-defined]
    return [
        HyperParameter(
            part.name,
            name,
            _type(field.annotation),
            field.get_default(call_default_factory=True),
            _limits(field),
            field.description or "",
            part.neutral.get(name),
        )
        for name, field in fields.items()
    ]


def _type(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return " or ".join(map(str, get_args(annotation)))
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _limits(field: FieldInfo) -> str:
    found = [(_LIMITS[key], getattr(rule, key)) for rule in field.metadata for key in _LIMITS if hasattr(rule, key)]
    return ", ".join(f"{words} {value:g}" for words, value in found)
