# Two commands do everything on a fresh machine with Python 3.11+ and make: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/installed
TESTED := .venv/installed-for-tests

.PHONY: demo test pages clean

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("unskew needs Python 3.11 or newer, found " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $(STAMP)

# With Triton, whose interpreter runs the GPU's kernels on a CPU; the demo does without its gigabyte.
$(TESTED): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,kernels]'
	touch $(TESTED)

demo: $(STAMP)
	rm -rf runs/demo
	$(BIN)/unskew demo --out runs/demo

test: $(TESTED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n auto

# What is generated from the methods' files and results/: docs/methods, the README's table, the packaged table.
pages: $(STAMP)
	$(BIN)/python benchmarks/pages.py

clean:
	rm -rf .venv runs
