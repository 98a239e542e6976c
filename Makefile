# Every target sets up by itself what it lacks. `make` alone says what there is.
LOCK := $(shell cat requirements-dev.lock pyproject.toml | cksum | tr ' ' -)
READY := .venv/.installed-$(LOCK)
BIN := .venv/bin
# Coverage says something about all tests only, not about some of them.
PYTEST := $(BIN)/pytest -n 3 --dist loadscope $(if $(ARGS),,--cov --cov-report=term)
MANIFESTS := $(filter-out %kustomization.yaml %service-monitor.yaml %prometheus-rule.yaml,$(wildcard deploy/kubernetes/*.yaml))
MIGRATIONS := $(wildcard migrations/0*.sql chessboard/migrations/0*.sql)

.PHONY: help demo test test-all lint format stack worker bench traffic slo session lock histories clean
.DEFAULT_GOAL := help

help: ## this list
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/:[^#]*## /	/' | while IFS='	' read -r name text; do \
	  printf '  make %-10s %s\n' "$$name" "$$text"; done

demo: $(READY) ## a sales floor whose bookings run out, before your eyes (2 minutes)
	@exec $(BIN)/python -m devstack.demo

test: $(READY) ## the tests, on real servers (ARGS="-k …" for some of them)
	@echo "Testing on PostgreSQL, Temporal and Kafka of its own"
	@exec $(PYTEST) -m "not slow" $(ARGS)

test-all: $(READY) ## the slow tests too, half an hour (SKIP=long leaves out what .ci/run does)
	@exec $(PYTEST) $(if $(SKIP),-m "not $(SKIP)") $(ARGS)

lint: $(READY) ## ruff, types, migrations, container and Kubernetes files, alerts
	@echo "ruff";             $(BIN)/ruff check --quiet . && $(BIN)/ruff format --quiet --check .
	@echo "mypy";             $(BIN)/mypy .
	@echo "squawk";           $(BIN)/squawk $(MIGRATIONS)
	@echo "check-jsonschema"; $(BIN)/check-jsonschema -q --builtin-schema vendor.compose-spec docker-compose.yml
	@$(BIN)/check-jsonschema -q --check-metaschema contracts/*.schema.json
	@$(BIN)/check-jsonschema -q --schemafile contracts/vendor/asyncapi-3.0.0.schema.json contracts/asyncapi.yaml
	@echo "hadolint";         $(BIN)/hadolint Dockerfile
	@echo "kubernetes";       $(BIN)/kubernetes-validate --strict --quiet $(MANIFESTS)
	@$(BIN)/check-jsonschema -q --schemafile tests/schemas/servicemonitor.json deploy/kubernetes/service-monitor.yaml
	@$(BIN)/check-jsonschema -q --schemafile tests/schemas/prometheusrule.json deploy/kubernetes/prometheus-rule.yaml
	@echo "alerts";           PYTHON=$(abspath $(BIN)/python) ops/check.sh

format: $(READY) ## let ruff put the code in order
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format .

stack: $(READY) ## PostgreSQL, Temporal with its Web UI and Kafka, until Ctrl-C
	@exec $(BIN)/python -m devstack up

worker: $(READY) ## a worker on the servers of `make stack`
	@exec $(BIN)/python -m devstack attach -- $(BIN)/python worker.py

bench: $(READY) ## the numbers of BENCHMARKS.md, on this machine
	@exec $(BIN)/python -m devstack exec --durable -- $(BIN)/python -m bench

traffic: $(READY) ## a sales floor that never sleeps, and a checker, until Ctrl-C (ARGS="--size 5000 --faults")
	@exec $(BIN)/python -m traffic $(ARGS)

slo: $(READY) ## deadline to free object, measured for 10 minutes at 10,000 active bookings (FAULTS=1 breaks things)
	@exec $(BIN)/python -m traffic --slo $(if $(FAULTS),--faults) $(ARGS)

lock: $(READY) ## both lock files from pyproject.toml (UPGRADE=1 takes newer versions)
	@$(BIN)/uv pip compile -q --universal --generate-hashes $(if $(UPGRADE),--upgrade) pyproject.toml -o requirements.lock
	@$(BIN)/uv pip compile -q --universal --generate-hashes $(if $(UPGRADE),--upgrade) --group dev pyproject.toml \
	  -o requirements-dev.lock

session: $(READY) ## play docs/operations.md's four stories on a stack of their own, and record them there
	@exec $(BIN)/python -m devstack.session

histories: $(READY) ## record runs of every kind for the replay test, before a release (docs/versioning.md)
	@$(BIN)/pytest -q -n 2 --dist loadscope tests/workflow/record_histories.py tests/workflow/record_drains.py
	@$(BIN)/python -m tests.workflow.mutations

clean: ## forget the stack's data and all caches, keep .venv
	@rm -rf .devstack .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage*

$(READY):
	@sh devstack/install.sh $@
