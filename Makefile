# Everything a fresh machine needs is Python 3.11 to 3.13 and make. The first target that runs builds .venv from the pins.
PYTHON ?= python3
THREADS ?= 1
VENV := .venv
READY := $(VENV)/.ready
BIN := $(VENV)/bin

.PHONY: demo test test-gpu lint types speed docs dist extras clean

demo: $(READY)  ## train on noisy irregular spirals for two minutes; look at runs/demo/
	$(BIN)/lformer demo

test: $(READY)  ## the whole test suite, a file to each of up to four processes of THREADS threads
	OMP_NUM_THREADS=$(THREADS) $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

# With the Python that has the machine's CUDA build of torch, not the pinned one. cuBLAS asks for the workspace setting.
# With pytest-xdist several processes share the GPU: make test-gpu WORKERS=4.
# Other files are not even imported: they may need packages that such a machine does not have.
WORKERS ?= 0
GPU_TESTS = tests/ops/fused $(shell grep -rl --include='test_*.py' 'mark\.gpu' tests | grep -v tests/ops/fused)
test-gpu:  ## the tests that need a CUDA device
	CUBLAS_WORKSPACE_CONFIG=:4096:8 $(PYTHON) -m pytest -m gpu $(if $(filter-out 0,$(WORKERS)),-n $(WORKERS) --dist loadfile) $(GPU_TESTS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

speed: $(READY)  ## length sweep against GRU and Transformer on this CPU; look at runs/speed/
	$(BIN)/lformer speed

docs: $(READY)  ## the documentation site; open runs/site/index.html
	$(BIN)/mkdocs build --strict

dist: $(READY)  ## wheel and sdist in dist/
	$(BIN)/python -m hatchling build

extras: $(READY)  ## all extras resolve together with the pins; needs the package index
	$(BIN)/python -m pip install --quiet --dry-run -c constraints.txt ".[$$($(BIN)/python -c "import tomllib; print(','.join(tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']))")]"

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "lformer needs Python 3.11 or newer; call make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,plots,data,docs,adapters,baselines,export]"
	touch $(READY)

clean:
	rm -rf $(VENV) runs dist build
