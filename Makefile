# The README's two commands, and what they are made of.
#
#   make demo    set up .venv, install, run `topocal demo`
#   make test    set up .venv, install, lint, type-check, run every test

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test quick check lint types clean

demo: $(VENV)/.installed
	$(BIN)/topocal demo

test: check
	$(BIN)/python -m pytest -n auto

# The suite without the tests marked heavy.
quick: $(VENV)/.test-installed
	$(BIN)/python -m pytest -n auto -m "not heavy"

check: lint types

lint: $(VENV)/.test-installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test-installed
	$(BIN)/mypy

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	touch $@

$(VENV)/.test-installed: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[test]"
	touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
