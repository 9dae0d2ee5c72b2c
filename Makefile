# Two commands do everything: `make lab` and `make test`. Each makes its own .venv first.
PYTHON ?= $(firstword $(foreach p,python3.11 python3.12 python3.13 python3,$(shell command -v $(p))))
BIN    := .venv/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# `make lab TORCH=cpu`: a laptop without an NVIDIA card needs 200 MB of torch, not 3 GB with CUDA.
TORCH_cpu := --extra-index-url https://download.pytorch.org/whl/cpu

# Some images set it, but compiled modules should be kept for later processes.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: lab test test-lab test-labs test-long lint labs docs bench clean
.DEFAULT_GOAL := help

help:
	@echo "make lab        open the labs in JupyterLab (without an NVIDIA card: make lab TORCH=cpu)"
	@echo "make test       run the tests (under 10 minutes on 2 cores)"
	@echo "make test-lab LAB=07  prove one lab in depth, by number or slug (under 3 minutes)"
	@echo "make test-labs  prove every lab: each picture in Chromium, each wrong answer of its bank, and what else takes long (40 minutes)"
	@echo "make test-long  run the long tests"
	@echo "make lint       check style and types"
	@echo "make labs       rebuild labs/*.ipynb from labs/source"
	@echo "make docs       build the site into docs/_build"
	@echo "make bench      measure, beside the peers"

# pip compiles what it installs on one core: here all do it, and only what every kernel and test imports. The rest is
# compiled when it is first imported. Some packages hold files for other Pythons: never mind.
COMPILED := torch numpy sympy numba llvmlite matplotlib IPython jedi ipykernel jupyter_client ipyparallel nbformat _pytest
define INSTALL
	@echo "Preparing .venv (the first time this takes a few minutes) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(PIP) --no-compile $(TORCH_$(TORCH)) -e '.$(1)'
	@cd .venv/lib/python3*/site-packages && "$(CURDIR)/$(BIN)/python" -m compileall -qq -j 0 -x '/tests?/' $(COMPILED) || true
	@touch $@
endef

.venv/.installed: pyproject.toml constraints.txt
	$(call INSTALL)

.venv/.installed-test: pyproject.toml constraints.txt
	$(call INSTALL,[test])
	@touch .venv/.installed

lab: .venv/.installed
	@$(BIN)/hpcdl lab

# Engines, pages and time limits share the cores: more processes than these make honest tests late.
PARALLEL := -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

test: .venv/.installed-test
	@$(BIN)/python -m pytest -m "not long and not labs" $(PARALLEL)

test-lab: .venv/.installed-test
	@test -n "$(LAB)" || { echo "Say which lab, by number or slug: make test-lab LAB=07"; exit 2; }
	@$(BIN)/python -m pytest -m "not long" --lab $(LAB) $(PARALLEL)

test-labs: .venv/.installed-test
	@$(BIN)/python -m pytest -m "labs and not long" $(PARALLEL)

test-long: .venv/.installed-test
	@$(BIN)/python -m pytest -m "long"

lint: .venv/.installed-test
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

labs: .venv/.installed-test
	@$(BIN)/python -m autograder.authors.build

docs: .venv/.installed-test
	@$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build
	@echo "Open docs/_build/index.html"

bench: .venv/.installed-test
	@$(BIN)/python -m benchmarks

clean:
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis artifacts
