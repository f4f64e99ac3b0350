# Every target works as the first command on a fresh clone: it makes .venv and installs what it needs.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python

.PHONY: setup demo test test-all lint bench setup-bench

setup: $(VENV)/.installed

$(VENV)/.installed: requirements.txt requirements-dev.txt
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	$(PY) -m envs.native
	touch $@

demo: setup
	$(PY) launch.py run experiment=quickstart

test: setup
	@sh tests/browser.sh
	$(PY) -m pytest -n 3 --dist worksteal -m "not slow and not gpu"

test-all: setup
	@sh tests/browser.sh
	$(PY) -m pytest -m "not gpu and not slurm"

lint: setup
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy

bench: setup
	$(PY) -m benchmarks

setup-bench: setup
	$(PY) benchmarks/setup.py
