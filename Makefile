PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: help demo test test-slow check format bench simulate clean

help:
	@echo "make demo        run the demo: a real model on this machine, no key"
	@echo "make test        all tests except the slow ones"
	@echo "make test-slow   the slow tests: more than ten seconds each, or in a browser"
	@echo "make check       lint and types"
	@echo "make bench       the benchmarks, as ratios"
	@echo "make simulate    simulated coverage of intervals and error rates of tests: half an hour"

$(INSTALLED): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "make: got no $(PYTHON), wanted Python 3.11 or newer (make PYTHON=…)" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --editable '.[dev]'
	touch $@

demo: $(INSTALLED)
	$(BIN)/evalflows run data/experiments/demo.yaml $(if $(OPENAI_API_KEY)$(OPENAI_BASE_URL),--set run_key=demo-of-a-provider)
	@echo "look again:  $(BIN)/evalflows show demo    $(BIN)/evalflows sql \"select example_id, metric, value, outputs from item_scores\""

# Otherwise each process that a test starts would compile our modules again.
unexport PYTHONDONTWRITEBYTECODE

# The tests of a file stay together, since they share expensive fixtures; each worker has its own Prefect server.
PYTEST := $(BIN)/pytest -n 2 --dist loadfile

test: $(INSTALLED)
	$(PYTEST) -m "not slow"

test-slow: $(INSTALLED)
	$(PYTEST) -m slow

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(INSTALLED)
	$(BIN)/python -m benchmarks.rules
	$(BIN)/python -m benchmarks.sealed_scores
	$(BIN)/python -m benchmarks.calls
	$(BIN)/python -m benchmarks.moving_cap
	$(BIN)/python -m benchmarks.startup

simulate: $(INSTALLED)
	$(BIN)/python -m benchmarks.simulate

clean:
	rm -rf $(VENV) data/store data/spool
