# Everything a developer or CI does. Needs Python 3.11 or newer and nothing else.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-fast check format docs bench clean

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

docs: .venv/dev.done  ## the pages of the API reference
	rm -rf build/api
	$(BIN)/python docs/api.py build/api

# 1 where a target is missed or a script failed; of that one no older results stay, and the page says so
bench: .venv/bench.done .venv/lightfm.done  ## measure beside the peers, write docs/benchmarks.md (BENCH=--quick: small)
	status=0; for script in $(wildcard benchmarks/bench_*.py benchmarks/soak.py); do \
		out=build/bench/$$(basename $$script .py | sed s/^bench_//).json; \
		echo "== $$script"; rm -f $$out; $(BIN)/python $$script $(BENCH) --out $$out || status=1; \
	done; $(BIN)/python benchmarks/page.py || status=1; exit $$status

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache build dist

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/demo.done: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[plots,serve]"
	touch $@

# LightFM is built from source: without a C compiler its row of the page stays empty
.venv/lightfm.done: .venv/bench.done
	-$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[bench-lightfm]"
	touch $@

.venv/dev.done .venv/bench.done: .venv/%.done: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[$*]"
	touch $@
