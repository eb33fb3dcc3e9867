"""Describe a method: docstrings of its files, hyper-parameters, and exchanged artefacts, all read from its parts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from unskew.describe import method_docstring
from unskew.describe.json_record import json_record
from unskew.describe.method_docstring import MethodDocstring
from unskew.protocol import method_registry
from unskew.protocol.method import Method
from unskew.protocol.part import Artefact, Exchange, Part

Direction = Literal["up", "down"]
_LIMITS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


BUFFERS = "statistics"  # running statistics that a method sends apart from the weights; FedAvg sends them with these


@dataclass(frozen=True)
class HyperParameter:
    """One hyper-parameter."""

    part: str
    name: str
    type: str
    default: Any
    limits: str
    meaning: str  # ends with the source of the default
    neutral: Any  # the value at which the part has no effect; None if there is none


@dataclass(frozen=True)
class ArtefactFlow:
    """One artefact that crosses between client and server."""

    direction: Direction
    part: str
    name: str
    kind: str
    reduce: str
    when: str
    extra: bool  # sent in addition to the model and the number of rows, which every method sends
    form: str = ""  # how it is encoded, if a part seals it


@dataclass(frozen=True)
class MethodDescription:
    """Everything that a method declares about itself."""

    name: str
    parts: tuple[str, ...]
    headline: MethodDocstring
    files: tuple[MethodDocstring, ...]
    settings: tuple[HyperParameter, ...]
    flows: tuple[ArtefactFlow, ...]

    def record(self) -> dict[str, Any]:
        """All fields, under the keys of `unskew methods NAME --json`."""
        return json_record(self)

    @property
    def sent_besides_model(self) -> str:
        """What leaves a client in addition to the model, by kind; "nothing" for FedAvg."""
        kinds: dict[str, list[str]] = {}
        for flow in self.flows:
            if flow.extra and flow.direction == "up" and flow.name != BUFFERS:
                kinds.setdefault(flow.kind, []).append(flow.name)
        words = [kind if names == [kind] else f"{kind} {', '.join(names)}" for kind, names in kinds.items()]
        return "; ".join(words) or "nothing"


def shipped() -> list[str]:
    """The methods that come with the package: fedavg first, then by name."""
    known = method_registry.method_names()
    names = [name for name in known if all(_is_packaged(part) for part in method_registry.resolve(name))]
    return sorted(names, key=lambda name: (name != "fedavg", name))


def describe(name: str) -> MethodDescription:
    """Describe a registered method, or any sum of methods and parts such as fedprox+avgm."""
    method = method_registry.create(method_registry.resolve(name))
    classes = [type(part) for part in method.parts]
    flows = [
        ArtefactFlow("down", "model", "weights", "weights", "", "before training", False),
        ArtefactFlow("up", "model", "samples", "counts", "", "after training", False),
        *(_with_sealed_form(flow, method) for part in classes for flow in _artefact_flows(part)),
    ]
    # A method's main file is that of the last part it adds; a sum has no main file.
    added = [word for word in method_registry.METHODS.get(name, ()) if word in method_registry.PARTS]
    headline = method_docstring.read(method_registry.PARTS[added[-1]] if added else classes[-1])
    settings = tuple(setting for part in classes for setting in _hyper_parameters(part))
    # The main file comes first; the files of a sum are in the order of its parts.
    files = sorted(
        method_docstring.read_parts(classes), key=lambda file: bool(added) and file.module != headline.module
    )
    return MethodDescription(
        method_registry.label(name),
        tuple(part.name for part in classes),
        headline,
        tuple(files),
        settings,
        tuple(flows),
    )


def _is_packaged(part: str) -> bool:
    return method_registry.PARTS[part].__module__.startswith("unskew.")


def _artefact_flows(part: type[Part]) -> list[ArtefactFlow]:
    when = _when(part.exchange) if part.exchange else ""
    return [
        *(_flow("up", part, name, each, "after training") for name, each in part.sends.items()),
        *(_flow("up", part, name, each, when) for name, each in part.shares.items()),
        *(_flow("down", part, name, each, "before training") for name, each in part.broadcasts.items()),
    ]


def _with_sealed_form(flow: ArtefactFlow, method: Method) -> ArtefactFlow:
    forms = [part.travels_as for part in method.sealing_parts if part.travels_as]
    update = forms and (flow.direction, flow.part, flow.name) == ("up", *method.update_location[:2])
    return replace(flow, form=", ".join(forms)) if update else flow


def _when(exchange: Exchange) -> str:
    members = "" if exchange.who == "participants" else f", {exchange.who}"
    every = "" if exchange.every == 1 else f", every {exchange.every} rounds"
    return f"{exchange.when}{members}{every}"


def _flow(direction: Direction, part: type[Part], name: str, artefact: Artefact, when: str) -> ArtefactFlow:
    model = part.owner and direction == "up" and artefact.kind == "weights"
    lasting = ", when changed" if artefact.lasting else ""
    reduce = artefact.reduce if direction == "up" else ""
    return ArtefactFlow(direction, part.name, name, artefact.kind, reduce, when + lasting, not model)


def _hyper_parameters(part: type[Part]) -> list[HyperParameter]:
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
    limits = [(_LIMITS[key], getattr(rule, key)) for rule in field.metadata for key in _LIMITS if hasattr(rule, key)]
    return ", ".join(f"{words} {value:g}" for words, value in limits)
