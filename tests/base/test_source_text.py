"""The text of a class changes with its code and with nothing else."""

from __future__ import annotations

from typing import Any

from pydantic import Field

import unskew as us
from unskew.base.source_text import source_text
from unskew.protocol import method_registry


def make(factor: float, helper: Any) -> type:
    class Scaled(us.Part):
        strength: list = Field(default_factory=helper)
        factors = (factor, helper)

        def loss(self, view: Any) -> Any:
            return view.x

    us.part("test-scaled")(Scaled)
    return method_registry.PARTS.pop("test-scaled")


def test_addresses_do_not_count_and_attributes_do() -> None:
    helpers = [lambda: [], lambda: []]
    assert repr(helpers[0]) != repr(helpers[1])
    assert source_text(make(1.0, helpers[0])) == source_text(make(1.0, helpers[1]))
    assert source_text(make(1.0, helpers[0])) != source_text(make(2.0, helpers[0]))


def test_code_typed_into_an_interactive_session_counts() -> None:
    texts = []
    for value in (1, 1, 2):
        namespace: dict[str, Any] = {}
        exec(f"def f(x):\n    return x + {value}", namespace)
        texts.append(source_text(namespace["f"]))
    assert texts[0] == texts[1] != texts[2]
