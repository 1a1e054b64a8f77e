# demo   an engine under KV pressure on this machine, recorded and diagnosed
# test   the tests
# check  what CI runs: format, lint, types, import contracts, tests
# gpu-check  on a CUDA machine: the engine's tests on the device, then what it reaches of it
# Each makes .venv itself.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test check gpu-check venv clean

venv: $(READY)

# torch comes first and pinned: a looser request would pull a CUDA build of several GB.
$(READY): constraints.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check $$(grep -E '^torch==' constraints.txt)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt \
	    --editable '.[all,dev]'
	touch $@

demo: $(READY)
	$(BIN)/stepscope demo

test: $(READY)
	$(BIN)/pytest

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(MAKE) test

# On a machine with CUDA and its torch (docs/gpu.md): equivalence on the device, then how much of
# what the device can do the engine reaches, as a section for benchmarks/RESULTS.md.
gpu-check: $(READY)
	$(BIN)/python -c 'import torch, sys; sys.exit(0 if torch.cuda.is_available() else \
	    "gpu-check: no CUDA device here, or a torch built for the CPU (docs/gpu.md)")' || exit 2
	STEPSCOPE_TEST_DEVICE=cuda $(BIN)/pytest tests/engine/runner tests/engine/lora
	$(BIN)/python -m benchmarks.gpu_check --output gpu-check.md

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
