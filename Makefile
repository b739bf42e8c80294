# Everything a developer or CI does. Needs Python 3.11 or newer and nothing else.
PYTHON ?= python3
BIN := .venv/bin

# Two processes, each with half of the tests in order, because those of a file share what was fitted
# for them; who is done first takes over tests of the other.
PARALLEL := -n 2 --dist worksteal
PYTEST := $(BIN)/python -m pytest $(PARALLEL)

# empty, so that pytest keeps the modules that it has rewritten: to do that again takes seconds
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-fast test-cpus test-openapi coverage mutation check format docs dist bench soak fuzz audit sbom clean

demo: .venv/demo.done  ## show what strangers in the embedded sample get, judge it, open the page
	$(BIN)/coldhash demo

test: .venv/dev.done  ## run all tests, in three processes: many of them wait for other processes
	$(PYTEST) -n 3

test-fast: .venv/dev.done  ## run the tests that take no more than a few seconds
	$(PYTEST) -m "not slow"

test-cpus: .venv/dev.done  ## run them on the code paths of other processors, and in another locale
	$(BIN)/python tests/processors.py $(PARALLEL) -m "not slow"

test-openapi: .venv/dev.done  ## 2,000 requests made up from /openapi.json, all checks of schemathesis
	$(BIN)/python tests/serve/openapi.py

# Lines of compiled kernels are seen where they run as plain Python: in tests that compare the two,
# and in a run of some tests of the search with nothing compiled (all would take minutes). What
# writes LLVM code runs when kernels are compiled, so one run begins without a cache of them.
SCAN := tests/search -k "sort_of_all or fewer or nothing_asked or ties_go or tables or distances or levels"
coverage: .venv/dev.done  ## which lines the tests run; fails below 95%
	rm -rf build/coverage && mkdir -p build/coverage
	$(BIN)/coverage run -m pytest $(PARALLEL) --ignore tests/serve/test_private.py
	NUMBA_CACHE_DIR=build/coverage/numba $(BIN)/coverage run -m pytest $(SCAN)
	NUMBA_DISABLE_JIT=1 $(BIN)/coverage run -m pytest $(SCAN)
	NUMBA_DISABLE_JIT=1 $(BIN)/coverage run -m pytest -m "not compiled" tests/arrays/test_products.py tests/mfdcf/test_items.py
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

docs: .venv/dev.done  ## the site, into build/site; a link that leads nowhere is an error
	rm -rf build/site
	$(BIN)/python docs/picture.py
	$(BIN)/python -m sphinx --quiet --fail-on-warning --conf-dir docs . build/site

dist: .venv/dev.done  ## build the sdist and, from it, the wheel, into dist
	rm -f dist/coldhash-*
	$(BIN)/python -m build --quiet --outdir dist

# 1 where a target is missed or a script failed; of that one no older results stay, and the page says so
bench: .venv/bench.done .venv/lightfm.done  ## measure beside the peers, write docs/benchmarks.md (BENCH=--quick: small)
	status=0; for script in $(wildcard benchmarks/bench_*.py benchmarks/soak.py); do \
		out=build/bench/$$(basename $$script .py | sed s/^bench_//).json; \
		echo "== $$script"; rm -f $$out; $(BIN)/python $$script $(BENCH) --out $$out || status=1; \
	done; $(BIN)/python benchmarks/page.py || status=1; exit $$status

soak: SECONDS ?= 600
soak: .venv/dev.done  ## a mixed, partly hostile load on the service for SECONDS
	$(BIN)/python benchmarks/soak.py --seconds $(SECONDS)

fuzz: SECONDS ?= 60
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
	rm -rf .venv .fuzz .pytest_cache .mypy_cache .ruff_cache build dist mutants

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/demo.done: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[plots,serve]"
	touch $@

# LightFM is built from source: without a C compiler its row of the page stays empty
.venv/lightfm.done: .venv/bench.done
	-$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[bench-lightfm]"
	touch $@

.venv/dev.done .venv/bench.done .venv/fuzz.done .venv/audit.done: .venv/%.done: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[$*]"
	touch $@
