PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LIVE_TESTS := POLARS_MAX_THREADS=1 $(BIN)/pytest -W default -p no:randomly --override-ini addopts="--strict-markers --strict-config -q" -n 2 --dist loadfile --no-loadscope-reorder --durations=40 tests/live

.PHONY: demo test thorough lint coverage bench reproduce live-demo test-live faults docs pictures release clean

demo: $(VENV)/.run ## the main job: set up, then six policies side by side, a table and report.html
	$(BIN)/skedge demo

test: $(VENV)/.dev lint ## what must hold of every change: lint, types, layers, tests
	POLARS_MAX_THREADS=1 $(BIN)/pytest -n 2

thorough: $(VENV)/.live $(VENV)/.dev ## the tests that `make test` and `make test-live` leave out, before a release: slow ones, and more cases of what others show
	POLARS_MAX_THREADS=1 $(BIN)/pytest -n 2 -m thorough
	$(LIVE_TESTS) -m thorough

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

coverage: $(VENV)/.dev ## which lines and branches all tests run, on the screen and as pages in coverage/; compiled kernels are not measured
	POLARS_MAX_THREADS=1 $(BIN)/pytest -n 2 -m "" --cov --cov-report=term --cov-report=html:coverage

bench: $(VENV)/.live ## all measures of speed, into docs/bench.md; TRACE=, MACHINES= (Philly's files), PEER= (Tiresias's simulator) if there
	$(BIN)/python benchmarks/bench.py $(TRACE) $(MACHINES) $(if $(PEER),--peer $(PEER)) $(if $(PEER_PYTHON),--peer-python $(PEER_PYTHON))

reproduce: $(VENV)/.figures ## every figure of the papers into docs/figures, continued where it stopped; TRACE= (Google's jobs) if there; QUICK=1: in 10 minutes, elsewhere
	$(BIN)/skedge reproduce all $(if $(QUICK),--quick --out figures-quick,--out docs/figures) $(if $(TRACE),--trace $(TRACE))

live-demo: $(VENV)/.live ## real training on Ray, on this machine: three edge servers and a cloud, six jobs
	$(BIN)/skedge live live-demo --out skedge-live --replace

test-live: $(VENV)/.live $(VENV)/.dev ## what must hold of real training; warnings are shown there, as Ray and PyTorch have some of their own
	$(LIVE_TESTS) -m "not thorough"

faults: $(VENV)/.live $(VENV)/.dev ## the live part in simulation, with faults; SEEDS=1000 of them on both cores, continued where it stopped
	POLARS_MAX_THREADS=1 PYTHONPATH=tests $(BIN)/python -m simulated 0:$(or $(SEEDS),1000) --jobs 2 --progress faults.jsonl

docs: $(VENV)/.docs ## the documentation as pages: site/index.html; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

pictures: $(VENV)/.dev ## the pictures and tables of README and docs again; photographs of pages need chromium
	$(BIN)/python docs/tools/pictures.py
	$(BIN)/python docs/tools/fields.py
	$(BIN)/python docs/tools/screenshots.py

release: $(VENV)/.dev ## after `make thorough`: wheel and sdist of a tagged commit into dist/, tried in a new environment
	$(BIN)/python docs/tools/release.py

$(VENV)/bin/pip:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: pyproject.toml constraints.txt | $(VENV)/bin/pip
	$(BIN)/pip install --quiet -c constraints.txt -e .
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/pip
	$(BIN)/pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@ $(VENV)/.run

$(VENV)/.live: pyproject.toml constraints.txt | $(VENV)/bin/pip
	@echo "installing PyTorch for the CPU and Ray into $(VENV): some minutes the first time"
	$(BIN)/pip install --quiet -c constraints.txt -e '.[live,track]'
	touch $@ $(VENV)/.run

$(VENV)/.figures: pyproject.toml constraints.txt | $(VENV)/bin/pip
	@echo "installing PyTorch for the CPU, Ray and solvers into $(VENV): some minutes the first time"
	$(BIN)/pip install --quiet -c constraints.txt -e '.[figures,live,optimum]'
	touch $@ $(VENV)/.run $(VENV)/.live

$(VENV)/.docs: pyproject.toml constraints.txt | $(VENV)/bin/pip
	$(BIN)/pip install --quiet -c constraints.txt -e '.[docs]'
	touch $@ $(VENV)/.run

clean: ## remove the virtual environment and everything that a run leaves behind
	rm -rf $(VENV) skedge-demo skedge-live runs comparison.html site figures figures-quick dist coverage .coverage* faults.jsonl
