# make serve   sets everything up and serves the demo model on 127.0.0.1:8080
# make test    sets everything up and passes the tests
# make agents  installs the coding agents that ./check drives (npm, 1.9 GB in the user's cache)
# make browser installs the Chromium that ./check opens the page in (npm, 300 MB in the same place)
# make compose builds the containers and tries them, on this machine's Docker or, as root on Debian, on one of its own
#
# PYTHON=python3.12          the interpreter that makes .venv (3.11 or newer)
# TORCH=cuda                 the CUDA build of torch (default: what pip finds, the CPU build if offered)
# TORCH_INDEX_URL=...        a wheel index for torch alone, as the PyTorch site shows it
# MODEL=DIR                  another model folder for make serve
# SERVE_FLAGS="--port 9000"  more options for make serve (make options lists them)

PYTHON ?= python3
TORCH ?= auto
MODEL ?= $(shell cat .venv/demo-model 2>/dev/null)
SERVE_FLAGS ?=
BIN := .venv/bin
TORCH_VERSION := 2.13.0
# === matches the release without a local label, which is the CUDA build on Linux
TORCH_SPEC := torch$(if $(filter cuda,$(TORCH)),===,==)$(TORCH_VERSION)
TORCH_FROM := $(if $(TORCH_INDEX_URL),--index-url $(TORCH_INDEX_URL))
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: setup serve test agents browser compose check options docs lock clean

setup: .venv/installed .venv/demo-model

.venv/installed: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "error: $(PYTHON) is older than 3.11; set PYTHON=python3.11 or newer" >&2; exit 1; }
	@test -x $(BIN)/python || { echo "setup: creating .venv"; $(PYTHON) -m venv .venv; }
	@echo "setup: installing torch $(TORCH_VERSION) (the largest part)"
	@$(PIP) $(TORCH_FROM) '$(TORCH_SPEC)'
	@echo "setup: installing the locked packages"
	@$(PIP) --no-deps -r requirements.lock
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

.venv/demo-model: .venv/installed services/engine/checkpoint/drafters/smollm2-135m/mtp.safetensors
	@$(BIN)/ninfer-model fetch smollm2-135m > $@.new && tail -n 1 $@.new > $@ && rm $@.new

serve: setup
	@$(BIN)/ninfer-serve --model "$(or $(MODEL),$$(cat .venv/demo-model))" \
		--ngram-draft-tokens 15 $(SERVE_FLAGS)

test: setup
	@$(BIN)/python -m pytest -m "not slow and not gpu and not agents and not browser and not compose"

agents: setup
	@$(BIN)/python -m tests.agents.installation

browser: setup
	@$(BIN)/python -m tests.browser.installation

compose: setup
	@$(BIN)/python -m pytest -m compose tests/compose

check: setup agents browser
	@./check

options: setup
	@$(BIN)/ninfer-serve --help

# Writes the options into README.md and docs/options.md as the code has them.
docs: setup
	@$(BIN)/python -m tests.option_tables

# Rewrites the lock from what is installed; torch is pinned above, since its build differs by machine.
lock: .venv/installed
	@$(BIN)/python -m pip freeze --exclude-editable --exclude torch --exclude pip > requirements.lock

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
