"""Optional dependencies: each is used, and every extra that a page names exists."""

import re
import tomllib
from pathlib import Path

import unskew

ROOT = Path(__file__).parents[2]
SOURCE = Path(unskew.__file__).parent
BY_PYTORCH = {  # packages that PyTorch imports, and the line that makes it do so
    "onnx": "dynamo=True",
    "onnxscript": "dynamo=True",
    "tensorboard": "from torch.utils.tensorboard import SummaryWriter",
}


def extras() -> dict[str, list[str]]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def test_extras_install_only_what_is_used() -> None:
    code = "\n".join(path.read_text() for path in SOURCE.rglob("*.py"))
    for extra, packages in extras().items():
        for package in packages if extra != "dev" else []:
            name = re.match(r"[\w-]+", package)[0]
            module = name.replace("-", "_")
            imported = rf"^\s*(import {module}\b|from {module}\b)|import_module\(\"{module}\b|\"{module}\.\w+"
            used = BY_PYTORCH[name] in code if name in BY_PYTORCH else re.search(imported, code, re.MULTILINE)
            assert used, f"{extra}: {name} is not used"


def test_pages_name_extras_that_exist() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/*.md"), *SOURCE.rglob("*.py")]
    named = {
        extra.strip()
        for page in pages
        for group in re.findall(r"(?:unskew|\.|install '?)\[([a-z,]+)\]'", page.read_text())
        for extra in group.split(",")
    }
    assert {"track", "onnx"} <= named <= set(extras())
