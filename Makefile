# Every target does its own set-up: a fresh Debian or macOS machine needs only make and Python 3.11 or newer.
BIN     := .venv/bin
READY   := .venv/.ready
WORKERS ?= 2
# One thread per test worker: more threads than cores would be slower, and results do not depend on it.
PYTEST  := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS)

.DEFAULT_GOAL := help
.PHONY: help setup system demo test check slow coverage lowest paper bench docs release where pins clean

help:  ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1@\2/p' Makefile | awk -F@ '{ printf "%-16s %s\n", $$1, $$2 }'

setup: system $(READY)  ## create .venv with everything pinned by constraints.txt

system:  ## as root on Debian: install the browser and database that some tests need
	@tools/system_packages.sh

$(READY): pyproject.toml constraints.txt tools/setup.sh tools/pip_settings.py | system
	@tools/setup.sh
	@touch $@

demo: setup  ## plan, simulate, run and report the stroke trial
	$(BIN)/evenhand demo
	@echo "The command evenhand is in $(BIN); after 'source $(BIN)/activate' it is found by its name."

test: setup  ## all tests that are not slow; from Python 3.12 on also which lines they run
	@WORKERS=$(WORKERS) tools/run_tests.sh

check: setup  ## format, lint, types, layers, text
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/check_text.py

slow: setup  ## the long statistical, fault and browser tests
	$(PYTEST) -m slow

coverage: setup  ## the tests of `make test` (or of only=FOLDER), and every line that they do not run, in out/coverage
	@WORKERS=$(WORKERS) tools/run_tests.sh --lines $(only)
	$(BIN)/coverage html -q -d out/coverage
	$(BIN)/coverage report --skip-covered --sort=cover

lowest: setup  ## test with the lowest version of every dependency that is allowed
	@WORKERS=$(WORKERS) tools/lowest_versions.sh

paper: setup  ## reproduce the paper's tables and figures, in out/paper
	$(BIN)/evenhand paper -o out/paper

bench: setup  ## benchmarks against other software, as JSON lines
	$(BIN)/python -m benchmarks

docs: setup  ## build the documentation in docs/_build/html; a warning is an error
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

release: setup  ## build the wheel and the sdist in dist; refused without a public address
	$(BIN)/python tools/release.py

where:  ## find an equation of the paper in the code: make where eq=f_mu_opt
	@tools/where.sh "$(eq)"

pins: setup  ## update constraints.txt
	@tools/setup.sh pins

clean:  ## remove everything that was built, including .venv
	rm -rf .venv build dist out docs/_build .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find src tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
