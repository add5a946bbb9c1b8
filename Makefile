SHELL := /bin/bash
PYTHON ?= python3
TEST_JOBS ?= 3
ARGS ?=
BIN := .venv/bin

.PHONY: setup run test lint format bench clean

setup: ## install what is missing and build; cheap when nothing changed
	@PYTHON="$(PYTHON)" scripts/setup

run: setup ## start the server on 127.0.0.1:8122
	@exec $(BIN)/paddock up $(ARGS)

test: setup ## every test that this machine can run
	@scripts/system-packages --tests
	@mkdir -p .cache
	@$(BIN)/python -m pytest -n $(TEST_JOBS) --dist worksteal $(ARGS) tests; \
		status=$$?; echo $$status >.cache/pytest-status; exit $$status

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: setup
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: setup ## the table of numbers
	@$(BIN)/python -m bench $(ARGS)

clean:
	rm -rf .venv .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist src/paddock/guest/bin
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
