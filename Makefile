# Two commands do everything: `make run` and `make test`. Both set up .venv from the lock file first.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.locked

.PHONY: setup run test lint types docs bench mutants clean

setup: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) not found; install Python 3.11 or name one: make PYTHON=/path/to/python3.11" >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

run: setup
	$(BIN)/parity run

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

test: lint types
	$(BIN)/python -m pytest --numprocesses 2

docs: setup
	$(BIN)/parity objectives --format markdown > docs/objectives.tmp && mv docs/objectives.tmp docs/objectives.md

bench: setup
	$(BIN)/python tests/bench/run_speed.py

# Copies of the judge with one change each: the tests must notice. An hour; `build/` is a scratch folder.
mutants: setup
	rm -rf build/mutants && mkdir -p build/mutants && cp -RL parity tests pyproject.toml build/mutants
	cd build/mutants && $(CURDIR)/$(BIN)/mutmut run --max-children 2; $(CURDIR)/$(BIN)/mutmut results

clean:
	rm -rf $(VENV) parity-out .mypy_cache .ruff_cache .pytest_cache
