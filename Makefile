# Every target sets up what it needs in .venv; nothing is installed globally.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check
SEEDS ?= 500
FROM ?= 0
FUZZ_EXAMPLES ?= 20000
PREEMPTION_SEEDS ?= 20000
SAMPLE ?= 200
SEED ?= 1
MINUTES ?= 10
ROUNDS ?= 50

unexport PYTHONDONTWRITEBYTECODE # The tests start hundreds of processes: each would compile the whole program anew.

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 16

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "tidelog needs Python 3.11 or newer: make PYTHON=python3.11")'
	@echo "setting up $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@{ $(PIP_INSTALL) --upgrade 'pip>=25.1' && $(PIP_INSTALL) --editable . --group dev; } >$(VENV)/setup.txt 2>&1 \
	  || { cat $(VENV)/setup.txt >&2; exit 1; }
	@touch $@

install: $(STAMP) ## set up .venv with everything

demo: $(STAMP) ## the main job in under a minute, on an embedded log
	@$(BIN)/tidelog demo

test: check-lint check-types check-imports check-tests ## all checks, as CI runs them

check-lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

check-types: $(STAMP)
	$(BIN)/mypy

check-imports: $(STAMP)
	$(BIN)/python tools/check_imports.py

check-tests: $(STAMP)
	$(BIN)/python -m pytest -n auto --dist worksteal --cov --cov-report=term --cov-report=json:build/coverage.json
	$(BIN)/python tools/check_coverage.py build/coverage.json

conformance: $(STAMP) ## the recorded answers of the real kube-scheduler
	$(BIN)/python tests/conformance/run.py tests/conformance/cases

docs: $(STAMP) ## write docs/cli.md from --help
	$(BIN)/python tools/make_cli_docs.py

.PHONY: completions
completions: $(STAMP) ## write the completion scripts in cli/completions from the options of every verb
	$(BIN)/python tools/make_completions.py

lock: $(STAMP) ## write deploy/requirements.lock, with hashes from the package index, and the bill of materials
	$(BIN)/python tools/make_lock.py

screenshots: $(STAMP) ## take the README's pictures of the page anew (needs Chromium)
	@$(BIN)/python tools/make_screenshots.py

page-figures: $(STAMP) ## measure the page with a real Chromium, and what it costs the scheduler (needs Chromium; minutes)
	@$(BIN)/python tools/measure_page.py log --nodes 1000
	@$(BIN)/python tools/measure_page.py log --nodes 5000
	@$(BIN)/python tools/measure_page.py cost

simulate: $(STAMP) ## tell SEEDS random stories FROM a seed on a simulated machine that breaks in every way
	$(BIN)/python -m tests.simulation.simulate --seeds $(SEEDS) --from $(FROM)

fuzz: $(STAMP) ## random input for everything that takes bytes (long)
	TIDELOG_FUZZ_EXAMPLES=$(FUZZ_EXAMPLES) $(BIN)/python -m pytest -q tests/fuzz tests/api/test_fuzz.py tests/cli/test_bad_input.py tests/eventlog/test_socket.py

thorough: $(STAMP) ## all tests, with five times as many random cases (an hour)
	TIDELOG_THOROUGH=5 $(BIN)/python -m pytest -q -n auto --dist worksteal

laws: $(STAMP) ## hold the laws of preemption on thousands of random clusters (long)
	TIDELOG_PREEMPTION_SEEDS=$(PREEMPTION_SEEDS) TIDELOG_MEMORY_SEEDS=2000 $(BIN)/python -m pytest -q -n auto \
	  tests/scheduler/test_preemption_invariants.py tests/plugins/default_preemption/test_memory.py

torture: $(STAMP) ## kill, stop, rob, damage, unplug far more often than the tests do (long)
	TORTURE_CASES=10000 TORTURE_KILLS=1000 TORTURE_ROUNDS=200 TORTURE_RECORDS=100000 CRASH_EVENTS=500 \
	  $(BIN)/python -m pytest -q -rP tests/acceptance/test_torture_damage.py tests/acceptance/test_torture_kill.py \
	  tests/acceptance/test_real_faults.py tests/eventlog/test_crash_points.py tests/eventlog/test_power_loss.py

client-loops: $(STAMP) ## client libraries' list-watch loops through cuts, compactions and restarts of the API server
	TIDELOG_CLIENT_LOOPS=1 $(BIN)/python -m pytest -q -rP -n 0 tests/kube/test_clients.py

simulate-database: $(STAMP) ## tell SEEDS random stories FROM a seed of a log in a database that breaks in every way
	$(BIN)/python -m tests.simulation.database_story --seeds $(SEEDS) --from $(FROM)

postgres-torture: $(STAMP) ## kill, pause and promote PostgreSQL servers and their leaders for ROUNDS rounds (long)
	POSTGRES_ROUNDS=$(ROUNDS) $(BIN)/python -m pytest -q -rP -n 0 tests/postgres/test_rounds.py

soak: $(STAMP) ## a daemon under churn for MINUTES: does it grow, does it slow down
	$(BIN)/python tools/soak.py --minutes $(MINUTES)

.PHONY: soak-operations
soak-operations: $(STAMP) ## two daemons in turn under churn for MINUTES, with retention and readers: does it grow, does the file
	$(BIN)/python tools/soak_operations.py --minutes $(MINUTES)

.PHONY: retention
retention: $(STAMP) ## a day of churn under --keep 100000: is the file bounded, do decisions pause, is all that lives explained (long)
	$(BIN)/python tools/retention_day.py

live-soak: $(STAMP) ## a scheduler on a real API server that breaks, under churn for MINUTES (needs TIDELOG_KUBE_APISERVER and TIDELOG_ETCD)
	TIDELOG_LIVE_SOAK=$(MINUTES) $(BIN)/python -m pytest -q -s -n 0 tests/kube/test_real_soak.py

mutation-score: $(STAMP) ## how many of SAMPLE deliberate mistakes in queue/ and scheduler/ the tests notice (long)
	$(BIN)/python tools/mutation_score.py queue scheduler --sample $(SAMPLE) --seed $(SEED)

mutants: $(STAMP) ## which of sixty deliberate bugs, named in tools/deliberate_bugs.toml, the tests notice (minutes)
	$(BIN)/python tools/deliberate_bugs.py

format: $(STAMP) ## format and repair what ruff can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

wheel: $(STAMP) ## build the wheel into dist/
	$(BIN)/python -m build --wheel --outdir dist .

clean: ## remove everything that is not in git
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage*

.PHONY: page-figures help install demo docs screenshots client-loops simulate fuzz thorough laws torture postgres-torture simulate-database soak live-soak test check-lint check-types check-imports check-tests conformance mutation-score mutants format wheel clean
