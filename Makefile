# Every target does its own set-up: a fresh Debian or macOS machine needs only make and Python 3.11 or newer.
BIN     := .venv/bin
READY   := .venv/.ready
WORKERS ?= 2
# One thread per test worker: results do not depend on it, two workers times all cores would only get in each other's way.
PYTEST  := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS)

.DEFAULT_GOAL := help
.PHONY: help setup system demo test check slow lowest paper bench docs where pins clean

help:  ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1@\2/p' Makefile | awk -F@ '{ printf "%-14s %s\n", $$1, $$2 }'

setup: system $(READY)  ## make .venv with everything pinned by constraints.txt

system:  ## as root on Debian: the browser and database that some tests want
	@tools/system_packages.sh

$(READY): pyproject.toml constraints.txt tools/setup.sh tools/pip_settings.py | system
	@tools/setup.sh
	@touch $@

demo: setup  ## the whole story on the stroke trial
	$(BIN)/evenhand demo

test: setup  ## every test that is not slow
	$(PYTEST) -m "not slow"

check: setup  ## format, lint, types, layers, text
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/check_text.py

slow: setup  ## the long statistical, fault and browser tests
	$(PYTEST) -m slow

lowest: setup  ## the tests of compiled code with the lowest numba that is allowed
	@WORKERS=$(WORKERS) tools/lowest_numba.sh

paper: setup  ## every table and figure of the paper beside ours, in out/paper
	$(BIN)/evenhand paper -o out/paper

bench: setup  ## speed against others, measured in one run, as JSON lines
	$(BIN)/python -m benchmarks

docs: setup  ## the documentation, in docs/_build/html; a warning is an error
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

where:  ## where an equation of the paper lives: make where eq=f_mu_opt
	@tools/where.sh "$(eq)"

pins: setup  ## resolve constraints.txt anew
	@tools/setup.sh pins

clean:  ## remove everything that was built, .venv included
	rm -rf .venv build dist out docs/_build .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find src tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
