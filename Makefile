# The two commands a newcomer needs: make demo, make test. Both set everything up themselves.
.PHONY: demo test test-long setup lint format docs references coverage release-check clean

VENV := .venv
WORKERS := 3
BIN := $(VENV)/bin
SOURCES := $(wildcard src tests tools benchmarks)
REFERENCES := architecture api_reference broker_reference command_reference log_reference scenario_reference
WITH_JAVA := JAVA_HOME="$$(cat $(VENV)/java-home 2>/dev/null)"

# The tour, in a few minutes: plan, predict, run, learn, check. Its report is out/demo/tour.html.
demo: setup
	@$(WITH_JAVA) $(BIN)/surecast demo --out out/demo

# Lint, types, import contracts, documentation and all tests. They start hundreds of processes, which read their
# modules quicker where bytecode is kept, so that is done whatever the environment says. A third worker on two cores
# computes while others wait for processes and time limits. Kernels whose source changed are compiled before, once:
# each worker would compile them for itself.
test: setup lint
	$(BIN)/python tools/compile_kernels.py
	$(WITH_JAVA) PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q -rs -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# What takes minutes more: killed Spark runs, a Spark cluster, more kinds of replicated groups, more random draws.
test-long: setup
	$(WITH_JAVA) $(BIN)/python -m pytest -q -rs -m long -o faulthandler_timeout=1600 tests

lint: setup
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# The documentation as a site, in out/site: strict, so a broken link is an error. The variable silences an advertisement.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# Writes the pages that are made from code: references, and the tables and pictures of the architecture.
references: setup
	@for tool in $(REFERENCES); do echo "tools/$$tool.py"; $(BIN)/python "tools/$$tool.py" || exit 1; done

# The share of statements that tests run; for some tests only: make coverage TESTS="tests/protocol tests/report".
coverage: setup
	@mkdir -p out/coverage
	$(WITH_JAVA) PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile --cov \
		--cov-report=term:skip-covered --cov-report=html $(TESTS)

# Builds wheel and sdist, tries each in an empty environment, and writes the notes: out/release. Nothing is tagged.
release-check: setup
	$(BIN)/python tools/release.py

# Leaves .venv with the surecast command in it; skipped when nothing changed.
setup:
	@python3 tools/setup.py

format: setup
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

clean:
	rm -rf $(VENV) out build dist src/*.egg-info
