# Everything a developer or CI does. Needs Python 3.11 or newer and nothing else.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-fast check format bench fuzz audit sbom clean

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

SECONDS ?= 60
TARGETS ?=
fuzz: .venv/fuzz.done  ## look for inputs that break something: SECONDS for each of TARGETS
	$(BIN)/python tests/fuzz/run.py --seconds $(SECONDS) $(TARGETS)

audit: .venv/audit.done  ## hold all pinned versions against the database of known holes
	$(BIN)/pip-audit --strict --no-deps --disable-pip --progress-spinner off \
		--requirement constraints.txt || { echo "audit: a version has a known hole, or (see above)" \
		"the database was not reached and NOTHING IS KNOWN: run it where pypi.org is" >&2; exit 1; }

sbom: .venv/audit.done  ## write dist/sbom.json: what a server is made of, in CycloneDX
	$(PYTHON) -m venv --clear .venv/runtime
	.venv/runtime/bin/pip install --quiet --constraint constraints.txt ".[serve]"
	.venv/runtime/bin/pip uninstall --quiet --yes pip setuptools
	mkdir -p dist
	$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible \
		--output-file dist/sbom.json .venv/runtime/bin/python

clean:
	rm -rf .venv .fuzz .pytest_cache .mypy_cache .ruff_cache build dist

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/demo.done: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[plots,serve]"
	touch $@

.venv/dev.done .venv/bench.done .venv/fuzz.done .venv/audit.done: .venv/%.done: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[$*]"
	touch $@
