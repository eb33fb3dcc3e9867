"""From what a person writes to a list of parts: names, a+b, lists, settings, replacements, and refusals."""

from typing import Any

import pytest
from pydantic import Field
from torch import Tensor

import unskew as us
from unskew.base.errors import UserError
from unskew.config.experiment import written_out
from unskew.protocol import method_registry
from unskew.protocol.part import Part
from unskew.protocol.step_view import View


@pytest.fixture
def sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the test registers is gone after it."""
    method_registry.known()
    monkeypatch.setattr(method_registry, "PARTS", dict(method_registry.PARTS))
    monkeypatch.setattr(method_registry, "METHODS", dict(method_registry.METHODS))


def parts(spec: Any) -> list[str]:
    return list(method_registry.resolve(spec))


def made(spec: Any) -> dict[str, Part]:
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
def test_parts_behind_a_specification(spec: Any, want: list[str]) -> None:
    """A later owner replaces an earlier one; fedavg that is only implied replaces nothing."""
    assert parts(spec) == want


def test_exactly_one_owner_remains() -> None:
    for spec in ("fedavgm", "fedavgm+moon", "fedprox+fedavgm", "fedavgm+fedavg"):
        assert sum(part.owner for part in made(spec).values()) == 1


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
def test_settings_under_part_and_method_names(spec: Any) -> None:
    """All of these are FedProx at 0.3; the last word counts."""
    assert method_registry.resolve(spec) == {"ce": {}, "average": {}, "prox": {"mu": 0.3}}
    assert made(spec)["prox"].mu == 0.3  # type: ignore[attr-defined]


def test_same_field_name_goes_to_the_named_part() -> None:
    spec = ["fedavg", {"prox": {"mu": 0.3}}, {"moon": {"mu": 2.0, "tau": 0.1}}]
    found = made(spec)
    assert (found["prox"].mu, found["moon"].mu, found["moon"].tau) == (0.3, 2.0, 0.1)  # type: ignore[attr-defined]


def test_settings_of_the_parts_of_a_method_add_up() -> None:
    assert method_registry.resolve(["moon", {"moon": {"mu": 2.0}}, {"moon": {"tau": 0.1}}])["moon"] == {
        "mu": 2.0,
        "tau": 0.1,
    }


def test_defaults_where_nothing_is_set() -> None:
    found = made("fedprox+moon+fedavgm")
    assert (found["prox"].mu, found["moon"].mu, found["avgm"].beta) == (0.01, 0.1, 0.7)  # type: ignore[attr-defined]


@pytest.mark.parametrize("empty", [None, {}])
def test_empty_settings_are_none(empty: Any) -> None:
    assert parts([{"fedprox": empty}]) == ["ce", "average", "prox"]


@pytest.mark.usefixtures("sandbox")
def test_two_main_losses_are_an_error() -> None:
    @us.part("rival")
    class Rival(Part):
        """Another main loss."""

        objective = True

    with pytest.raises(UserError, match="rival and ce are both the main loss"):
        method_registry.resolve("fedavg+rival")
    assert parts("rival+average") == ["rival", "average"]


@pytest.mark.usefixtures("sandbox")
def test_implied_fedavg_leaves_another_main_loss_alone() -> None:
    """`rival+average+moon`: moon implies fedavg, whose loss and owner already have their place."""

    @us.part("rival")
    class Rival(Part):
        """Another main loss."""

        objective = True

    us.method("rivals", "rival", "average")
    assert parts("rivals+moon") == ["rival", "average", "moon"]
    assert parts("rivals+fedavgm") == ["rival", "avgm"]


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
    assert "shrunk" in method_registry.known()


def test_sandbox_left_nothing_behind() -> None:
    assert not {"rival", "shrink"} & set(method_registry.PARTS)
    assert not {"rivals", "shrunk"} & set(method_registry.known())


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("fedprx", "found 'fedprx'; did you mean fedprox"),
        ("fedavg+scafold", "found 'scafold'; did you mean scaffold"),
        ("fedavg+", "found ''"),
        ([], "at least one name.*method=fedavg"),
        ([3], r"expected a name, a\+b.*found 3"),
        ([{"avgm": {"betta": 0.5}}], "method.avgm: expected one of beta, found 'betta'; did you mean beta"),
        ([{"fedavgm": {"betta": 0.5}}], "method.fedavgm: expected one of beta, found 'betta'; did you mean beta"),
        ([{"scaffold": {"mu": 1}}], "method.scaffold: expected no settings, found 'mu'"),
        ([{"fedavg": {"mu": 1}}], "method.fedavg: expected no settings, found 'mu'"),
        ([{"prox": 3}], "method.prox: expected settings as field: value, found 3"),
        ("prox", "one loss that trains the model, found none; start from fedavg, as in fedavg[+]prox"),
        ("ce+prox", "one part that merges the model, found none"),
        ([{"fedprox": {"mu": -1.0}}], "method.prox.mu: .*greater than or equal to 0, found -1.0"),
        ([{"fedavgm": {"beta": 1.0}}], "method.avgm.beta: .*less than 1, found 1.0"),
        ([{"fedprox": {"mu": "much"}}], "method.prox.mu: .*found 'much'"),
    ],
)
def test_refusals_say_what_to_type(spec: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        made(spec)


def test_experiment_passes_the_refusal_on() -> None:
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
def test_label(spec: Any, want: str) -> None:
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
def test_written_out_again_changes_nothing(spec: Any) -> None:
    once = written_out(spec)
    assert written_out(once) == once
    assert made(once) == made(spec)
    assert list(made(once)) == parts(spec)
    assert method_registry.label(once) == method_registry.label(spec)


def test_written_out_shows_every_setting() -> None:
    assert written_out("fedprox+fedavgm") == ["fedprox", "fedavgm", {"prox": {"mu": 0.01}}, {"avgm": {"beta": 0.7}}]
    assert written_out([{"moon": {"mu": 2.0}}]) == ["moon", {"moon": {"mu": 2.0, "tau": 0.5}}]


def test_identity_of_a_run_that_asks_for_nothing_new_stays() -> None:
    """Folders are named by it: a key that is new and not used must not make another run of an old one."""
    assert us.Experiment().identity() == "e5983648"
    unused = {"name": "digits", "augment": {"frozen": True, "test": True}}
    assert us.Experiment(data=unused).identity() == us.Experiment().identity()
    cropped = [{"name": "digits", "augment": {"crop": 1, "frozen": frozen}} for frozen in (False, True)]
    assert len({us.Experiment(data=data).identity() for data in cropped}) == 2


def test_equal_methods_have_equal_identity() -> None:
    """A run is named by what it does: spelling out a default is the same run, another value is not."""
    plain, spelled, other = (
        us.Experiment(method=m).identity()
        for m in ("fedprox", [{"fedprox": {"mu": 0.01}}], [{"fedprox": {"mu": 0.02}}])
    )
    assert plain == spelled != other


def test_registered_methods_are_listed() -> None:
    assert {"fedavg", "fedprox", "fedavgm", "scaffold", "moon"} <= set(method_registry.known())
    assert method_registry.known() == sorted(method_registry.known())
