# make run     set up and let the demo model write: the first command to try
# make test    set up, lint, run the tests (no torch)
# make lint    ruff and pyright
# make oracle  the tests against transformers and schemathesis, in an environment of their own
# make soak    a server under mixed traffic for 30 minutes: nothing stuck, leaked, other than alone
# make soak SOAK=120  the same in about 2 minutes
# make ascend  the tests against the compiler of Ascend NPUs, which is installed first (161 MB)
# make test-isa  the CPU's tests once for each older instruction set that this machine can run
# make bench   measure all beside llama.cpp and torch, write benchmarks/RESULTS.md (35 minutes)
# make bench BENCH='decode prefill'  some parts of it (BENCH=--help lists them)
# make bench-peers  build llama.cpp, install torch: what bench compares with (some 15 minutes)
# make bench-guard  whether ratios of speed have fallen below the stored ones (GUARD=--short: 30 s)
# make clean   remove environments and caches of this checkout (models and ~/.cache stay)

PYTHON ?= python3
PROMPT ?= Once upon a time, in a small village by the sea,
TOKENS ?= 96
SAMPLING ?= --temperature 0.6 --top-p 0.9 --repeat-penalty 1.1 --seed 1

VENV := .venv
ORACLE := .venv-oracle
ASCEND := .venv-ascend
BIN := $(VENV)/bin
PIP := -m pip install --quiet --disable-pip-version-check
PYTEST_OPTIONS ?=

# Compiled modules are kept: without them every start of the program compiles its source again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run test lint test-isa oracle soak ascend bench bench-peers bench-guard clean

help:
	@sed -n 's/^# make/make/p' Makefile

# -- environments: a stamp each, so that a second call starts at once --------------------------------

define new-environment
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
  echo "error: '$(PYTHON)' is missing or older than Python 3.11; name one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
  echo "error: '$(PYTHON)' lacks the modules venv and ensurepip (Debian, Ubuntu: install python3-venv)" >&2; exit 2; }
@echo "making $(1)"
@$(PYTHON) -m venv --clear $(1)
@touch $@
endef

$(VENV)/.made:
	$(call new-environment,$(VENV))

$(VENV)/.run: $(VENV)/.made pyproject.toml
	@echo "installing terrazzo into $(VENV)"
	@$(BIN)/python $(PIP) --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	@echo "installing the tests' tools into $(VENV)"
	@$(BIN)/python $(PIP) --editable '.[dev]'
	@touch $@

$(ORACLE)/.made:
	$(call new-environment,$(ORACLE))

$(ORACLE)/.oracle: $(ORACLE)/.made pyproject.toml
	@echo "installing the oracles into $(ORACLE)"
	@$(ORACLE)/bin/python $(PIP) --editable '.[oracle]'
	@touch $@

$(ASCEND)/.made:
	$(call new-environment,$(ASCEND))

$(ASCEND)/.ascend: $(ASCEND)/.made pyproject.toml
	@echo "installing the compiler of Ascend NPUs into $(ASCEND)"
	@$(ASCEND)/bin/python $(PIP) --editable '.[dev,ascend]'
	@touch $@

# -- what there is to do ----------------------------------------------------------------------------

run: $(VENV)/.run
	@$(BIN)/terrazzo pull smollm2
	@echo "$(PROMPT)"
	@$(BIN)/terrazzo generate smollm2 "$(PROMPT)" --max-tokens $(TOKENS) $(SAMPLING)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python

test: lint
	@$(BIN)/terrazzo pull smollm2
	$(BIN)/python -m pytest --ignore tests/oracle $(PYTEST_OPTIONS)

# TERRAZZO_ISA masks the CPU down to a set; the best one is what `make test` runs. ISAS and ISA_TESTS
# choose fewer. The compiler for another machine needs gcc-aarch64-linux-gnu and qemu-user (Debian).
ISAS ?= $(shell $(BIN)/python -c 'from terrazzo.targets.cpu.isa import runnable; print(*runnable()[1:])')
ISA_TESTS ?= tests/cpu tests/kernels tests/runtime tests/engine tests/models tests/lang tests/cli

test-isa: $(VENV)/.dev
	@$(BIN)/terrazzo pull smollm2
	@for isa in $(ISAS); do echo "instruction set $$isa"; \
	  TERRAZZO_ISA=$$isa $(BIN)/python -m pytest $(ISA_TESTS) $(PYTEST_OPTIONS) || exit 1; done

oracle: $(ORACLE)/.oracle
	@$(ORACLE)/bin/terrazzo pull smollm2
	$(ORACLE)/bin/python -m pytest tests/oracle $(PYTEST_OPTIONS)

SOAK ?= 1800
soak: $(VENV)/.run
	@$(BIN)/terrazzo pull smollm2
	@PYTHONPATH=tests $(BIN)/python -m soak --seconds $(SOAK) $(SOAK_OPTIONS)

# Without the compiler most of these tests are skipped: the first line is an error then.
ascend: $(ASCEND)/.ascend
	@$(ASCEND)/bin/python -c 'from terrazzo.targets.ascend.tools import find; find()'
	$(ASCEND)/bin/python -m pytest tests/ascend $(PYTEST_OPTIONS)

# Without its peers it leaves out what needs them, and says so.
bench: $(VENV)/.run
	@$(BIN)/terrazzo pull smollm2
	@$(BIN)/python benchmarks/run.py $(BENCH)

bench-peers: $(VENV)/.run $(ORACLE)/.oracle
	@$(BIN)/python benchmarks/peers.py

bench-guard: $(VENV)/.run
	@$(BIN)/terrazzo pull smollm2
	@$(BIN)/python benchmarks/guard.py $(GUARD)

clean:
	rm -rf $(VENV) $(ORACLE) $(ASCEND) .venv-bench build dist .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
