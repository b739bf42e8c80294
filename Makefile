# Everything a developer or CI does. Needs Python 3.11 or newer and nothing else.
PYTHON ?= python3
BIN := .venv/bin

SECONDS ?= 600

.PHONY: demo test test-fast check format bench soak clean

demo: .venv/demo.done  ## fit on the embedded sample, judge it, open the page
	$(BIN)/coldhash demo

test: .venv/dev.done  ## run all tests
	$(BIN)/python -m pytest

test-fast: .venv/dev.done  ## run the tests that take no more than a few seconds
	$(BIN)/python -m pytest -m "not slow"

check: .venv/dev.done  ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/dev.done
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/bench.done  ## measure beside the peers
	status=0; for script in benchmarks/bench_*.py; do \
		echo "== $$script"; $(BIN)/python $$script || status=1; \
	done; exit $$status  # 1 where a target is missed

soak: .venv/dev.done  ## a mixed, partly hostile load on the service for SECONDS
	$(BIN)/python benchmarks/soak.py --seconds $(SECONDS)

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache build dist

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/demo.done: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[plots,serve]"
	touch $@

.venv/dev.done .venv/bench.done: .venv/%.done: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[$*]"
	touch $@
