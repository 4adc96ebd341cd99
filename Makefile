# `make demo` and `make test` do their own set-up on a bare machine with Python 3.11 or newer.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test slow oldest lint docs bench clean

demo: $(READY)
	$(BIN)/algoformer demo

test: lint
	$(BIN)/pytest -n 2

# Ray is large and only one slow test needs it: where it cannot be had, that test says so and is skipped.
slow: $(READY)
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,sweep]'
	$(BIN)/pytest -m slow

# The tests with the oldest libraries that pyproject.toml allows (but torch, as pinned), which newer ones beside them deprecate.
oldest: $(READY)
	test -x .oldest/bin/python || $(PYTHON) -m venv .oldest
	.oldest/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch uv
	.oldest/bin/uv pip install --quiet --python .oldest --resolution lowest-direct --editable '.[dev]'
	.oldest/bin/pytest -n 2 -o filterwarnings=

lint: $(READY)
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(READY)
	$(BIN)/algoformer bench

# torch first and alone: under a constraint it takes the plain build, where a range would take the newest.
$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv .oldest demo site .pytest_cache .mypy_cache .ruff_cache .hypothesis
