"""Write the generated texts: the packaged table of methods, docs/methods/, and the tables of docs/ and of the README.

python benchmarks/pages.py
"""

import re
import subprocess
import sys
from pathlib import Path

import document_tables

import unskew.describe as package
from unskew.describe import method_facts, method_markdown

REPOSITORY = Path(__file__).parent.parent
sys.path.insert(0, str(REPOSITORY / "benchmarks" / "speed"))
from table import table  # noqa: E402

SPEED = ("<!-- speed -->", "<!-- end of speed -->")


def main() -> None:
    """Write the table first, because the pages read it."""
    (Path(package.__file__).parent / method_facts.FILE).write_text(method_facts.gather(REPOSITORY))
    folder = REPOSITORY / "docs" / "methods"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in method_markdown.pages().items():
        (folder / name).write_text(text)
    for page in ("results.md", "audit.md"):
        path = REPOSITORY / "docs" / page
        path.write_text(document_tables.fill(path.read_text()))
    readme = REPOSITORY / "README.md"
    text = method_markdown.replace_between_marks(readme.read_text(), method_markdown.readme_table("docs/methods"))
    inside = f"Last recorded: {recorded_day()}:\n\n{table(REPOSITORY / 'results' / 'speed.csv')}"
    readme.write_text(re.sub(f"{SPEED[0]}.*{SPEED[1]}", f"{SPEED[0]}\n{inside}{SPEED[1]}", text, flags=re.DOTALL))


def recorded_day() -> str:
    """The date of the last recorded speed."""
    command = ["git", "log", "-1", "--format=%cs", "--", "results/speed.csv"]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main()
