"""From a method's specification to its parts: names, a+b, lists, settings, replacements, and errors."""

from typing import Any

import pytest
from pydantic import Field
from torch import Tensor

import unskew as us
from unskew.base.errors import UserError
from unskew.config.experiment import expand_method
from unskew.protocol import method_registry
from unskew.protocol.part import Part
from unskew.protocol.step_view import View


@pytest.fixture
def sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo all registrations after the test."""
    method_registry.method_names()
    monkeypatch.setattr(method_registry, "PARTS", dict(method_registry.PARTS))
    monkeypatch.setattr(method_registry, "METHODS", dict(method_registry.METHODS))


def part_names(spec: Any) -> list[str]:
    return list(method_registry.resolve(spec))


def created_parts(spec: Any) -> dict[str, Part]:
    return {part.name: part for part in method_registry.create(method_registry.resolve(spec)).parts}


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ("fedavg", ["ce", "average"]),
        ("fedprox", ["ce", "average", "prox"]),
        ("scaffold", ["ce", "average", "scaffold"]),
        ("moon", ["ce", "average", "moon"]),
        ("fedavgm", ["ce", "avgm"]),
        ("ce+average", ["ce", "average"]),
        ("fedavg+prox", ["ce", "average", "prox"]),
        ("fedavg + prox", ["ce", "average", "prox"]),
        (["fedavg", "prox"], ["ce", "average", "prox"]),
        (["fedavg+prox", "moon"], ["ce", "average", "prox", "moon"]),
        ("fedprox+moon", ["ce", "average", "prox", "moon"]),
        ("moon+fedprox", ["ce", "average", "moon", "prox"]),
        ("fedprox+fedprox", ["ce", "average", "prox"]),
        ("fedavgm+moon", ["ce", "avgm", "moon"]),
        ("moon+fedavgm", ["ce", "moon", "avgm"]),
        ("fedavgm+average", ["ce", "average"]),
        ("fedavgm+fedavg", ["ce", "average"]),
        ("fedavg+avgm", ["ce", "avgm"]),
        ({"prox": {"mu": 0.5}, "fedavg": {}}, ["prox", "ce", "average"]),
    ],
)
def test_a_specification_resolves_to_its_parts(spec: Any, want: list[str]) -> None:
    """A later owner replaces an earlier one; a fedavg that is only implied replaces nothing."""
    assert part_names(spec) == want


def test_exactly_one_owner_remains() -> None:
    for spec in ("fedavgm", "fedavgm+moon", "fedprox+fedavgm", "fedavgm+fedavg"):
        assert sum(part.owner for part in created_parts(spec).values()) == 1


@pytest.mark.parametrize(
    "spec",
    [
        ["fedavg", {"prox": {"mu": 0.3}}],
        [{"fedprox": {"mu": 0.3}}],
        {"fedprox": {"mu": 0.3}},
        ["fedprox", {"prox": {"mu": 0.3}}],
        ["fedprox", {"fedprox": {"mu": 0.3}}],
        ["fedavg", {"prox": {"mu": 0.9}}, {"prox": {"mu": 0.3}}],
    ],
)
def test_settings_are_accepted_under_part_and_method_names(spec: Any) -> None:
    """All of these are FedProx with mu 0.3; the last setting counts."""
    assert method_registry.resolve(spec) == {"ce": {}, "average": {}, "prox": {"mu": 0.3}}
    assert created_parts(spec)["prox"].mu == 0.3  # type: ignore[attr-defined]


def test_a_setting_goes_to_the_named_part() -> None:
    spec = ["fedavg", {"prox": {"mu": 0.3}}, {"moon": {"mu": 2.0, "tau": 0.1}}]
    parts_by_name = created_parts(spec)
    assert (parts_by_name["prox"].mu, parts_by_name["moon"].mu, parts_by_name["moon"].tau) == (0.3, 2.0, 0.1)  # type: ignore[attr-defined]


def test_settings_given_twice_for_a_part_are_merged() -> None:
    assert method_registry.resolve(["moon", {"moon": {"mu": 2.0}}, {"moon": {"tau": 0.1}}])["moon"] == {
        "mu": 2.0,
        "tau": 0.1,
    }


def test_fields_that_are_not_set_take_their_defaults() -> None:
    parts_by_name = created_parts("fedprox+moon+fedavgm")
    assert (parts_by_name["prox"].mu, parts_by_name["moon"].mu, parts_by_name["avgm"].beta) == (0.01, 0.1, 0.7)  # type: ignore[attr-defined]


@pytest.mark.usefixtures("sandbox")
def test_a_field_of_two_parts_must_be_given_under_one_of_them() -> None:
    @us.part("left")
    class Left(Part):
        size: float = 1.0

    @us.part("right")
    class Right(Part):
        size: float = 1.0

    us.method("both", "fedavg", "left", "right")
    message = r"expected a field of one part, found 'size', which left and right have; .* \{left: \{size: ...\}\}"
    with pytest.raises(UserError, match=message):
        method_registry.resolve({"both": {"size": 2.0}})
    assert method_registry.resolve(["both", {"left": {"size": 2.0}}])["left"] == {"size": 2.0}


@pytest.mark.parametrize("empty", [None, {}])
def test_empty_settings_change_nothing(empty: Any) -> None:
    assert part_names([{"fedprox": empty}]) == ["ce", "average", "prox"]


@pytest.mark.usefixtures("sandbox")
def test_two_main_losses_are_an_error() -> None:
    @us.part("rival")
    class Rival(Part):
        """Another main loss."""

        objective = True

    with pytest.raises(UserError, match="rival and ce are both the main loss"):
        method_registry.resolve("fedavg+rival")
    assert part_names("rival+average") == ["rival", "average"]


@pytest.mark.usefixtures("sandbox")
def test_implied_fedavg_keeps_another_main_loss() -> None:
    """`rivals+moon`: moon implies fedavg, but its roles (main loss and owner) are already taken."""

    @us.part("rival")
    class Rival(Part):
        """Another main loss."""

        objective = True

    us.method("rivals", "rival", "average")
    assert part_names("rivals+moon") == ["rival", "average", "moon"]
    assert part_names("rivals+fedavgm") == ["rival", "avgm"]


@pytest.mark.usefixtures("sandbox")
def test_custom_part_is_reachable_by_name() -> None:
    @us.part("shrink")
    class Shrink(Part):
        """A pull towards 0."""

        rate: float = Field(0.5, ge=0)

        def loss(self, view: View) -> Tensor:
            return self.rate * sum(w.pow(2).sum() for w in view.parameters.values())  # type: ignore[return-value]

    us.method("shrunk", "fedavg", "shrink")
    experiment = us.Experiment(method=["fedavg", {"shrink": {"rate": 0.25}}])
    assert [part.name for part in experiment.create_method().parts] == ["ce", "average", "shrink"]
    assert experiment.create_method().find(Shrink).rate == 0.25
    assert experiment.label == "shrunk"
    assert "shrunk" in method_registry.method_names()


def test_the_sandbox_removes_its_registrations() -> None:
    assert not {"rival", "shrink"} & set(method_registry.PARTS)
    assert not {"rivals", "shrunk"} & set(method_registry.method_names())


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("fedprx", "found 'fedprx'; did you mean fedprox"),
        ("fedavg+scafold", "found 'scafold'; did you mean scaffold"),
        ("fedavg+", "found ''"),
        ([], "at least one name.*method=fedavg"),
        ([3], r"expected a name, a\+b.*found 3"),
        ([{"avgm": {"betta": 0.5}}], "method.avgm: found 'betta'; expected beta"),
        ([{"fedavgm": {"betta": 0.5}}], "method.fedavgm: found 'betta'; expected beta"),
        ([{"scaffold": {"mu": 1}}], "method.scaffold: found 'mu'; expected no settings"),
        ([{"fedavg": {"mu": 1}}], "method.fedavg: found 'mu'; expected no settings"),
        ([{"prox": 3}], "method.prox: expected settings as field: value, found 3"),
        ("prox", "one loss that trains the model, found none; start from fedavg, as in fedavg[+]prox"),
        ("ce+prox", "one part that merges the model, found none"),
        ([{"fedprox": {"mu": -1.0}}], "method.prox.mu: .*greater than or equal to 0, found -1.0"),
        ([{"fedavgm": {"beta": 1.0}}], "method.avgm.beta: .*less than 1, found 1.0"),
        ([{"fedprox": {"mu": "much"}}], "method.prox.mu: .*found 'much'"),
    ],
)
def test_refusals_name_the_mistake(spec: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        created_parts(spec)


def test_an_experiment_raises_the_same_error() -> None:
    with pytest.raises(UserError, match="did you mean fedprox"):
        us.Experiment(method="fedprx")


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ("fedprox", "fedprox"),
        ("fedavg+prox", "fedprox"),
        (["fedavg", {"prox": {"mu": 0.3}}], "fedprox"),
        ([{"fedprox": {"mu": 0.3}}], "fedprox"),
        ("fedavg+avgm", "fedavgm"),
        ("fedprox+moon", "fedprox+moon"),
        ("fedavgm+moon", "fedavgm+moon"),
        (["fedprox+moon", {"moon": {"mu": 2.0}}], "fedprox+moon"),
        (["fedprox+moon", {"prox": {"mu": 2.0}}], "fedprox+moon"),
        (["fedprox+moon", {"fedprox": {"mu": 2.0}}], "fedprox+moon"),
        (["fedavgm+moon", {"fedavgm": {"beta": 0.5}}], "fedavgm+moon"),
    ],
)
def test_the_label_is_the_registered_name_or_the_given_names(spec: Any, want: str) -> None:
    """Settings never change the label."""
    assert method_registry.label(spec) == want


SPECS = [
    "fedavg",
    "fedprox",
    "fedavgm+moon",
    "moon+fedavgm",
    "fedavgm+average",
    ["fedavg", {"prox": {"mu": 0.3}}],
    [{"fedprox": {"mu": 0.3}}, {"moon": {"tau": 0.1}}],
    ["fedprox+moon", {"fedprox": {"mu": 2.0}}],
    ["scaffold", {"prox": {"mu": 0.3}}],
    {"moon": {"mu": 0.0}},
]


@pytest.mark.parametrize("spec", SPECS)
def test_expanding_a_method_twice_changes_nothing(spec: Any) -> None:
    once = expand_method(spec)
    assert expand_method(once) == once
    assert created_parts(once) == created_parts(spec)
    assert list(created_parts(once)) == part_names(spec)
    assert method_registry.label(once) == method_registry.label(spec)


def test_an_expanded_method_lists_every_setting() -> None:
    assert expand_method("fedprox+fedavgm") == ["fedprox", "fedavgm", {"prox": {"mu": 0.01}}, {"avgm": {"beta": 0.7}}]
    assert expand_method([{"moon": {"mu": 2.0}}]) == ["moon", {"moon": {"mu": 2.0, "tau": 0.5}}]


def test_an_unused_setting_does_not_change_the_identity_of_a_run() -> None:
    """Run folders are named by their identity: a new key that a run does not use must not rename old runs."""
    assert us.Experiment().identity() == "e5983648"
    unused = {"name": "digits", "augment": {"frozen": True, "test": True}}
    assert us.Experiment(data=unused).identity() == us.Experiment().identity()
    cropped = [{"name": "digits", "augment": {"crop": 1, "frozen": frozen}} for frozen in (False, True)]
    assert len({us.Experiment(data=data).identity() for data in cropped}) == 2


def test_equal_methods_have_equal_identity() -> None:
    """Spelling out a default is the same run; another value is a different one."""
    plain, spelled, other = (
        us.Experiment(method=m).identity()
        for m in ("fedprox", [{"fedprox": {"mu": 0.01}}], [{"fedprox": {"mu": 0.02}}])
    )
    assert plain == spelled != other


def test_registered_methods_are_listed() -> None:
    assert {"fedavg", "fedprox", "fedavgm", "scaffold", "moon"} <= set(method_registry.method_names())
    assert method_registry.method_names() == sorted(method_registry.method_names())
