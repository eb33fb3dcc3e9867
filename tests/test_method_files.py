"""A method's file speaks of the method: who trains its clients, where and how fast, is the engine's business."""

import re
from pathlib import Path

import pytest

import unskew.methods

FILES = sorted(Path(unskew.methods.__file__).parent.rglob("*.py"))
OTHERS_BUSINESS = re.compile(r"\b(engines?|gpus?|cuda|triton|vmap|compil\w+|graphs?|workers?|stacked)\b", re.IGNORECASE)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_engine_device_or_compiler(path: Path) -> None:
    said = [f"{number}: {line}" for number, line in enumerate(path.read_text().splitlines(), 1)
            if OTHERS_BUSINESS.search(line)]  # fmt: skip
    assert not said
