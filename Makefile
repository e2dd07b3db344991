# Every command a developer needs. `make` alone lists them.
# Needs Python 3.11 or newer and make; everything else is locked in requirements/ and lands in .venv.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:
MAKEFLAGS += --no-builtin-rules

# The first Python that is new enough; looked for only when .venv must be made.
PYTHON ?= $(shell for name in python3 python3.14 python3.13 python3.12 python3.11; do \
  $$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$name && break; done)
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
COMPILE := $(BIN)/pip-compile --quiet --generate-hashes --no-emit-options --strip-extras --allow-unsafe --no-header
PYTEST := $(BIN)/python -m pytest
WORKERS ?= $(shell nproc 2>/dev/null || echo 2)
# Tests of real processes wait more than they compute. A file stays whole, for its tests share servers; files keep their
# order, since the longest are not those with the most tests.
SIDE_BY_SIDE := -n $(shell expr 2 \* $(WORKERS)) --dist loadfile --no-loadscope-reorder
# What a line of Spark has to do: its data source API in every direction, and its client.
SPARK_LINES := $(addprefix tests/spark/test_,batch_source.py stream_source.py sink.py connect.py)
CODE := src tests tools $(wildcard benchmarks)
ARGS ?=

.PHONY: help
help: ## List the targets.
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name sentence; do \
	  printf '  %-14s %s\n' "$$name" "$$sentence"; done

# --- setting up and running -------------------------------------------------------------------

$(VENV)/.made:
	@python=$$(command -v "$(PYTHON)") || \
	  { echo "Magnetar needs Python 3.11 or newer; none is on the PATH. PYTHON=path/to/python3.11 names one." >&2; exit 1; }; \
	  echo "making $(VENV) with $$python" && "$$python" -m venv $(VENV)
	@touch $@

$(VENV)/.run: $(VENV)/.made requirements/build.txt requirements/run.txt requirements/run.in pyproject.toml
	@echo "installing what Magnetar runs on"
	@$(PIP_INSTALL) --require-hashes -r requirements/build.txt -r requirements/run.txt
	@$(PIP_INSTALL) --no-deps --no-build-isolation --no-index --editable .
	@touch $@

$(VENV)/.test: $(VENV)/.run requirements/test.txt
	@echo "installing what the checks need"
	@$(PIP_INSTALL) --require-hashes -r requirements/test.txt
	@touch $@

$(VENV)/.spark: $(VENV)/.test requirements/spark.txt requirements/delta.txt
	@echo "installing what Spark needs"
	@$(PIP_INSTALL) --require-hashes -r requirements/spark.txt -r requirements/delta.txt
	@$(BIN)/python -m tools.java
	@touch $@

# Beside the others' packages and not among them: two lines of Spark do not go into one.
$(VENV)/.spark-lines: $(VENV)/.spark requirements/spark-older.txt requirements/connect.txt
	@echo "installing another line of Spark, and what its client needs"
	@$(PIP_INSTALL) --require-hashes --no-deps --upgrade --target $(VENV)/connect -r requirements/connect.txt
	@$(PIP_INSTALL) --require-hashes --no-deps --upgrade --target $(VENV)/spark-older -r requirements/spark-older.txt
	@touch $@

$(VENV)/.bench: $(VENV)/.test requirements/bench.txt
	@echo "installing what draws plots"
	@$(PIP_INSTALL) --require-hashes -r requirements/bench.txt
	@touch $@

