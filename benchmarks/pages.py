"""Write what is generated: the packaged table of methods, docs/methods/ and the README's table.

python benchmarks/pages.py
"""

from pathlib import Path

import unskew.describe as package
from unskew.describe import known, markdown

REPOSITORY = Path(__file__).parent.parent


def main() -> None:
    """In this order: the pages read the table."""
    (Path(package.__file__).parent / known.FILE).write_text(known.gather(REPOSITORY))
    folder = REPOSITORY / "docs" / "methods"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in markdown.pages().items():
        (folder / name).write_text(text)
    readme = REPOSITORY / "README.md"
    readme.write_text(markdown.put(readme.read_text(), markdown.overview("docs/methods")))


if __name__ == "__main__":
    main()
