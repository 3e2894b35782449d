PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
INSTALLED_DEV := $(VENV)/.installed-dev
INSTALLED_DOCS := $(VENV)/.installed-docs
SITE := build/docs

.PHONY: help demo test test-slow soak check dist docs pictures format bench bench-peers peers simulate clean

help:
	@echo "make demo        run the demo: a real model on this machine, no key"
	@echo "make test        all tests except the slow ones; prints the ten slowest"
	@echo "make test-slow   the slow tests: several seconds each, or in a browser"
	@echo "make soak        long campaigns, before a release: an hour or more"
	@echo "make check       lint and types"
	@echo "make dist        the wheel and the source archive, in dist/"
	@echo "make docs        the documents as a site with a search, in $(SITE)"
	@echo "make pictures    the pictures of the documents, docs/pages: two minutes, with chromium"
	@echo "make bench       the benchmarks, as ratios"
	@echo "make bench-peers  the same work in LangSmith, Langfuse, pydantic-evals and here; small runs beside theirs"
	@echo "make peers       the peers' own tests, run against ours: LANGFUSE=, LANGSMITH= and LANGCHAIN=CLONE"
	@echo "make simulate    simulated coverage of intervals and error rates of tests: an hour"

$(INSTALLED): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "make: got no $(PYTHON), wanted Python 3.11 or newer (make PYTHON=…)" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --editable '.[local]'
	touch $@

$(INSTALLED_DEV): $(INSTALLED)
	PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --editable '.[dev]'
	touch $@

$(INSTALLED_DOCS): $(INSTALLED)
	PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --editable '.[docs]'
	touch $@

PROVIDER := $(if $(OPENAI_API_KEY)$(OPENAI_BASE_URL),-of-a-provider)
demo: $(INSTALLED)
	$(BIN)/evalflows run data/experiments/demo.yaml $(if $(PROVIDER),--set run_key=demo$(PROVIDER))
	$(BIN)/evalflows run data/experiments/demo-judge.yaml $(if $(PROVIDER),--set run_key=demo-judge$(PROVIDER))
	@echo "look again:  $(BIN)/evalflows show demo    $(BIN)/evalflows sql \"select example_id, metric, value, outputs from item_scores\""

# Otherwise each process that a test starts would compile our modules again.
unexport PYTHONDONTWRITEBYTECODE

# The tests of a file stay together, since they share expensive fixtures; each worker has its own Prefect server. The
# files come in the order of tests/conftest.py: xdist's own would end with those of few tests, which may take minutes.
# Slow tests wait half of their time, for processes and pages: three at a time keep two cores busy.
PYTEST := $(BIN)/pytest --dist loadfile --no-loadscope-reorder

test: $(INSTALLED_DEV)
	$(PYTEST) -n 2 -m "not slow and not soak" --durations 10

test-slow: $(INSTALLED_DEV)
	$(PYTEST) -n 3 -m "slow and not soak" --durations 10

soak: $(INSTALLED_DEV)
	$(PYTEST) -n 2 -m soak --timeout 0

# A wheel needs nothing of what a run needs: an environment with `build` alone is made in seconds.
BUILDER := .venv-build
$(BUILDER)/.installed: constraints.txt
	$(PYTHON) -m venv $(BUILDER)
	PIP_CONSTRAINT=constraints.txt $(BUILDER)/bin/pip install --quiet build setuptools
	touch $@

dist: $(BUILDER)/.installed
	rm -rf dist
	$(BUILDER)/bin/python -m build --no-isolation --outdir dist .
	@ls -sh dist

check: $(INSTALLED_DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# A warning, such as a link that leads nowhere or a page that is in no group, is an error.
docs: $(INSTALLED_DOCS)
	$(BIN)/sphinx-build --builder html --fresh-env --fail-on-warning --keep-going --quiet docs $(SITE)
	@echo "open $(SITE)/index.html, or:  $(PYTHON) -m http.server --bind 127.0.0.1 --directory $(SITE)"

# After a page has changed what a picture shows: docs/pages/navigation.json says what each was made with.
pictures: $(INSTALLED_DEV)
	$(BIN)/python tests/support/pictures.py

format: $(INSTALLED_DEV)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(INSTALLED_DEV)
	$(BIN)/python -m benchmarks.rules
	$(BIN)/python -m benchmarks.sealed_scores
	$(BIN)/python -m benchmarks.calls
	$(BIN)/python -m benchmarks.price
	$(BIN)/python -m benchmarks.votes
	$(BIN)/python -m benchmarks.moving_cap
	$(BIN)/python -m benchmarks.receiver
	$(BIN)/python -m benchmarks.production
	$(BIN)/python -m benchmarks.object_store
	$(BIN)/python -m benchmarks.startup
	$(BIN)/python -m benchmarks.marts
	$(BIN)/python -m benchmarks.compare_page
	$(BIN)/python -m benchmarks.pages
	$(BIN)/python -m benchmarks.resamples
	$(BIN)/python -m benchmarks.doors

PEERS := .venv-peers
$(PEERS)/.installed: benchmarks/peers.txt constraints.txt
	$(PYTHON) -m venv $(PEERS)
	PIP_CONSTRAINT=constraints.txt $(PEERS)/bin/pip install --quiet --requirement benchmarks/peers.txt
	touch $@

bench-peers: $(INSTALLED_DEV) $(PEERS)/.installed
	$(BIN)/python -m benchmarks.peers $(PEERS)/bin/python
	$(BIN)/python -m benchmarks.startup --peers $(PEERS)/bin/python

# Before a release, with LANGFUSE and LANGSMITH, clones of their repositories, since their source distributions have no
# tests of evaluation, and LANGCHAIN, the unpacked source distribution of langchain-classic.
peers: $(INSTALLED_DEV)
	$(BIN)/python -m benchmarks.peer_suites

simulate: $(INSTALLED_DEV)
	$(BIN)/python -m benchmarks.simulate --csv docs/explanation/simulation.csv

clean:
	rm -rf $(VENV) $(PEERS) $(BUILDER) $(SITE) data/store data/spool
