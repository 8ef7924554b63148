# Everything a person does here. `make help` lists it; each target does all of its own set-up.
.DEFAULT_GOAL := help
.PHONY: help install dev demo test test-fast test-full check format lock bench bench-store bench-peers clean

# Only to choose the Python that makes .venv: make demo PYTHON=/path/to/python3.12
PYTHON ?=
PORT ?= 0
DATA ?= .adapter
PYTEST_ARGS ?=

# Relative on purpose: the checkout's path may hold spaces.
PY := .venv/bin/python
PYTEST := $(PY) -m pytest -p no:cacheprovider
COVERED := $(PYTEST) -n 3 --dist loadgroup --cov --cov-report= --cov-fail-under=0

help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' Makefile

install: ## Check Python, make .venv, install the locked set (quick when nothing changed)
	@python=$$(PYTHON="$(PYTHON)" sh scripts/preflight.sh) && "$$python" scripts/bootstrap.py

dev: install ## Start the server: make dev PORT=2031 DATA=DIR (a free port, .adapter)
	@exec $(PY) scripts/dev.py --port "$(PORT)" --data "$(DATA)"

demo: install ## Watch a refund being asked for, refused, forged, approved and replayed
	@exec $(PY) examples/demo.py

test: install ## All tests but the slow ones, with coverage
	$(PY) -m coverage erase
	$(COVERED) -m "not slow" $(PYTEST_ARGS)
	$(PY) -m coverage report
	$(PY) -m coverage report --include="src/adapter/core/*" --fail-under=100

test-fast: install ## Unit and property tests, under a minute
	$(PYTEST) -n 2 -m "not slow" tests/unit tests/property $(PYTEST_ARGS)

test-full: install ## The slow tests beside `make test`: crash matrix, many processes
	$(PYTEST) -n 2 --dist loadgroup -m slow $(PYTEST_ARGS)

check: install ## Format, lint, types, import directions, lock, spelling
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	.venv/bin/lint-imports
	$(PY) scripts/lock.py --check
	$(PY) -m codespell_lib

format: install ## Format, and mend what the linter can
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

lock: install ## Resolve both locks again after a change of dependencies
	$(PY) scripts/lock.py $(LOCK_ARGS)

bench: install ## Cost per call beside the bare agent, and of a flow beside the same graph by hand
	$(PY) bench/overhead.py
	$(PY) bench/flow.py

bench-store: install ## Speed of the stores, beside pgbench and what bench-peers installed
	$(PY) bench/store.py

bench-peers: install ## Put DBOS Transact into .bench, for bench-store to measure beside ours
	$(PY) -m venv .bench
	.bench/bin/python -m pip install --quiet --disable-pip-version-check dbos==3.4.0

clean: ## Remove what the targets made (not .adapter: that is your data)
	rm -rf .venv .langgraph_api .mypy_cache .ruff_cache .hypothesis .grimp_cache .import_linter_cache .coverage .coverage.* dist .bench
