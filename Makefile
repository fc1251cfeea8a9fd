# Each target sets up what it needs, and does it again only when its inputs changed.
# The first one runs everything on this machine: no AWS account, no Docker.

PYTHON ?= python3
BIN := .venv/bin
# The CDK, its Node and uv come from the virtual environment, whatever else is installed.
export PATH := $(CURDIR)/$(BIN):$(PATH)
export VIRTUAL_ENV := $(CURDIR)/.venv

.PHONY: demo test soak check up down bench smoke format lock clean help

demo: .emulator/.installed ## the whole system on this machine, asserted, in under two minutes
	$(BIN)/python -m local demo

test: .emulator/.installed ## all tests, end to end ones included
	$(BIN)/python -m pytest -n 2 --dist loadscope

soak: .emulator/.installed ## the long proofs: kills, freezes, outages; at most 15 minutes
	$(BIN)/python -m pytest tests/soak -s --timeout 600

check: .venv/.installed ## lint, format, types, import contracts
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	PYTHONPATH=functions:. $(BIN)/lint-imports

up: .emulator/.installed ## the stack on this machine, left running; then `. .local/env`
	$(BIN)/python -m local up

down: .venv/.installed ## ends what `make up` started
	$(BIN)/python -m local down

bench: .emulator/.installed ## every figure of the README
	@$(MAKE) --no-print-directory .build/bench/.installed || echo "replay-aws-dlq cannot be installed; its figures are left out"
	PYTHONPATH=functions $(BIN)/python -m bench

smoke: .venv/.installed ## the end-to-end tests on a real account: make smoke STAGE=dev
	@test -n "$(STAGE)" || { echo "name the deployed stage: make smoke STAGE=dev"; exit 2; }
	REDRIVE_SMOKE_STAGE=$(STAGE) $(BIN)/python -m pytest tests/e2e

format: .venv/.installed ## applies what `make check` asks for
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

NPM_FLAGS = --ignore-scripts --no-audit --no-fund --loglevel=error
LOCK = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-header --no-annotate
lock: .venv/.installed ## resolves the dependencies anew
	$(LOCK) --upgrade pyproject.toml --extra worker --group development -o locks/development.txt
	$(LOCK) --upgrade --group emulator -o locks/emulator.txt
	$(LOCK) --constraint locks/development.txt --group layer -o locks/layer.txt
	$(LOCK) --constraint locks/development.txt --group bootstrap -o locks/uv.txt
	cd locks/bench && npm update --package-lock-only --omit-lockfile-registry-resolved $(NPM_FLAGS)

clean: down ## removes everything that make has made
	rm -rf .venv .emulator .build .local cdk.out

help: ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 10

.venv/.installed: locks/uv.txt locks/development.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Redrive needs Python 3.11 or later: make PYTHON=python3.13 ..."; exit 2; }
	$(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r locks/uv.txt
	$(BIN)/uv pip sync --quiet --require-hashes locks/development.txt
	@touch $@

.emulator/.installed: .venv/.installed locks/emulator.txt
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python .emulator
	$(BIN)/uv pip sync --quiet --require-hashes --python .emulator/bin/python locks/emulator.txt
	@touch $@

# What `make bench` measures beside Redrive; nothing else needs it.
.build/bench/.installed: .venv/.installed locks/bench/package.json locks/bench/package-lock.json
	@mkdir -p $(@D)
	cp locks/bench/package.json locks/bench/package-lock.json $(@D)
	npm ci --prefix $(@D) $(NPM_FLAGS)
	@touch $@