# The compiled twins of the hottest loops; everything works without them. Under CI they must build.
$(VENV)/.compiled: $(VENV)/.test $(wildcard native/*) tools/compile.py
	@$(BIN)/python -m tools.compile || [ "$$CI" != true ]
	@touch $@

.PHONY: setup setup-test setup-all run compile
compile: $(VENV)/.compiled ## Build the compiled twins of the hottest loops; needs a C compiler.
setup: $(VENV)/.run ## Prepare .venv with what Magnetar runs on; the second time does nothing.
setup-test: $(VENV)/.test ## Add what the checks and tests need.
setup-all: setup-test $(VENV)/.spark ## Add every extra: Spark, and Java if it may be installed.

run: $(VENV)/.run ## Start a standalone in the foreground; ARGS="--port 0" passes flags on.
	@exec $(BIN)/magnetar standalone $(ARGS)

# --- checking ---------------------------------------------------------------------------------

.PHONY: test check ci fmt fmt-check lint types tidy unit contracts simulation conformance faults cluster-faults power-loss fuzz soak deploy-check interop official-suite client-against-apache client-soak scale spark spark-lines spark-faults sim mutations bench bench-peers bench-spark bench-spark-peers bench-page features
test: $(VENV)/.spark $(VENV)/.bench $(VENV)/.compiled ## Run every suite that CI runs and print each one's share of the time.
	@$(BIN)/python -m tools.suites check contracts simulation conformance faults spark

ci: ## What CI runs: all suites; a missing system part is a failure, not a skip.
	@CI=true $(MAKE) --no-print-directory test

check: $(VENV)/.spark ## Before each commit: format, lint, layers, types, tidiness, unit tests; under two minutes.
	@$(BIN)/python -m tools.suites fmt-check lint tidy unit+types

fmt: $(VENV)/.test ## Format the code and sort its imports.
	@$(BIN)/ruff check --select I --fix --quiet $(CODE)
	@$(BIN)/ruff format --quiet $(CODE)

fmt-check: $(VENV)/.test ## Say what `make fmt` would change.
	@$(BIN)/ruff format --check $(CODE)

lint: $(VENV)/.test ## Lint, and check that imports point down.
	@$(BIN)/ruff check $(CODE)
	@$(BIN)/lint-imports

types: $(VENV)/.spark ## Check types, strictly; those of what Spark needs too.
	@$(BIN)/mypy

tidy: $(VENV)/.test ## Check sizes, door plates, banned calls and the house itself.
	@$(PYTEST) tests/test_tidy.py tests/test_house.py -n $(WORKERS)

unit: $(VENV)/.test ## Does each part decide rightly?
	@MAGNETAR_PURE=1 $(PYTEST) tests/unit -n $(WORKERS)

contracts: $(VENV)/.test ## Do all implementations of a seam agree?
	@$(PYTEST) tests/contracts -n $(WORKERS)

simulation: $(VENV)/.test ## Does the whole hold under the seeds that CI runs?
	@MAGNETAR_PURE=1 PYTHONHASHSEED=0 $(PYTEST) tests/simulation -n $(WORKERS)

conformance: $(VENV)/.test ## Do official clients believe us?
	@$(PYTEST) tests/conformance $(SIDE_BY_SIDE)

faults: $(VENV)/.test ## Do real processes survive kills, pauses and full disks?
	@$(PYTEST) tests/faults $(SIDE_BY_SIDE)

cluster-faults: $(VENV)/.test ## Kills and pauses of brokers on every metadata store, beyond what `faults` runs.
	@CLUSTER_FAULTS=all $(PYTEST) tests/faults/test_cluster*.py --run-name cluster-faults

power-loss: $(VENV)/.test ## The power fails at every call of a recorded life of a bookie and a metadata store; minutes.
	@POWER_LOSS=all $(PYTEST) tests/faults/test_power_loss.py -n0 --timeout 3600

fuzz: $(VENV)/.compiled ## All decoders together, then each kind of ports, under hostile bytes for MINUTES (2); failures stay in .results/fuzz.
	@$(BIN)/python -m tests.fuzz.run --minutes $(or $(MINUTES),2) $(ARGS)
	@FUZZ_SECONDS=$$($(BIN)/python -c "print($(or $(MINUTES),2) * 60)") $(PYTEST) tests/conformance/test_fuzzed_doors.py -n0 --timeout 7200

soak: $(VENV)/.test ## Faults on real processes under load for MINUTES (5), checked against a history; a line a minute, a table.
	@$(BIN)/python -m tests.faults.soak --minutes $(or $(MINUTES),5) $(ARGS)

interop: $(VENV)/.test ## With Apache's own bookie, client and shell; REFERENCE_PULSAR names an unpacked distribution.
	@$(PYTEST) tests/interop

official-suite: $(VENV)/.test ## The official Python client's own tests; CHECKOUT names a working copy of pulsar-client-python.
	@test -n "$(CHECKOUT)" || { echo "CHECKOUT=path names a working copy of pulsar-client-python" >&2; exit 2; }
	@$(BIN)/python -m tools.official_suite $(CHECKOUT) $(ARGS)

scale: $(VENV)/.test ## Ten thousand topics, a million ack holes, a thousand subscriptions, in full.
	@SCALE=full $(PYTEST) tests/faults/test_scale.py -s

client-against-apache: $(VENV)/.test ## The client's end-to-end suite against Apache Pulsar; REFERENCE_PULSAR names a distribution.
	@$(BIN)/python -m tools.against_apache $(ARGS)

client-soak: $(VENV)/.test ## A thousand forks with live producers, a thousand lives of a client without a leak; ROUNDS=n.
	@$(BIN)/python -m tests.client_soak $(if $(ROUNDS),--rounds $(ROUNDS))

deploy-check: $(VENV)/.test ## Container file, Compose, Helm chart and systemd units by their own tools, built and run where those are there; minutes, root.
	@$(PYTEST) tests/deploy

spark: $(VENV)/.spark ## Is a topic a DataFrame, live and historical, exactly once?
	@$(PYTEST) tests/spark -n 2 --dist loadgroup

spark-lines: $(VENV)/.spark-lines ## With two lines of Spark, in a session and through Spark Connect.
	@PYTHONPATH=$(CURDIR)/$(VENV)/connect $(PYTEST) $(SPARK_LINES)
	@PYTHONPATH=$(CURDIR)/$(VENV)/spark-older:$(CURDIR)/$(VENV)/connect $(PYTEST) $(SPARK_LINES)

spark-faults: $(VENV)/.spark ## Drivers and executors killed or stopped at every place of a micro-batch; a quarter of an hour.
	@MAGNETAR_SPARK_FAULTS=all $(PYTEST) --run-name spark-faults tests/spark/test_driver_kills.py tests/spark/test_cluster.py tests/spark/test_process_kills.py tests/spark/test_sink_faults.py tests/spark/test_sink_crashes.py tests/spark/test_sql_commands.py

sim: $(VENV)/.test ## Simulate: SEED=x replays one seed, SEEDS=n runs n fresh ones, MINUTES=m runs that long.
	@PYTHONHASHSEED=0 $(BIN)/python -m tests.simulation.run $(if $(SEED),--seed $(SEED)) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)

mutations: $(VENV)/.test ## Plant every deliberate bug and say what catches it; ARGS="--bug NAME --seeds 100", ARGS=--keep records it for the page.
	@PYTHONHASHSEED=0 $(BIN)/python -m tests.simulation.sensitivity $(ARGS)

# The page names what failed: it is written all the same, except where nothing was measured (2).
WRITE_PAGE := code=$$?; [ $$code -gt 1 ] || $(BIN)/python -m benchmarks.report --plots || code=1; exit $$code

bench: $(VENV)/.compiled $(VENV)/.bench ## Measure, then write docs/performance.md and its plots: half an hour; ARGS=--quick four minutes, --full more than an hour.
	@$(BIN)/python -m benchmarks $(ARGS); $(WRITE_PAGE)

bench-peers: $(VENV)/.compiled $(VENV)/.bench ## The same beside Apache Pulsar and Kafka in turn: an hour; ARGS=--full hours. Maven fetches them, Java 17 runs them.
	@$(BIN)/python -m benchmarks --peers $(ARGS); $(WRITE_PAGE)

bench-spark: $(VENV)/.spark $(VENV)/.compiled ## Measure Spark's reads and writes of topics; ARGS="--messages 200000" takes a minute, and is not judged.
	@$(BIN)/python -m benchmarks.spark $(ARGS)

bench-spark-peers: $(VENV)/.spark $(VENV)/.compiled ## The same beside Spark's own Kafka source; Maven fetches it and a broker.
	@$(BIN)/python -m benchmarks.spark --peers $(ARGS)

bench-page: $(VENV)/.bench ## Write docs/performance.md and its plots from the last measurements, or from those in docs/performance.
	@$(BIN)/python -m benchmarks.report --plots

features: $(VENV)/.test ## Write docs/compatibility.md from the last results; ARGS=--measured leaves what tests proved.
	@$(BIN)/python -m tools.features $(ARGS)

# --- generating and locking -------------------------------------------------------------------

.PHONY: proto lock sbom hooks clean
proto: $(VENV)/.test ## Generate src/magnetar/wire/proto from proto/.
	@$(BIN)/python tools/build_proto.py

lock: $(VENV)/.test ## Compile requirements/*.in to locked versions with hashes; ARGS=--upgrade takes newer ones.
	@$(COMPILE) $(ARGS) -o requirements/build.txt requirements/build.in
	@$(COMPILE) $(ARGS) -c requirements/build.txt -o requirements/run.txt requirements/run.in
	@$(COMPILE) $(ARGS) -c requirements/build.txt -c requirements/run.txt -o requirements/test.txt requirements/test.in
	@$(COMPILE) $(ARGS) -c requirements/build.txt -c requirements/run.txt -c requirements/test.txt -o requirements/spark.txt requirements/spark.in
	@$(COMPILE) $(ARGS) -c requirements/build.txt -c requirements/run.txt -c requirements/test.txt -o requirements/spark-older.txt requirements/spark-older.in
	@$(COMPILE) $(ARGS) -c requirements/build.txt -c requirements/run.txt -c requirements/test.txt -o requirements/connect.txt requirements/connect.in
	@$(COMPILE) $(ARGS) -c requirements/build.txt -c requirements/run.txt -c requirements/test.txt -c requirements/spark.txt -o requirements/delta.txt requirements/delta.in
	@$(COMPILE) $(ARGS) -c requirements/build.txt -c requirements/run.txt -c requirements/test.txt -c requirements/spark.txt -o requirements/bench.txt requirements/bench.in

sbom: $(VENV)/.run ## What Magnetar runs on, with hashes, as a CycloneDX document: build/sbom.json.
	@mkdir -p build && $(BIN)/python -m tools.sbom build/sbom.json && echo build/sbom.json

hooks: $(VENV)/.test ## Let git run the quick checks before each commit.
	@$(BIN)/pre-commit install

clean: ## Remove the environment, caches and results; data stays.
	@rm -rf $(VENV) .results .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist src/*.egg-info
	@find src tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
