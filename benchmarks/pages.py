"""Write what is generated: the packaged table of methods, docs/methods/ and the README's tables.

python benchmarks/pages.py
"""

import re
import subprocess
import sys
from pathlib import Path

import unskew.describe as package
from unskew.describe import method_facts, method_markdown

REPOSITORY = Path(__file__).parent.parent
sys.path.insert(0, str(REPOSITORY / "benchmarks" / "speed"))
from table import table  # noqa: E402

SPEED = ("<!-- speed -->", "<!-- end of speed -->")


def main() -> None:
    """In this order: the pages read the table."""
    (Path(package.__file__).parent / method_facts.FILE).write_text(method_facts.gather(REPOSITORY))
    folder = REPOSITORY / "docs" / "methods"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in method_markdown.pages().items():
        (folder / name).write_text(text)
    readme = REPOSITORY / "README.md"
    text = method_markdown.put(readme.read_text(), method_markdown.overview("docs/methods"))
    inside = f"Recorded until {recorded()}:\n\n{table(REPOSITORY / 'results' / 'speed.csv')}"
    readme.write_text(re.sub(f"{SPEED[0]}.*{SPEED[1]}", f"{SPEED[0]}\n{inside}{SPEED[1]}", text, flags=re.DOTALL))


def recorded() -> str:
    """The day of the last recorded speed."""
    words = ["git", "log", "-1", "--format=%cs", "--", "results/speed.csv"]
    return subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main()
