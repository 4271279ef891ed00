# Two commands do everything: `make demo` and `make test`.  Both build .venv from the lock file.
PYTHON ?= python3
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest -q
# What is imported is compiled then: the rest of five thousand files need not be.
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile
BESIDE := --no-print-directory --jobs=2 --output-sync=target

.PHONY: env java demo test test-spark test-quick check long bench lock clean

env: .venv/ready

.venv/ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "error: Python 3.11 or newer is needed, $(PYTHON) is older"; \
	  echo "  → install one (Debian, Ubuntu: apt-get install python3.11-venv) and call make PYTHON=python3.11"; \
	  exit 1; }
	$(PYTHON) -m venv .venv
	$(PIP) --require-hashes -r requirements.lock
	$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

# Spark's classes, ready to be mapped: made once, sessions are up in half of the time.
java: env
	@$(BIN)/python -m unbroken.engine.java
	@$(BIN)/python -m unbroken.engine.archive

demo: java
	$(BIN)/unbroken demo intrusion

check: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Two lanes, and the one without Spark has what the other leaves: Spark gives its Python processes
# ten seconds to start, and two lanes with Spark on two cores took longer than one after the other.
test: env
	@mkdir -p build
	@$(MAKE) $(BESIDE) check java
	@$(MAKE) $(BESIDE) test-spark test-quick

test-spark:
	$(PYTEST) --basetemp=build/spark --durations=15 -m "not slow" tests/features

test-quick:
	nice -n 19 $(PYTEST) --basetemp=build/quick --durations=5 tests src --ignore=tests/features

# What takes longer than a change should wait for: slow tests, and more of the code's fresh lives
# (docs/simulator.md).
long: java
	$(PYTEST) --basetemp=build/long -m slow tests/features
	UNBROKEN_SEEDS=1000 $(PYTEST) --basetemp=build/long tests/sim/test_seeds.py tests/sim/test_cuts.py -k fresh

bench: env
	$(BIN)/python bench/overhead.py
	$(BIN)/python bench/soak.py

lock:
	uv pip compile pyproject.toml --extra dev --generate-hashes --universal --python-version 3.11 \
	  --quiet --no-header -o requirements.lock

clean:
	rm -rf .venv build src/*.egg-info
