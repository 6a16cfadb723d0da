# make run    set up everything, then serve on http://127.0.0.1:8787
# make test   set up everything, then run every check and test
# make setup  only the set-up: a virtual environment in .venv, model files in the cache

PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup run test lint style types unit conformance bench clean

setup: $(STAMP)
	@$(BIN)/talkover prepare

# The stamp is written last: an interrupted installation is done again.
$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; set PYTHON=/path/to/python3"; exit 1; }
	@echo "installing into $(VENV) (with $$($(PYTHON) --version))"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --progress-bar on --quiet --upgrade pip
	@$(BIN)/python -m pip install --progress-bar on --constraint constraints.txt --editable '.[all]'
	@$(BIN)/python -c 'import server.cli, models.assets'
	@touch $(STAMP)

run: setup
	@$(BIN)/talkover serve $(ARGS)

# The types take a minute where nothing is cached, in which tests that wait leave a core idle.
test: setup style
	@$(MAKE) --no-print-directory --jobs=2 types unit

lint: style types

style:
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

types:
	nice -n 10 $(BIN)/mypy sessions codec models server

unit:
	$(BIN)/python -m tests -m "not wide" $(ARGS)

conformance: setup
	$(BIN)/python -m pytest -m conformance tests/conformance $(ARGS)

bench: setup
	$(BIN)/python -m tests.bench.latency --spawn
	$(BIN)/python -m tests.bench.bargein --spawn
	$(BIN)/python -m tests.bench.backchannels --spawn
	$(BIN)/python -m tests.bench.server_cost --spawn
	$(BIN)/python -m tests.bench.core_speed
	$(BIN)/python -m tests.bench.browser_stop --spawn
	$(BIN)/python -m tests.bench.uplink --words
	$(BIN)/python -m tests.bench.echo --spawn

clean:
	rm -rf $(VENV) .conformance .mypy_cache .ruff_cache .pytest_cache .hypothesis
