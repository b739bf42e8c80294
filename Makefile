# Everything a developer or CI does. Needs Python 3.11 or newer and nothing else.
PYTHON ?= python3
BIN := .venv/bin

# two processes; the tests of a file stay together, because they share what was fitted for them
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile

.PHONY: demo test test-fast coverage mutation check format bench clean

demo: .venv/demo.done  ## fit on the embedded sample, judge it, open the page
	$(BIN)/coldhash demo

test: .venv/dev.done  ## run all tests
	$(PYTEST)

test-fast: .venv/dev.done  ## run the tests that take no more than a few seconds
	$(PYTEST) -m "not slow"

# Lines of compiled kernels are seen where they run as plain Python: in tests that compare the two,
# and in a run of some tests of the search with nothing compiled (all would take minutes). What
# writes LLVM code runs when kernels are compiled, so one run begins without a cache of them.
SCAN := tests/search -k "sort_of_all or fewer or nothing_asked or ties_go or tables or distances"
coverage: .venv/dev.done  ## which lines the tests run; fails below 95%
	rm -rf build/coverage && mkdir -p build/coverage
	$(BIN)/coverage run -m pytest -n 2 --dist loadfile
	NUMBA_CACHE_DIR=build/coverage/numba $(BIN)/coverage run -m pytest $(SCAN)
	NUMBA_DISABLE_JIT=1 $(BIN)/coverage run -m pytest $(SCAN)
	NUMBA_DISABLE_JIT=1 $(BIN)/coverage run -m pytest -m "not compiled" tests/test_products.py tests/models/test_descent.py
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

mutation: .venv/dev.done  ## whether the tests see mistakes put into metrics, codes and model file
	rm -rf mutants
	NUMBA_DISABLE_JIT=1 $(BIN)/mutmut run
	$(BIN)/mutmut results
	$(BIN)/mutmut export-cicd-stats
	$(BIN)/python -m json.tool mutants/mutmut-cicd-stats.json

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

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache build dist mutants

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/demo.done: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[plots,serve]"
	touch $@

.venv/dev.done .venv/bench.done: .venv/%.done: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[$*]"
	touch $@
