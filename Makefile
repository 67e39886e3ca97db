# make demo    set everything up in .venv and show the main job on real files
# make test    set everything up in .venv and run the tests (slow ones aside)
# make help    all targets

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
READY = $(VENV)/.ready
# What was installed for some tests alone: not again, while others use it.
TORCH_READY = $(VENV)/.torch
SERVERS_READY = $(VENV)/.servers
SITE_READY = $(VENV)/.site
LONGEST = tests/e2e/test_large_files.py tests/scale tests/fuzz tests/torture tests/browser
# MiB of the model.
TOUR = 3072
TORCH = torch==2.13.*
FUZZER = atheris==3.*
# That which comes with Python 3.11 takes twice as long to look through what there is.
INSTALLER = pip>=25

# What is imported is compiled then; most of what is installed never is.
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile

PYTEST = $(BIN)/python -m pytest -q -n auto
# The slow tests wait for other processes: for one that waits another one goes on.
SOME_MORE = -n $$(($$(getconf _NPROCESSORS_ONLN) + 1))
# A file's tests share what is dear to make, a cluster or a history: they stay together.
# The longest ones come first, so that no core waits for them at the end.
BY_FILE = --dist loadfile --no-loadscope-reorder
FOLDERS = $(filter-out $(LONGEST) tests/__pycache__,$(patsubst %/,%,$(wildcard tests/*/)))

# Where this is set, pytest compiles all tests anew in every process, for a quarter of a minute.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow test-large test-torch test-browser test-remotes test-trainers \
  test-all collected tour lint types layers man wheel check structure schemas site pictures torture fuzz bench bench-docs bench-deps torch-deps \
  browser-deps programs-deps remotes-deps trainers-deps fuzz-deps more-deps format clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]*:.*## / {printf "%-13s %s\n", $$1, $$2}' Makefile

setup: $(READY)  ## make the environment in .venv

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "wtxtgit needs Python 3.11 or later: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) '$(INSTALLER)'
	$(PIP) --editable '.[dev]'
	@touch $(READY)

demo: $(READY)  ## the main job on real files, in a scratch folder
	@$(BIN)/python demo/demo.py

test: $(READY)  ## the tests, slow ones aside
	$(PYTEST) --dist worksteal -m "not (slow or large or torch or browser or remote or trainers)"

test-slow: $(READY)  ## the slow tests
	$(PYTEST) $(BY_FILE) -m "slow and not (large or torch or browser or remote or trainers)" $(LONGEST) $(FOLDERS)

test-large: $(READY)  ## files of 2 GiB within 256 MiB of address space; takes 9 GiB of disk
	$(BIN)/python -m pytest -q -m large

tour: $(READY)  ## a model of 3 GiB on a forge that refuses large blobs; takes 20 GiB of disk
	WTXTGIT_TOUR=$(TOUR) $(BIN)/python -m pytest -q --durations=1 tests/e2e/test_forge_limit.py

test-torch: torch-deps  ## torch files against torch itself, which is installed first
	$(PYTEST) -m torch

test-browser: $(READY)  ## HTML pages in Chromium, which has to be there with chromedriver
	$(PYTEST) -m browser

test-trainers: trainers-deps  ## callbacks with transformers, Lightning and Keras, which are installed first
	$(PYTEST) -m trainers tests/stream

test-remotes: remotes-deps  ## targets against real servers (S3, a registry, git-lfs), releases against model-signing
	$(PYTEST) $(BY_FILE) -m remote tests/remotes tests/e2e/test_release.py

test-all: collected  ## all tests but those of `make test-trainers`, in one run
	$(PYTEST) $(SOME_MORE) $(BY_FILE) -m "not trainers" $(LONGEST) $(FOLDERS)

# Not beside what installs torch: some tests import it.
collected: torch-deps browser-deps remotes-deps programs-deps  ## compile all tests, else each process does it
	@told=$$($(BIN)/python -m pytest -qq --collect-only tests) || { echo "$$told"; exit 1; }

torch-deps: $(TORCH_READY)  ## install torch, without CUDA where pip is told of such a build

$(TORCH_READY): $(READY)
	@$(PIP) '$(TORCH)'
	@touch $@

trainers-deps: torch-deps  ## install those frameworks
	@$(PIP) --editable '.[trainers]'

fuzz-deps: $(READY)  ## install atheris, where it has a wheel for this Python
	@$(PIP) --only-binary :all: '$(FUZZER)' || true

remotes-deps: $(SERVERS_READY)  ## install those servers; a registry from Debian's packages, where there is none
	@command -v docker-registry >/dev/null || { apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends docker-registry; }

$(SERVERS_READY): $(READY)
	@$(BIN)/python -c 'import sys, tomllib; \
	  extras = tomllib.load(sys.stdin.buffer)["project"]["optional-dependencies"]; \
	  print(*extras["servers"], sep="\n")' < pyproject.toml > $@.txt
	@$(PIP) --requirement $@.txt
	@rm $@.txt && touch $@

more-deps: $(READY)  ## all that `make test-all` and `make fuzz` install, one after the other
	@$(MAKE) --no-print-directory -j1 torch-deps remotes-deps fuzz-deps browser-deps programs-deps

browser-deps:  ## install Chromium and its driver from Debian's packages, where there is none
	@command -v chromedriver >/dev/null || { apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
	  chromium chromium-driver; }

programs-deps:  ## install age, zsh and fish, which some tests run, from Debian's packages
	@{ command -v age && command -v zsh && command -v fish; } >/dev/null || { \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
	  --no-install-recommends age zsh fish; }

lint: $(READY)  ## style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)  ## mypy, strict; for macOS, too, whose Python lacks some of what Linux has
	$(BIN)/mypy
	$(BIN)/mypy --platform darwin --cache-dir .mypy_cache/darwin

layers: $(READY)  ## imports between the layers
	$(BIN)/lint-imports

man: $(READY)  ## man pages from the help, in build/man; packages that are built then have them
	$(BIN)/python -m docs.site.man build/man

wheel: man  ## build packages, install each in a fresh environment, and run it; DIST=FOLDER keeps them
	$(BIN)/python tests/wheel/check_wheel.py $(DIST)

check: lint types layers test test-slow test-large wheel  ## everything that CI runs, torch, browser and remotes aside

torture: $(READY)  ## kill and damage for hours, and count; TORTURE="kills --tries 20" less of it
	$(BIN)/python -m tests.torture $(TORTURE)

fuzz: fuzz-deps  ## inputs that coverage finds, to each parser; FUZZ="fold text --seconds 3600"
	$(BIN)/python -m tests.fuzz.guided $(FUZZ)

pictures: browser-deps $(READY)  ## the pictures of the pages anew, in docs/pictures; needs Chromium
	$(BIN)/python -m docs.pictures.make

schemas: $(READY)  ## write docs/schemas anew, of the reports that --json prints
	$(BIN)/python -m tests.docs.schemas

site: $(SITE_READY)  ## docs/ as a site, in build/site; a broken link is an error
	$(BIN)/python -m sphinx -q -W --keep-going -n -c docs/site -b html -d build/.doctrees . build/site

$(SITE_READY): $(READY)
	@$(PIP) --editable '.[site]'
	@touch $@

structure: $(READY)  ## circles, names and modules that a reader has to know, counted
	$(BIN)/python -m bench.structure

bench: $(READY)  ## speed and memory, as ratios measured in one run; BENCH="--only git" has options
	$(BIN)/python -m bench $(BENCH)

bench-docs: $(READY)  ## put the figures of the last bench into docs/
	$(BIN)/python -m bench --update-docs

bench-deps:  ## install git-lfs, with which bench compares, from Debian's packages
	@command -v git-lfs >/dev/null || { apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends git-lfs; }

format: $(READY)  ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove what the targets made
	rm -rf $(VENV) build dist bench/out .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
