# Everything by which people start. `make help` lists it.

MAKEFLAGS += --no-print-directory
SHELL := /bin/sh
FORMAT ?= table
PYTHON ?=
TESTS ?= tests
PYTEST_ARGS ?=
# A file of tests stays in one process, which has a broker and a Redis server of its own where they ask for them.
PARALLEL := --numprocesses=auto --maxprocesses=4 --dist=loadfile
# Packages are installed without bytecode, which is then written for what is imported: twice as quick to install,
# but every start would be slow where this variable keeps Python from writing it.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
# What is installed is named by what it was installed from: a change of locks, project or place installs anew.
KEY := $(firstword $(shell (cat pyproject.toml requirements/*.txt; echo "$(CURDIR)") | cksum))
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile

.DEFAULT_GOAL := help
.PHONY: chart-tools kafka-tools help setup examples demo demo-console up down test test-all test-smoke test-slow test-kafka lint format generate lock licences sbom audit mutants test-faults fuzz bench screenshots clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1|/p' Makefile | while IFS='|' read -r name text; do printf '%-12s %s\n' "$$name" "$$text"; done

setup: .venv/dev-$(KEY) ## make .venv with the groundwire command and all tools for development
	@echo "ready: $(BIN)/groundwire" >&2

demo: .venv/demo-$(KEY) ## run everything on this machine, fed with examples; FORMAT=json for JSON lines
	@$(BIN)/python -m demo --format $(FORMAT)

demo-console: .venv/demo-$(KEY) ## the demo, and then the console on its data until you press Ctrl-C
	@$(BIN)/python -m demo --console

.env:
	@umask 077 && printf 'GROUNDWIRE_REDIS_PASSWORD=%s\n' "$$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')" > $@

up: .env ## everything in Docker: Kafka, Redis, workers, console, Prometheus, Grafana; prints how to sign in
	@docker compose up --build --wait
	@docker compose logs --no-log-prefix console | grep -o 'http://.*/signin#.*' | tail -n 1

down: ## stop it; what was decided stays in Docker's volumes
	@docker compose down

# All of what is not slow, or the whole of TESTS, which starts at once in one process.
# Four processes, on two processors too: half of the time they wait for brokers and workers.
CHOSEN := $(if $(filter tests,$(TESTS)),-m "not slow" --numprocesses=4 --dist=loadfile,)
EMBEDDED := GROUNDWIRE_TEST_BROKER=embedded GROUNDWIRE_TEST_REDIS=embedded

test: .venv/dev-$(KEY) ## all tests that are not slow, on embedded services; or TESTS=folder, whole (PYTEST_ARGS=...)
	@$(EMBEDDED) $(BIN)/python -m pytest $(TESTS) $(CHOSEN) $(PYTEST_ARGS)

# the demo has services of its own, whatever the tests run on
ON_KAFKA := GROUNDWIRE_TEST_BROKER=kafka GROUNDWIRE_TEST_REDIS=real PYTEST_ADDOPTS=--ignore=tests/stream/test_demo.py

test-smoke: .venv/dev-$(KEY) kafka-tools ## one test of each promise on Apache Kafka and redis-server, in a browser, of the wheel
	@$(ON_KAFKA) $(BIN)/python -m pytest tests/stream tests/state -m "smoke and not wheel" --numprocesses=2 --dist=loadfile $(PYTEST_ARGS)
	@$(EMBEDDED) $(BIN)/python -m pytest tests/browser tests/stream/test_wheel.py -m smoke $(PYTEST_ARGS)

test-all: ## every test and long run, one after the other: some hours; nightly, and before a release
	@$(MAKE) test PYTEST_ARGS="--hypothesis-profile=groundwire-full $(PYTEST_ARGS)"
	@$(MAKE) test-slow
	@$(MAKE) test-kafka
	@$(MAKE) mutants ARGS="--group tree --group guards --group attestation --group messages --group policy --sample 60"
	@$(MAKE) test-faults FAULTS="--seed 3 --minutes 10 --rate 10"
	@$(MAKE) fuzz FUZZ="--seed 1 --inputs 20000"
	@$(MAKE) audit

test-slow: .venv/dev-$(KEY) ## many examples, long texts, browsers, installed wheels; those of streams and state: test-kafka
	@$(EMBEDDED) $(BIN)/python -m pytest tests --ignore=tests/state -m "slow and (not stream or embedded or wheel)" $(PARALLEL) $(PYTEST_ARGS)

test-kafka: .venv/examples-$(KEY) kafka-tools ## stream and state tests on Apache Kafka and redis-server, then outages and kills on three nodes
	@$(ON_KAFKA) $(BIN)/python -m pytest tests/stream tests/state -m "not wheel" $(PARALLEL) $(PYTEST_ARGS)
	@$(ON_KAFKA) GROUNDWIRE_TEST_BROKER=kafka3 $(BIN)/python -m pytest tests/stream -m three_nodes $(PYTEST_ARGS)

kafka-tools:
	@missing=; for need in java:default-jre-headless mvn:maven redis-server:redis-server; do \
		command -v "$${need%%:*}" >/dev/null || missing="$$missing $${need##*:}"; done; \
		test -z "$$missing" || { echo "not installed here: apt-get install$$missing" >&2; exit 1; }

test-faults: .venv/dev-$(KEY) ## break workers, broker and Redis under load, and check that nothing is lost (FAULTS="--seed 1 --minutes 2")
	@$(BIN)/python -m tests.faults $(FAULTS)

fuzz: .venv/dev-$(KEY) ## hostile input for every entry, made from valid examples (FUZZ="--seed 1 --inputs 100000")
	@$(BIN)/python -m tests.fuzz $(FUZZ)

mutants: .venv/dev-$(KEY) ## break each check, branch and guard in turn: a test must notice (ARGS="--only 'guards.*'")
	@$(BIN)/python -m tests.mutations $(ARGS)

bench: .venv/dev-$(KEY) ## measure how fast it is, beside what one would otherwise write (ARGS="gate redis --quick")
	@$(BIN)/python -m bench $(ARGS)

lint: .venv/dev-$(KEY) ## style, types, layers, published schemas and generated pages
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@PYTHONPATH=. $(BIN)/lint-imports --no-logo
	@$(BIN)/python -m schemas check schemas
	@$(BIN)/python -m schemas.configuration check docs/reference/configuration.md
	@$(BIN)/python -m schemas.records_page check docs/reference/records.md
	@$(BIN)/python -m deploy.grafana check
	@$(BIN)/python -m deploy.manifests check
	@$(BIN)/python -m deploy.licences >/dev/null

format: .venv/dev-$(KEY) ## put the code into its one layout
	@$(BIN)/ruff check --fix-only --quiet
	@$(BIN)/ruff format

generate: .venv/dev-$(KEY) ## write what is generated: schemas/, two pages of docs/, the dashboard, the Helm chart
	@$(BIN)/python -m schemas write schemas
	@$(BIN)/python -m schemas.configuration write docs/reference/configuration.md
	@$(BIN)/python -m schemas.records_page write docs/reference/records.md
	@$(BIN)/python -m deploy.grafana write
	@$(BIN)/python -m deploy.manifests write

.PHONY: docs
screenshots: .venv/dev-$(KEY) ## docs/use/console/: a picture of every page of the console, in Chromium
	@$(BIN)/python -m tests.browser.screenshots

docs: .venv/dev-$(KEY) ## build the documentation as a site; a broken link fails
	@$(BIN)/properdocs build --strict --config-file properdocs.yml
	@echo "open .cache/docs/index.html"

licences: .venv/dev-$(KEY) ## the licence of each package that workers install; one that puts duties on users fails
	@$(BIN)/python -m deploy.licences

.venv/manifests-$(KEY): .venv/dev-$(KEY)
	@$(INSTALL) --only-binary :all: --require-hashes -r requirements/manifests.txt
	@touch $@

.venv/examples-$(KEY): .venv/dev-$(KEY)
	@$(INSTALL) --only-binary :all: --require-hashes -r requirements/examples.txt
	@touch $@

examples: .venv/examples-$(KEY) ## install what tests of examples/ need beside the rest: LangGraph's store, pgvector

chart-tools: .venv/dev-$(KEY) ## helm and kustomize into .venv/bin, with Go: tests compare with them what is generated
	@GOBIN=$(CURDIR)/$(BIN) go install helm.sh/helm/v3/cmd/helm@v3.22.0
	@GOBIN=$(CURDIR)/$(BIN) go install sigs.k8s.io/kustomize/kustomize/v5@v5.7.1

sbom: .venv/manifests-$(KEY) ## what workers are made of, as CycloneDX, in .cache/sbom.json
	@mkdir -p .cache
	@$(BIN)/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible --output-file .cache/sbom.json \
		requirements/worker.txt

audit: .venv/manifests-$(KEY) ## ask the OSV database for known weaknesses of what is locked; needs the internet
	@$(BIN)/pip-audit --vulnerability-service osv --disable-pip --require-hashes --progress-spinner off \
		--requirement requirements/worker.txt

lock: ## write requirements/ anew from pyproject.toml
	@sh requirements/lock.sh

clean: ## remove .venv and caches
	@rm -rf .venv .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

.venv/demo-$(KEY): .venv/base-$(KEY)
	@echo "installing what the demo needs" >&2
	@$(INSTALL) --only-binary :all: --no-deps --require-hashes -r requirements/demo.txt >&2
	@$(INSTALL) --no-deps --no-build-isolation --editable . >&2
	@touch $@

.venv/dev-$(KEY): .venv/demo-$(KEY)
	@echo "installing what development needs" >&2
	@$(INSTALL) --only-binary :all: --no-deps --require-hashes -r requirements/dev.txt >&2
	@touch $@

.venv/base-$(KEY):
	@python=$$(sh requirements/python.sh "$(PYTHON)") && rm -rf .venv && echo "making .venv with $$python" >&2 && "$$python" -m venv .venv
	@touch $@
