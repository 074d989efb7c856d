# Each target sets up what it needs in .venv, from Python 3.10 or newer and pip's own package index.

PYTHON ?= python3
WORKERS ?= 2

BIN := .venv/bin
READY := .venv/.ready
NEOVIM := .venv/.neovim
RAY := .venv/.ray
DOCS := .venv/.docs
PYTEST = FX_LSP_SECONDS=$(SECONDS_FILE) $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup
SECONDS_FILE := $(abspath .venv)/.seconds

.PHONY: coverage overhead demo docs test tests test-editors test-hosts test-release lint bench format clean vsix

demo: $(READY)
	$(BIN)/python scripts/demo.py

# Everything that needs no editor, no cluster and no wheel; the linters run beside the tests.
test: $(READY)
	@$(MAKE) --no-print-directory -j2 lint tests

tests: $(READY)
	$(PYTEST) -m "not editor and not host and not release" $(ARGS)

# Neovim, Emacs and VS Code. An editor that is neither here nor installable is skipped.
test-editors: $(NEOVIM)
	$(PYTEST) -m editor $(ARGS)

# ssh, Slurm, Ray and containers. What is not here is skipped.
test-hosts: $(RAY)
	$(PYTEST) -m host $(ARGS)

# Wheels in each Python, the .vsix, and the large numbers: soak, faults, fuzz, random programs.
test-release: $(READY)
	$(PYTEST) -m release $(ARGS)

lint: $(READY)
	$(BIN)/python scripts/seconds.py --of lint -- sh -ec '$(BIN)/ruff check .; $(BIN)/ruff format --check .; \
		$(BIN)/pyright --pythonpath $(BIN)/python; $(BIN)/lint-imports --no-cache'

# The documentation as a site, in site/. A broken link or anchor fails.
docs: $(DOCS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(READY)
	$(BIN)/python benchmarks/latency.py $(ARGS)

coverage: $(READY)
	$(BIN)/python benchmarks/coverage.py $(ARGS)

overhead: $(READY)
	$(BIN)/python benchmarks/record.py $(ARGS)

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The VS Code extension, with the server inside, as vscode-extension/fx-lsp.vsix. Needs node and npm.
vsix: $(READY)
	cd vscode-extension && npm ci --no-audit --no-fund --loglevel=error && npm run --silent check && npm run --silent build
	$(BIN)/python vscode-extension/scripts/bundle.py
	cd vscode-extension && npm run --silent package -- --out fx-lsp.vsix

clean:
	rm -rf .venv site vscode-extension/node_modules vscode-extension/dist vscode-extension/server

# torch comes first and by its exact version, so that nothing installed after it asks for another build.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 10) or sys.exit("Python 3.10 or newer is needed: make PYTHON=/path/to/python3")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -qq `grep '^torch==' constraints.txt`
	$(BIN)/python -m pip install -qq -c constraints.txt -e '.[dev]'
	@touch $@

$(NEOVIM): $(READY)
	@$(BIN)/python -m pip install -qq -c constraints.txt -e '.[editors]' \
		|| echo "No Neovim to install here: tests that need it use the one on PATH, or are skipped."
	@touch $@

$(RAY): $(READY)
	@$(BIN)/python -m pip install -qq -c constraints.txt -e '.[ray]' \
		|| echo "No Ray to install here: tests that need it are skipped."
	@touch $@

$(DOCS): $(READY)
	$(BIN)/python -m pip install -qq -c constraints.txt -e '.[docs]'
	@touch $@
