# The habits of this project. Every target installs what it needs.
SUITABLE := import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.10 python3; do \
	$$p -c '$(SUITABLE)' 2>/dev/null && echo $$p && break; done)
CHECK_PYTHON = @'$(PYTHON)' -c '$(SUITABLE)' 2>/dev/null || \
	{ echo 'make needs Python 3.10, 3.11, 3.12 or 3.13: install one, or set PYTHON=/path/to/python3.11' >&2; exit 1; }
BIN := .venv/bin
STAMP := .venv/.installed
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
EXTRAS := report,video,sweep,explore,docs,dev
# A worker per core, four at most: files are handed out whole, so beyond that most wait for the longest one.
# One more than two cores: some tests wait, for a child or a clock.
PYTEST := $(BIN)/python -m pytest -q -n 3 --dist loadfile

.PHONY: help install demo test test-all coverage check format bench generated docs lock clean

help:            ## this list
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 14

install: $(STAMP) ## make .venv with the locked package and its extras (does nothing when up to date)

$(STAMP): pyproject.toml requirements.lock
	$(CHECK_PYTHON)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) -c requirements.lock -e '.[$(EXTRAS)]'
	$(PIP) -c requirements.lock --no-deps dm_control
	@touch $@

demo: $(STAMP)   ## two minutes: discover skills, finetune one, compare with scratch, draw them
	$(BIN)/python examples/demo.py

test: $(STAMP)   ## everything that must hold, in four minutes on two cores
	$(PYTEST)

test-all: $(STAMP) ## also the slow checks
	$(PYTEST) -m 'slow or not slow'

coverage: $(STAMP) ## which lines of src the tests reach
	$(PYTEST) --cov --cov-report=term

check: $(STAMP)  ## format, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(STAMP) ## let ruff mend what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)  ## speed of environments and updates against their floors
	$(BIN)/python -m benchmarks

generated: $(STAMP) ## update generated files: the table behind --help, the reference, command outputs in docs/
	$(BIN)/python -m cic.commandline.settings_table
	$(BIN)/python docs/make_reference.py
	$(BIN)/python tests/document_blocks.py

docs: $(STAMP)   ## build the documentation into site/
	$(BIN)/mkdocs build --strict --quiet

# `make lock UPGRADE=--upgrade` takes the newest of everything, `UPGRADE='--upgrade-package ruff'` of one package.
# dm_control is named beside pyproject.toml because that asks for it below Python 3.13 only.
lock:            ## resolve pyproject.toml for Python 3.10 to 3.13 into requirements.lock, keeping what still fits
	$(CHECK_PYTHON)
	test -x .venv-lock/bin/uv || { $(PYTHON) -m venv .venv-lock && .venv-lock/bin/pip install --quiet uv==0.13.7; }
	echo dm_control | .venv-lock/bin/uv pip compile --quiet --universal --python-version 3.10 --all-extras \
		--no-annotate --no-header $(UPGRADE) --output-file requirements.lock pyproject.toml -

clean:           ## remove what the other targets made
	rm -rf .venv .venv-lock site runs .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .coverage
