# demo   an engine under KV pressure on this machine, recorded and diagnosed
# test   the tests
# check  what CI runs: format, lint, types, import contracts, tests
# Each makes .venv itself.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test check venv clean

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

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
