# make demo   install everything and run the whole road on real images
# make study  install everything and run a study of four methods: a table and a page
# make test   install everything and run the tests
# make site   build the documentation as a site: build/site/index.html, searchable without a server
# make dist   build the wheels and sdists, install each into an empty environment and use it
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
# Compiled modules are kept: the tests start hundreds of processes, each of which would compile the package again.
export PYTHONDONTWRITEBYTECODE :=

# $(call install,environment,what): uv takes a fifth of pip's time. Where it cannot be had or fails, as with an index that only pip's
# settings name, pip does it.
install = { $(BIN)/python -m pip install --quiet uv && $(BIN)/uv pip install --quiet --python $(1)/bin/python $(2); } \
	|| $(1)/bin/python -m pip install --quiet $(2)

.PHONY: demo study test test-slow test-nightly flower lint site dist bench clean

demo: $(VENV)/.demo
	$(BIN)/python examples/demo.py --out demo-output

study: $(VENV)/.demo
	$(BIN)/afltool study quick --store study-output/store -o study-output/study
	$(BIN)/afltool table study-output/study
	$(BIN)/afltool report study-output/study -o study-output/report.html --overwrite

test: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/pytest -q -n 2 --dist loadfile  # one thread a worker: two pools on two cores thrash

# One after the other within a file; the files that take longest begin, so that none ends alone. Each file is named, since
# pytest takes those of a folder by their names, also where one of them is named before the folder.
LONGEST := $(patsubst %,tests/%.py,test_kill test_slurm_real test_flower faults/test_campaign \
	test_engines test_plugins test_tracking test_export test_tutorials test_examples test_study_processes \
	test_cores test_backbones)
SLOW := $(LONGEST) $(filter-out $(LONGEST),$(sort $(shell find tests -name "test_*.py")))

test-slow: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/pytest -q -m 'slow and not nightly' -n 5 --dist loadfile --no-loadscope-reorder --durations=25 $(SLOW)

# What takes minutes, before a release: a session over Flower, 50 faults of Slurm, a million images, the pictures of the pages.
test-nightly: $(VENV)/.dev flower
	OMP_NUM_THREADS=1 AFLTOOL_SLURM_FAULTS=50 \
		$(BIN)/pytest -q -m "nightly or slow" -n 2 --dist loadfile --durations=25 $(shell grep -lr "mark.nightly" tests) tests/test_slurm_real.py

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Pages that are in no menu and links that lead nowhere are errors. The variable: no advertisement in between.
site: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet -f docs/site/mkdocs.yml

# Flower in an environment of its own, since it pins an older typer; for a slow test.
flower: | $(BIN)/python
	$(PYTHON) -m venv $(VENV)/flower
	$(call install,$(VENV)/flower,./integrations/flower)

# Both distributions, each in an empty environment, with the researcher's tutorial.
dist: $(VENV)/.dev
	$(BIN)/python packaging/try_builds.py

bench: $(VENV)/.dev
	for file in benchmarks/bench_*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

clean:
	rm -rf $(VENV) demo-output study-output afl-store build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache

# The virtual environment: made once, made again when pyproject.toml changes.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed; found: $$($(PYTHON) --version). Use make PYTHON=python3.11 …"; exit 1; }
	$(PYTHON) -m venv $(VENV) \
		|| { echo "making a virtual environment failed; on Debian: apt-get install python3-venv"; rm -rf $(VENV); exit 1; }

$(VENV)/.demo: pyproject.toml | $(BIN)/python
	@echo "Installing PyTorch and the rest into $(VENV) (about 2 minutes, 6 GB) …"
	$(call install,$(VENV),-e '.[demo]')
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	@echo "Installing PyTorch, the tests' tools and the rest into $(VENV) (about 2 minutes, 6 GB) …"
	$(call install,$(VENV),-e '.[dev]')
	@touch $@
