# Development commands. Every target first installs the packages that it needs.
SUITABLE := import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.10 python3; do \
	$$p -c '$(SUITABLE)' 2>/dev/null && echo $$p && break; done)
CHECK_PYTHON = @'$(PYTHON)' -c '$(SUITABLE)' 2>/dev/null || \
	{ echo 'make needs Python 3.10, 3.11, 3.12 or 3.13: install one, or set PYTHON=/path/to/python3.11' >&2; exit 1; }
BIN := .venv/bin
STAMP := .venv/.installed
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
EXTRAS := report,video,sweep,explore,docs,dev
# Three workers for two cores, because some tests wait for a subprocess. Each file runs on one worker.
PYTEST := $(BIN)/python -m pytest -q -n 3 --dist loadfile

.PHONY: help install demo test test-all coverage check format bench generated docs lock clean

help:            ## list the targets
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 14

install: $(STAMP) ## create .venv with the locked dependencies and all extras, if it is not up to date

$(STAMP): pyproject.toml requirements.lock
	$(CHECK_PYTHON)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) -c requirements.lock -e '.[$(EXTRAS)]'
	$(PIP) -c requirements.lock --no-deps dm_control
	@touch $@

demo: $(STAMP)   ## discover skills, finetune one, compare with training from scratch, draw them (two minutes)
	$(BIN)/python examples/demo.py

test: $(STAMP)   ## run the fast tests (four minutes on two cores)
	$(PYTEST)

test-all: $(STAMP) ## run the fast and the slow tests
	$(PYTEST) -m 'slow or not slow'

coverage: $(STAMP) ## run the fast tests and print the lines of src without coverage
	$(PYTEST) --cov --cov-report=term

check: $(STAMP)  ## check format, lint rules, types and import layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(STAMP) ## format the code and apply ruff's automatic fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)  ## measure the speed of environments and updates, and compare it with minimum values
	$(BIN)/python -m benchmarks

generated: $(STAMP) ## update generated files: the table behind --help, the reference, command outputs in docs/
	$(BIN)/python -m cic.commandline.settings_table
	$(BIN)/python docs/make_reference.py
	$(BIN)/python tests/document_blocks.py

docs: $(STAMP)   ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo 'site/index.html; with search: $(BIN)/python -m http.server -d site'

# `make lock UPGRADE=--upgrade` upgrades all packages, `UPGRADE='--upgrade-package ruff'` only one.
# dm_control is added here because pyproject.toml requires it only below Python 3.13.
lock:            ## resolve pyproject.toml for Python 3.10 to 3.13 into requirements.lock
	$(CHECK_PYTHON)
	test -x .venv-lock/bin/uv || { $(PYTHON) -m venv .venv-lock && .venv-lock/bin/pip install --quiet uv==0.13.7; }
	echo dm_control | .venv-lock/bin/uv pip compile --quiet --universal --python-version 3.10 --all-extras \
		--no-annotate --no-header $(UPGRADE) --output-file requirements.lock pyproject.toml -

clean:           ## remove the files that the other targets created
	rm -rf .venv .venv-lock site runs .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .coverage
