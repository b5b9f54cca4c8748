# One verb each. What runs before a commit is what CI runs.

PYTHON ?= python3
# 1 is the size of a release: about an hour on two cores. RELEASE=1 is the same.
CHAOS_SCALE ?= $(if $(RELEASE),1,0.1)
SEED ?= 1
PYTEST_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
CODE := $(wildcard src tests benchmarks examples docs)
BENCHMARKS := $(sort $(filter-out benchmarks/_%,$(wildcard benchmarks/*.py)))

# The dashboard: users never need node, and neither does a checkout that is not looked at in a browser.
NODE := $(shell command -v node 2>/dev/null)
UI := src/chargehand/server/static/index.html
UI_SOURCES := $(shell find web/src web/public -type f 2>/dev/null) web/index.html web/vite.config.ts
NPM_DONE := web/node_modules/.package-lock.json
NO_NODE := echo "needs node: the dashboard is not tested"; [ "$$CI" != true ]

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help demo examples ui test test-ui test-all check bench chaos chaos-table docs clean tools mutants

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' Makefile

demo: $(VENV)/.installed ## a request over bundled documents and tables, answered with sources
	@$(if $(NODE),$(MAKE) --no-print-directory ui || echo "the dashboard was not built; the demo goes on without it")
	@$(BIN)/python examples/demo.py

ui: ## the dashboard, built into the package; needs node 20
	@$(if $(NODE),$(MAKE) --no-print-directory $(UI),echo "the dashboard needs node 20 or newer, with npm" >&2; exit 1)

examples: $(VENV)/.installed ## every complete example, offline; the documents go to .examples/
	@mkdir -p .examples
	@for replies in examples/*/replies.toml; do \
		name=$$(basename $$(dirname $$replies)); echo "== $$name"; \
		case $$name in patient_summary|portfolio_rebalancing) yes=--yes;; *) yes=;; esac; \
		$(BIN)/python examples/$$name/$$name.py --out .examples/$$name $$yes || exit 1; \
	done

test-ui: ## format, lint, types, unit tests and the build of the dashboard, where there is node
	@$(if $(NODE),$(MAKE) --no-print-directory $(NPM_DONE) && cd web && npx --no-install biome check --error-on-warnings . \
		&& npx --no-install tsc --noEmit && npx --no-install vitest run --reporter=dot \
		&& $(MAKE) --no-print-directory -C .. $(UI),$(NO_NODE))

test: $(VENV)/.installed ## the checks, then every test; prints the ten slowest
	@$(MAKE) --no-print-directory -j2 tools check test-ui
	@$(BIN)/pytest -n 4 --dist worksteal --durations=10 $(PYTEST_ARGS)

test-all: ## the test suite on every one of Python 3.11, 3.12 and 3.13 that is installed (pyenv's too), each in .venv-3.x
	@for version in 3.11 3.12 3.13; do \
		found=; \
		for python in python$$version "$$(pyenv root 2>/dev/null)"/versions/$$version.*/bin/python; do \
			if [ -z "$$found" ] && "$$python" -c '' 2>/dev/null; then found=$$python; fi; \
		done; \
		if [ -n "$$found" ]; then \
			echo "== Python $$version"; \
			$(MAKE) --no-print-directory PYTHON=$$found VENV=.venv-$$version test || exit 1; \
		else echo "== Python $$version is not installed: skipped"; fi; \
	done

check: $(VENV)/.installed ## format, lint and types; under a minute
	@$(BIN)/ruff format --check $(CODE)
	@$(BIN)/ruff check $(CODE)
	@$(BIN)/mypy $(CODE)

bench: $(VENV)/.installed ## every benchmark in turn
	@for script in $(BENCHMARKS); do \
		echo "== $$script"; $(BIN)/python "$$script" || exit 1; \
	done

chaos: $(VENV)/.installed tools ## real faults, resumable: CHAOS_SCALE=0.1 SEED=1, or RELEASE=1 for the size of a release
	@$(BIN)/python -m tests.chaos --scale $(CHAOS_SCALE) --seed $(SEED) $(CHAOS_ARGS)

chaos-table: $(VENV)/.installed ## the table of docs/reliability.md, from the last result of make chaos
	@$(BIN)/python -m tests.chaos.table .chaos/result.json

mutants: $(VENV)/.installed ## plant every bug in turn; each must be caught by the test named for it
	@$(BIN)/python -m tests.mutants

docs: $(VENV)/.installed ## the documentation, built strictly into site/
	@$(BIN)/python docs/generate_reference.py
	@$(BIN)/python docs/generate_schemas.py
	@$(BIN)/python docs/generate_cli.py
	@$(BIN)/python docs/generate_states.py
	@$(BIN)/python docs/draw_scheduling.py
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir site

clean: ## away with everything that was built, the virtual environment too
	@rm -rf $(VENV) .venv-* site build dist web/node_modules src/chargehand/server/static .demo .examples .chaos .bench .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find src tests benchmarks examples docs -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# Dependency groups need pip 25.1, and Python brings older ones.
$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "chargehand needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1)." >&2; \
		echo "Name another one: make PYTHON=python3.12 …" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip install -q -e . --group dev
	@touch $@

# Not `npm ci`: the lock file lists no packages of other platforms, and `ci` wants them.
$(NPM_DONE): web/package-lock.json
	@cd web && npm install --no-save --no-audit --no-fund --loglevel=error
	@touch $@

$(UI): $(UI_SOURCES) $(NPM_DONE)
	@cd web && npx --no-install vite build --logLevel warn

# strace: the tests that kill a process at its n-th write. bubblewrap: one way to make a sandbox.
# PostgreSQL and pgbouncer: journals on a server, and behind a pooler; the tests start their own.
# Chromium: the tests of the dashboard.
TOOLS := strace bwrap pg_ctlcluster pgbouncer chromium
PACKAGES := strace bubblewrap postgresql pgbouncer chromium
# Read by Debian's package: the tests need the programs, and no server that runs by itself.
NO_CLUSTER := /etc/postgresql-common/createcluster.conf
export PATH := $(PATH):/usr/sbin
tools:
	@set -- $(PACKAGES); for tool in $(TOOLS); do \
		package=$$1; shift; \
		if command -v $$tool >/dev/null; then :; \
		elif [ "$$(uname)" != Linux ]; then \
			echo "$$package exists on Linux only: the tests that need it are skipped"; \
		elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			if [ $$package = postgresql ] && [ ! -e $(NO_CLUSTER) ]; then \
				mkdir -p $(dir $(NO_CLUSTER)); echo 'create_main_cluster = false' >$(NO_CLUSTER); fi; \
			{ apt-get install -qq -y $$package || { apt-get update -qq && apt-get install -qq -y $$package; }; } \
				>/dev/null 2>&1 || echo "$$package could not be installed: the tests that need it are skipped"; \
		else \
			echo "$$package is missing: the tests that need it are skipped; get it with: sudo apt-get install $$package"; \
		fi; \
	done
