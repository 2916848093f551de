# Targets for developers. They all run in .venv, which is made when it is first needed: python3 and make are enough.

# Each other Python gets an environment of its own: make test PYTHON=python3.13 makes .venv-3.13.0 and tests there.
PYTHON ?= python3
# More arguments for the command that a target runs: make test ARGS="-k pgs -x", make demo ARGS="--json demo.json".
ARGS =
# Whether "make test" demands complete coverage: yes, unless ARGS selects some of the tests. COVER= switches it off.
COVER = $(if $(ARGS),,1)
# Tests start many processes, and benchmarks measure how long that takes: each would compile all modules again, which
# takes it 0.1 s, where this variable keeps Python from saving what it has compiled.
unexport PYTHONDONTWRITEBYTECODE
# Without it, tests find what most people have: output that Python and C keep until there is enough of it.
unexport PYTHONUNBUFFERED
# How many tests run in parallel: twice as many as two cores can, because many of them wait for real time to pass.
BESIDE = 4
# What part of scheduler/, deskgrid/wire/ and the policies in papers/ has to be covered, percent. All of it is wanted;
# .ci/run takes a little less, so that a line which tests miss holds nobody up who has not written it.
COVERED = 100

ifeq ($(PYTHON),python3)
VENV := .venv
else
VENV := .venv-$(shell $(PYTHON) -c 'import platform; print(platform.python_version())' 2>/dev/null)
endif
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
READY := $(VENV)/.ready
PIP_INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check

OLD_PYTHON = deskgrid needs Python 3.11 or later; $(PYTHON) is not that. Name another: make PYTHON=python3.12

.DEFAULT_GOAL := help
.PHONY: help ready demo test quick cover soak machines windows clients bench bench-scale bench-peers profile check docs types pictures format lock clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

ready: $(READY) # the environment in which the others run

demo: $(READY) ## a broker, four workers that come and go, and a real bag of tasks, in under two minutes
	$(BIN)/deskgrid demo $(ARGS)

# What has a bound of time runs alone, and is tried twice: the first time, another program may have had the machine.
# Their files: to collect all others takes ten seconds.
ALONE = $(shell grep -rlE 'mark\.alone\b' tests --include='test_*.py')

test: $(READY) types ## all tests; then that the pure parts are covered completely
	$(BIN)/python -m pytest $(if $(COVER),-m 'not alone' --cov --cov-report= --numprocesses $(BESIDE) --dist worksteal) $(ARGS)
	$(if $(COVER),$(BIN)/python -m pytest -m alone $(ALONE) || $(BIN)/python -m pytest -m alone --last-failed $(ALONE))
	$(if $(COVER),@$(MAKE) --no-print-directory cover)

# Generated tests try the same examples on each Python, and those with a bound of time need a quiet machine. With LESS=1,
# tests in which nobody's program runs are left out, too: .ci/run tries them on the default Python only.
QUICK = not slow and not alone and not hypothesis$(if $(LESS), and not pure)

quick: $(READY) ## all but the slowest tests, and those that find nothing more on another Python: PYTHON=python3.14
	$(BIN)/python -m pytest -m '$(QUICK)' --numprocesses $(BESIDE) --dist worksteal $(ARGS)

cover: $(READY) ## what the last "make test" has not covered of what has to be complete; fails if there is any
	@$(BIN)/python -m coverage report --precision=2 --fail-under=$(COVERED)

soak: $(READY) ## a bit more than an hour of faults, attacks and virtual days; a part of it: ARGS="--only days"
	-$(PIP_INSTALL) atheris
	$(BIN)/python -m tests.soak $(ARGS)

machines: ## the demo and the quick tests on bare machines of Debian 12, 13 and the next, as root; some: ARGS="bookworm"
	tests/machines/run.sh $(ARGS)

