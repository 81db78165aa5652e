# The habits of this project. Every target installs what it needs.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
STAMP := .venv/.installed
PYTEST := $(BIN)/python -m pytest -q -n 2 --dist loadfile

.PHONY: help install demo test test-all check format bench docs lock clean

help:            ## this list
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 14

install: $(STAMP) ## make .venv with the locked package and its extras (does nothing when up to date)

$(STAMP): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "make needs Python 3.11 or newer (the lock file is made for it); set PYTHON=/path/to/python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements.lock -e '.[report,video,docs,dev]'
	@touch $@

demo: $(STAMP)   ## two minutes: discover skills, finetune one, compare with scratch, draw them
	$(BIN)/python examples/demo.py

test: $(STAMP)   ## everything that must hold, in five minutes on two cores
	$(PYTEST)

test-all: $(STAMP) ## also the slow checks
	$(PYTEST) -m 'slow or not slow'

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

docs: $(STAMP)   ## build the documentation into site/
	$(BIN)/mkdocs build --strict --quiet

lock:            ## resolve anew and write requirements.lock
	rm -rf .venv-lock && $(PYTHON) -m venv .venv-lock
	.venv-lock/bin/pip install --quiet torch==2.13.0 mujoco==3.17.0
	.venv-lock/bin/pip install --quiet -e '.[report,video,wandb,docs,dev]'
	.venv-lock/bin/pip freeze --exclude-editable | sed 's/+cpu$$//' > requirements.lock
	rm -rf .venv-lock

clean:           ## remove what the other targets made
	rm -rf .venv .venv-lock site runs .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
