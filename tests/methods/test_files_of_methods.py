"""A method's file speaks of the method: who trains its clients, where and how fast, is the engine's business."""

import io
import re
import tokenize
from pathlib import Path

import pytest

import unskew.methods

FILES = sorted(Path(unskew.methods.__file__).parent.rglob("*.py"))
OTHERS_BUSINESS = re.compile(r"\b(engines?|gpus?|cuda|triton|vmap|compil\w+|graphs?|workers?|stacked)\b", re.IGNORECASE)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_engine_device_or_compiler(path: Path) -> None:
    """In comments and texts; nor is any of it imported."""
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
    said = [f"{t.start[0]}: {t.string}" for t in tokens if t.type in (tokenize.COMMENT, tokenize.STRING)]
    imported = [line for line in path.read_text().splitlines() if line.startswith(("from ", "import "))]
    assert not [text for text in (*said, *imported) if OTHERS_BUSINESS.search(text)]