windows: $(READY) ## the demo and tests on Windows, as Wine plays it, for some minutes; some: ARGS=quick, or paths of tests
	PYTHON=$(abspath $(BIN))/python tests/machines/windows.sh tests $(ARGS)

CLIENTS := .venv-clients$(VENV:.venv%=%)

clients: $(CLIENTS)/.ready ## libraries of others (scipy, dask ...) and CPython's tests of executors, on a private grid
	CLIENTS=1 $(CLIENTS)/bin/python -m pytest tests/clients $(ARGS)

$(CLIENTS)/.ready: requirements-dev.txt tests/clients/requirements.txt
	@echo 'Setting up $(CLIENTS) (once, and when its requirements change)'
	@$(PYTHON) -m venv $(CLIENTS)
	@$(CLIENTS)/bin/python -m pip install --quiet --disable-pip-version-check $(^:%=--requirement %)
	@$(CLIENTS)/bin/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@touch $@

bench: $(READY) ## deskgrid and its peers, measured beside each other; smaller with ARGS=--quick; written with ARGS="--out FOLDER"
	$(BIN)/python -m benchmarks $(ARGS)

bench-scale: $(READY) ## what a task costs with more tasks, up to a million, and more slots, up to ten thousand
	$(BIN)/python -m benchmarks.scale $(ARGS)

bench-peers: ## the peers, each in a virtual environment of its own; those that cannot be installed are left out
	@for file in benchmarks/requirements/*.txt; do \
		peer=$$(basename $$file .txt); echo "Setting up $$peer"; \
		$(PYTHON) -m venv benchmarks/.peers/$$peer \
			&& benchmarks/.peers/$$peer/bin/python -m pip install --quiet --disable-pip-version-check -r $$file \
			|| rm -rf benchmarks/.peers/$$peer; \
	done

profile: $(READY) ## where a task's microseconds go, by process; which functions these are with ARGS=--calls
	$(BIN)/python -m benchmarks.profiling $(ARGS)

check: $(READY) types docs ## lint, format, types (also as on Windows), and the site
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/mypy --platform win32 --cache-dir .mypy_cache/win32 deskgrid .types/deskgrid

docs: $(READY) ## reference pages from the program, and the site, in site/; while you write, at http://127.0.0.1:8000: ARGS=serve
	$(BIN)/python docs/written.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs $(or $(ARGS),build --strict)

# Only to folders: what is added to one later is found, too.
types: # links by which what lies beside deskgrid/ is below one, for tools that read the code and do not run it
	@rm -rf .types && mkdir -p .types/deskgrid
	@ln -s $(addprefix ../../,broker papers scheduler sleepbench worker) .types/deskgrid/

pictures: $(READY) ## the status screen, the web page and an estimate for README and the site, drawn from real runs
	$(BIN)/python docs/screen.py
	$(BIN)/python -m docs.web
	$(BIN)/python docs/estimate.py

format: $(READY) ## put the source in order
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

lock: ## pin what pyproject.toml asks for in requirements-dev.txt; newest of everything with ARGS=--upgrade
	$(PYTHON) -m venv .venv-lock
	.venv-lock/$(notdir $(BIN))/python -m pip install --quiet --disable-pip-version-check uv
	.venv-lock/$(notdir $(BIN))/uv pip compile --quiet --universal --python-version 3.11 --group dev \
		--custom-compile-command "make lock" --output-file requirements-dev.txt $(ARGS) pyproject.toml
	rm -rf .venv-lock

clean: ## remove the environments and all that was made
	rm -rf .venv .venv-* .types site benchmarks/.peers .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): requirements-dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
		|| { echo '$(OLD_PYTHON)' >&2; exit 1; }
	@echo 'Setting up $(VENV) (once, and when its requirements change)'
	@$(PYTHON) -m venv $(VENV)
	@$(PIP_INSTALL) --requirement requirements-dev.txt
	@$(PIP_INSTALL) --no-build-isolation --no-deps --editable .
	@touch $@
