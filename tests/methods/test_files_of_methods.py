"""A method's file describes only the method; devices, processes and speed are the engine's concern."""

import io
import re
import tokenize
from pathlib import Path

import pytest

import unskew.methods

FILES = sorted(Path(unskew.methods.__file__).parent.rglob("*.py"))
ENGINE_WORDS = re.compile(r"\b(engines?|gpus?|cuda|triton|vmap|compil\w+|graphs?|workers?|stacked)\b", re.IGNORECASE)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_method_mentions_no_engine_device_or_compiler(path: Path) -> None:
    """Comments, texts and imports are searched."""
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
    texts = [f"{t.start[0]}: {t.string}" for t in tokens if t.type in (tokenize.COMMENT, tokenize.STRING)]
    imported = [line for line in path.read_text().splitlines() if line.startswith(("from ", "import "))]
    assert not [text for text in (*texts, *imported) if ENGINE_WORDS.search(text)]
