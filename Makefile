# The README's two commands, and what they are made of.
#
#   make demo    set up .venv, install, run `topocal demo --live`
#   make test    set up .venv, install, lint, type-check, run the tests
#
#   make docs              build the documentation into build/site, warnings as errors
#   make reference         write the parts of it that the program makes itself
#   make fuzz              every reader under a coverage-guided fuzzer, FUZZ_SECONDS each
#   make test-deepspeed    replica policies with DeepSpeed's own planner, which it installs

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

DEEPSPEED := .venv-deepspeed
FUZZ := .venv-fuzz
FUZZ_SECONDS ?= 60
FUZZ_TARGETS ?=
TORCH_FLAGS ?=

.PHONY: demo test torch docs reference test-deepspeed schemas check lint types clean

demo: $(VENV)/.installed torch
	$(BIN)/topocal demo --live

# Those that time real messages come last, alone on the machine. What is marked heavy runs where CI
# is set, as it is in .ci/run, or with `make test CI=1`.
test: check torch
	$(BIN)/python -m pytest -n auto -m "not alone$(if $(CI),, and not heavy)"
	$(BIN)/python -m pytest -n 0 -m "alone$(if $(CI),, and not heavy)"

# Real messages take torch, whose CPU build will do: where pip would take one for accelerators,
# which is gigabytes, TORCH_FLAGS can name another index. Without torch the demo and the tests say
# what they leave out.
torch: | $(VENV)/.installed
	@$(BIN)/python -c "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)" \
		|| $(BIN)/python -m pip install -qq --retries 1 --constraint constraints.txt torch $(TORCH_FLAGS) \
		|| echo "torch could not be installed: no real messages will be sent"

# In an environment of its own, which also sees the packages of .venv. Inputs that fail are left
# in fuzz-findings, what reached new code in fuzz-corpus, where the next run goes on.
fuzz: $(FUZZ)/.installed
	$(FUZZ)/bin/python tests/fuzz/run.py --seconds $(FUZZ_SECONDS) $(FUZZ_TARGETS)

$(FUZZ)/.installed: | $(VENV)/.test-installed
	$(BIN)/python -m venv $(FUZZ)
	$(BIN)/python -c "import sysconfig; print(f\"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\")" \
		> "$$($(FUZZ)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/base.pth"
	$(FUZZ)/bin/python -m pip install --quiet atheris
	touch $@

# In an environment of its own, which also sees the packages of .venv. DeepSpeed comes as source
# that would compile operators; none are needed, nor is a torch for accelerators.
test-deepspeed: $(DEEPSPEED)/.installed
	$(DEEPSPEED)/bin/python -m pytest -n 0 tests/test_deepspeed.py tests/test_deepspeed_planner.py

$(DEEPSPEED)/.installed: | $(VENV)/.test-installed torch
	$(BIN)/python -m venv $(DEEPSPEED)
	$(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" \
		> "$$($(DEEPSPEED)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/base.pth"
	$(DEEPSPEED)/bin/python -m pip install --quiet wheel "setuptools<82"
	$(DEEPSPEED)/bin/python -c "import torch"
	DS_BUILD_OPS=0 $(DEEPSPEED)/bin/python -m pip install --quiet --no-build-isolation \
		--constraint constraints.txt deepspeed==0.19.8
	$(DEEPSPEED)/bin/python -c "import deepspeed.checkpoint.affine_transfer"
	touch $@

# Nothing is fetched while it is built, nor by the pages.
docs: $(VENV)/.test-installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "build/site/index.html"

# docs/reference, from help and docstrings; a drawing.
reference: $(VENV)/.test-installed
	$(BIN)/python docs/tools/reference.py

# docs/schemas, from the types.
schemas: $(VENV)/.installed
	for name in topology plan calibration model caps; do \
		$(BIN)/topocal schema $$name -o docs/schemas/$$name.schema.json || exit; \
	done

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
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[docs,test]"
	touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) $(DEEPSPEED) $(FUZZ) fuzz-findings fuzz-corpus build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
