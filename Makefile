# Everything a person or CI runs. Each command sets up what it needs; a second run installs nothing again.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The oldest of all that is supported, installed beside the newest; that Spark does not run on a Java newer than 21.
COMPAT_JAVA := 21
COMPAT := .venv-compat/oldest
PEERS := tests/peers
# Fewer tests: make test TESTS=tests/client COMPAT_TESTS=tests/spark/test_datasource.py
TESTS ?=
COMPAT_TESTS ?= tests/amqp tests/client tests/spark
# These wait for Spark, and the others mostly for sockets: side by side they take half the time.
SPARK_TESTS := tests/spark
# These start programs that start Sparks of their own.
PROGRAM_TESTS := tests/cluster tests/docs tests/notebooks

# Stamps: written when the installation is complete, out of date when what it was made from changes.
INSTALLED := $(VENV)/.installed
COMPAT_INSTALLED := $(COMPAT)/.installed
FUZZ := .venv-fuzz
FUZZ_INSTALLED := $(FUZZ)/.installed
PEERS_INSTALLED := $(PEERS)/node_modules/.installed

# Spark's own log settings for the commands below.
export SPARK_CONF_DIR := $(CURDIR)/conf
# Workers must be the interpreter that has the package, whatever python3 is on the PATH.
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python
# The compatibility run below sets it; the main run uses the Spark of the virtual environment, whatever the caller has.
unexport SPARK_HOME PYTHONPATH

# Starts a command with the JAVA_HOME that was found or installed: $(call with_java,) or $(call with_java,--newest 21).
with_java = JAVA_HOME=$$($(PYTHON) scripts/prerequisites.py java $(1)) && export JAVA_HOME &&

.DEFAULT_GOAL := help
.PHONY: help fuzz test test-core test-spark test-programs test-some test-compat demo docs fresh bench lint format setup peers python clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

test: lint setup ## Set up and run everything: lint, types, and side by side the tests without Spark, with it, and with the oldest of all
	@# Whatever has to be installed is, before two could do it at once.
	@$(call with_java,) $(call with_java,--newest $(COMPAT_JAVA)) true
	@# The longest first; the last begins when one of them has ended.
	@$(MAKE) --no-print-directory -j3 test-compat $(if $(TESTS),test-some,test-spark test-core test-programs)

test-core: $(INSTALLED) $(PEERS_INSTALLED) ## Run all tests but those with Spark
	$(call with_java,) HYPOTHESIS_PROFILE=ci $(BIN)/python -m pytest tests $(addprefix --ignore=,$(SPARK_TESTS) $(PROGRAM_TESTS))

test-spark: $(INSTALLED) $(PEERS_INSTALLED) ## Run the tests on the newest Spark
	$(call with_java,) HYPOTHESIS_PROFILE=ci $(BIN)/python -m pytest -p no:cacheprovider $(SPARK_TESTS)

test-programs: $(INSTALLED) $(PEERS_INSTALLED) ## Run clusters, Spark Connect, the notebooks and the README's programs
	$(call with_java,) HYPOTHESIS_PROFILE=ci $(BIN)/python -m pytest -p no:cacheprovider $(PROGRAM_TESTS)

test-some: $(INSTALLED) $(PEERS_INSTALLED)
	$(call with_java,) HYPOTHESIS_PROFILE=ci $(BIN)/python -m pytest $(TESTS)

test-compat: $(INSTALLED) $(COMPAT_INSTALLED) ## Run what depends on Spark, Arrow, numpy and proton on the oldest of them
	$(call with_java,--newest $(COMPAT_JAVA)) \
		PYTHONPATH=$(CURDIR)/$(COMPAT) SPARK_HOME=$(CURDIR)/$(COMPAT)/pyspark SBMGMT_EXPECT="$$($(BIN)/python scripts/oldest.py)" HYPOTHESIS_PROFILE=ci \
		$(BIN)/python -m pytest -p no:cacheprovider $(COMPAT_TESTS)

demo: $(INSTALLED) ## Set up and show a day in a small shop, every number of it checked
	@$(call with_java,) $(BIN)/python scripts/demo.py

docs: $(INSTALLED) ## Make the README's tables and outputs and the notebooks' outputs anew
	$(call with_java,) $(BIN)/python -m tests.docs.readme
	$(call with_java,) $(BIN)/python -m tests.notebooks.execute

fresh: $(INSTALLED) $(PEERS_INSTALLED) ## Clone what is committed to a new folder with an empty home, and run demo and test there
	@$(BIN)/python scripts/fresh_clone.py

bench: $(INSTALLED) ## Run the benchmarks: a table and one JSON line per figure
	@$(BIN)/python -m tests.bench

fuzz: $(FUZZ_INSTALLED) ## Fuzz the decoders for twelve minutes (not part of test)
	for target in value message batch sender responses columns; do \
		$(FUZZ)/bin/python -m tests.fuzz.fuzz_decode $$target -max_total_time=120 -timeout=10 -rss_limit_mb=4096 || exit 1; \
	done

lint: $(INSTALLED) ## Check style, formatting and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(INSTALLED) ## Mend style and formatting
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

setup: $(INSTALLED) $(COMPAT_INSTALLED) $(PEERS_INSTALLED) ## Install everything the other commands need

clean: ## Remove everything the other commands made
	rm -rf $(VENV) $(FUZZ) .venv-compat $(PEERS)/node_modules build dist *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache \
		spark-warehouse metastore_db derby.log artifacts
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || \
		{ echo "sbmgmt set-up: Python 3.10 or newer is needed ($(PYTHON) is not): install it or say make PYTHON=/path/to/python3" >&2; exit 1; }

$(INSTALLED): pyproject.toml $(wildcard spark_sb_mgmt/amqp/_native*.[ch]) | python
	@$(PYTHON) scripts/prerequisites.py build
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

$(COMPAT_INSTALLED): pyproject.toml scripts/oldest.py | $(INSTALLED)
	rm -rf $(dir $(COMPAT))
	$(BIN)/python scripts/oldest.py | xargs $(BIN)/python -m pip install --quiet --no-deps --target $(COMPAT)
	@touch $@

# atheris comes for few versions of Python, so it does not stand in the way of the rest.
$(FUZZ_INSTALLED): pyproject.toml | python
	$(PYTHON) -m venv $(FUZZ)
	$(FUZZ)/bin/python -m pip install --quiet 'atheris>=3,<4' --editable .
	@touch $@

peers: $(PEERS_INSTALLED)

$(PEERS_INSTALLED): $(PEERS)/package.json $(PEERS)/package-lock.json
	@$(PYTHON) scripts/prerequisites.py node
	npm --prefix $(PEERS) ci --loglevel error
	@touch $@
