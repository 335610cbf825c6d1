# `make demo` and `make test` each do all the set-up that is still missing. Nothing is installed outside .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DOCS_STAMP := $(VENV)/.installed-docs
# A file stays with one worker, so that what its tests share is made once; and workers have one thread each for algebra,
# or they would wait for each other.
PYTEST_FLAGS ?= -n 2 --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help setup demo test check format bench docs clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv and install dexloop into it (the others do this by themselves)

demo: $(STAMP) ## in the lab: scan, pushes, a film of a hand; twin, belief, demonstrations, policy; report in runs/demo
	$(BIN)/dexloop demo --out runs/demo

test: $(STAMP) ## run the tests
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest $(PYTEST_FLAGS)

check: $(STAMP) ## check formatting, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright

format: $(STAMP) ## format the code and mend what the linter can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP) ## run all benchmarks; fail on a step back from the baseline
	$(BIN)/python -m benchmarks --gate

docs: $(DOCS_STAMP) ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean: ## remove what was built; keep runs/ and .venv
	rm -rf site dist build .pytest_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} +

# Done once, and again when the dependencies change. The stamp is touched last, so that a broken install is tried again.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "dexloop needs Python 3.11 or newer, but '$(PYTHON)' is: $$({ $(PYTHON) --version 2>&1 || echo missing; } | head -n 1)."; \
	  echo "Install one, or name it: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "'$(PYTHON)' cannot make a virtual environment. On Debian and Ubuntu: sudo apt-get install python3-venv"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

$(DOCS_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@
