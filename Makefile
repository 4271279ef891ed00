# Two commands do everything: `make demo` and `make test`.  Both build .venv from the lock file.
PYTHON ?= python3
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest -q

.PHONY: env java demo test test-recovery test-spark test-quick check bench lock clean

env: .venv/ready

.venv/ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "error: Python 3.11 or newer is needed, $(PYTHON) is older"; \
	  echo "  → install one (Debian, Ubuntu: apt-get install python3.11-venv) and call make PYTHON=python3.11"; \
	  exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
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

# Spark mostly waits for one process or another, so tests run in three lanes at a time.
test: check java
	@mkdir -p build
	@$(MAKE) --no-print-directory --jobs=3 --output-sync=target test-recovery test-spark test-quick

RECOVERY := $(addprefix tests/features/test_,determinism.py recovery.py upstream_sessions.py)

test-recovery:
	$(PYTEST) --basetemp=build/recovery --durations=5 $(RECOVERY)

test-spark:
	$(PYTEST) --basetemp=build/spark --durations=10 tests/features $(RECOVERY:%=--ignore=%)

test-quick:
	$(PYTEST) --basetemp=build/quick --durations=5 tests src --ignore=tests/features

bench: env
	$(BIN)/python bench/overhead.py
	$(BIN)/python bench/soak.py

lock:
	uv pip compile pyproject.toml --extra dev --generate-hashes --universal --python-version 3.11 \
	  --quiet --no-header -o requirements.lock

clean:
	rm -rf .venv build src/*.egg-info
