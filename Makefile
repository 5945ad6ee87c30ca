# Two commands do everything on a fresh machine with python3 and make: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
EXTRAS := .venv-extras
# Certificates of the system, so that a company's own mirror or proxy is trusted as the rest of the machine trusts it.
export UV_SYSTEM_CERTS := true
export UV_NATIVE_TLS := true
# Bytecode is kept, whatever the shell says: without it every process that imports TensorFlow takes 4 seconds longer.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-slurm test-extras test-versions nightly nightly-only check style fast hooks lock docs screenshots gpu-report clean

demo: $(READY)
	$(BIN)/gputui --preset quickstart

# A measurement that another program may disturb is taken again (the marker flaky); no other test is. The stand-in for GPUs
# is compiled meanwhile; a test that needs it waits, and says what has failed. Tests of what this machine lacks, such as
# tmux or a compiler, are left out: the last lines say which. GPUTUI_TESTS_DEMAND_ALL=1 lets them fail.
test: $(READY)
	$(BIN)/python -m tests.support.fakegpu.build 2>/dev/null & $(BIN)/python -m tests.measured
	@$(BIN)/python -m tests.support.needs

# Trainings in jobs of a real Slurm on two nodes, which are namespaces of this machine: some minutes, mostly the
# time limit of a job, which Slurm counts in minutes. Needs root and the packages slurm-wlm, munge and iproute2.
test-slurm: $(READY)
	$(BIN)/pytest -n 2 -m slurm -rs --durations 5 tests/end_to_end/test_slurm.py

# What needs the libraries of extras (MLflow, W&B, Trackio, Grain, KerasHub, JAX, mcp, torch, a Jupyter kernel), in an
# environment of its own, which is about 3 GB larger if pip finds no torch without CUDA.
test-extras: $(EXTRAS)/.ready
	$(EXTRAS)/bin/pytest -n 2 --dist loadfile -m extras -rs --durations 10 tests/extras

# The engine's tests against other versions of TensorFlow, each in an environment of its own (about 2 GB, made once).
# make test-versions TENSORFLOW="2.18 2.20:3.10" WORKERS=1 TESTS=tests/trainer/test_models.py ENVIRONMENTS=/large/disk
ENVIRONMENTS ?= .versions
WORKERS ?= 3
test-versions: $(READY)
	$(BIN)/python -m tests.versions --environments $(ENVIRONMENTS) --workers $(WORKERS) \
		$(if $(TESTS),--tests "$(TESTS)") $(TENSORFLOW)

# What takes too long for each change, some hours: variants that `make test` leaves out, all that needs a real Slurm or the
# libraries of extras, and the oldest and the newest TensorFlow. A part that fails does not keep the others from running.
nightly:
	$(MAKE) --keep-going nightly-only test-extras test-slurm test-versions \
		TENSORFLOW="$(or $(TENSORFLOW),2.18:3.10 2.21)"

nightly-only: $(READY)
	$(BIN)/pytest -n 2 -m hypothesis --hypothesis-profile nightly
	$(BIN)/pytest -n 2 --dist loadfile -m "nightly and not slurm and not extras" -rs --durations 10

check: style
	$(MAKE) test

# All that needs no test: up to two minutes, some seconds once mypy and the contracts have their caches.
style: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# While one works: the style, and the quick tests that the change concerns, at most about two minutes.
# make fast BASE=main compares with that revision instead of the last commit.
fast: style
	$(BIN)/python -m tests.fast $(if $(BASE),--base $(BASE))

# Before each commit git then runs `make style`.
hooks:
	git config core.hooksPath .githooks

# Writes what is derived from declarations: the tables of the documents, the form's first preset, and
# the JSON Schemas of presets and of runs.
docs: $(READY)
	$(BIN)/python docs/tables.py
	$(BIN)/gputui presets schema > presets/schema.json

# The environment: versions and hashes as in requirements.lock, gputui itself from this folder.
$(READY): pyproject.toml requirements.lock
	$(PYTHON) -m venv $(VENV) || (echo "python3 cannot make environments here; on Debian: apt-get install python3-venv" && false)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --editable .
	touch $(READY)

$(EXTRAS)/.ready: pyproject.toml requirements.lock requirements-extras.lock
	$(PYTHON) -m venv $(EXTRAS)
	$(EXTRAS)/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(EXTRAS)/bin/uv pip install --quiet --python $(EXTRAS)/bin/python --require-hashes \
		-r requirements.lock -r requirements-extras.lock
	$(EXTRAS)/bin/python -m pip install --quiet --disable-pip-version-check torch
	$(EXTRAS)/bin/uv pip install --quiet --python $(EXTRAS)/bin/python --no-deps --editable .
	touch $(EXTRAS)/.ready

# requirements.lock is for each system and Python. That of the extras is for Linux, and has what they add: it is installed
# together with the other. It is resolved for the oldest Python, whose versions later ones can install, too.
lock: $(READY)
	$(BIN)/uv pip compile --quiet --upgrade --universal --generate-hashes --no-annotate --no-header \
		--extra cuda --group dev pyproject.toml --output-file requirements.lock
	$(BIN)/uv pip compile --quiet --upgrade --python-platform linux --python-version 3.11 --generate-hashes \
		--no-annotate --no-header --extra cuda --extra mlflow --extra wandb --extra trackio --extra serve --extra grain \
		--extra hub --extra mcp --group dev --group extras --constraint requirements.lock \
		$$(sed -n 's/^\([a-z0-9.-]*\)==.*/--no-emit-package \1/p' requirements.lock) \
		pyproject.toml --output-file requirements-extras.lock

# The pictures of the documents, from runs trained for them.
screenshots: $(READY)
	$(BIN)/python docs/screenshots.py

# On a machine with a GPU: run the GPU tests and measurements, and write gpu-report.md; with QUICK=1 in 10 minutes.
gpu-report: $(READY)
	@$(BIN)/python -m benchmarks.gpu_report $(if $(QUICK),--quick)

clean:
	rm -rf $(VENV) $(EXTRAS) build *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .faults
