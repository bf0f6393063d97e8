# One command a task, the same for people, the hook and CI. Each installs what it needs first.
#
#   make install   .venv with everything (TORCH_INDEX=URL: where pip finds torch; CUDA=1: for GPUs)
#   make demo      train, export, serve and ask, on MovieLens-100K
#   make wheel     build/wheel/embershard-*.whl, for machines without a compiler
#   make test      every test that needs no GPU, C++ included
#   make test-torch TORCH=2.14.1  the tests of export, serving and sharding on another torch
#   make test-gpu  what needs a GPU;  make bench-gpu  packages on a GPU, without a server
#   make sanitize  the C++ tests under AddressSanitizer with UBSan, then under ThreadSanitizer
#   make coverage  the lines of Python that the tests run (COVERAGE='tests/jagged' for some tests)
#   make soak      good and bad clients at once, for ten minutes (SOAK_SECONDS=600)
#   make attack    SIGTERM in seven states of a server, with the seconds that each took to end; and
#                  memory that clients without a token take, directly and behind the proxy
#   make fuzz      clang's fuzzers of requests (every protocol) and packages, FUZZ_SECONDS=600 each
#   make bench     benchmarks (BENCH='ROW... --against CHECKOUT');  make bench-peers  against TorchRec
#   make lint      ruff, mypy, clang-format, hadolint;  make format  fixes what it can

SHELL := /bin/bash
.DEFAULT_GOAL := install
.PHONY: install format lint test test-python test-cpp test-gpu test-gpu-program bench-gpu sanitize soak attack fuzz demo docs
.PHONY: coverage data test-torch wheel
.PHONY: bench bench-peers benchmark-programs tritonserver

bin := .venv/bin
cores := $(shell nproc)
# ccache: checkouts share what was compiled.
export CCACHE_BASEDIR := $(CURDIR)
cpp = $(shell find benchmarks embershard/kernels embershard/serving tests -name '*.h' -o -name '*.cc')

install:
	@scripts/install.sh

format:
	@scripts/install.sh python
	$(bin)/ruff check --fix-only .
	$(bin)/ruff format .
	@echo clang-format -i
	@$(bin)/clang-format -i $(cpp)

lint:
	@scripts/install.sh python
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(bin)/mypy
	@echo clang-format --dry-run
	@$(bin)/clang-format --dry-run -Werror $(cpp)
	$(bin)/hadolint docker/*.Dockerfile

test: test-python test-cpp

# A file's tests stay in one process, which shares its fixtures. Many tests wait, so there is one
# process more than cores. Each has threads of its own: idle OpenMP threads sleep, since they would
# take the cores from the other processes if they spun.
in_parallel := --numprocesses $(shell expr $(cores) + 1) --dist loadfile --no-loadscope-reorder
test-python: data
	OMP_WAIT_POLICY=passive $(bin)/python -m pytest -m "not needs_gpu and not attack" \
	  $(in_parallel)

# Training by pytest, serving by one C++ program, which may be carried to another machine: the
# folders EMBERSHARD_FBGEMM and EMBERSHARD_PROGRAMS say where FBGEMM and the test programs lie there.
test-gpu: data test-gpu-program
	EMBERSHARD_TEST_DEVICE=cuda build/extension/tests/serving/predictor/model_test \
	  --gtest_filter='Devices/DevicePlans.*/0'
	REQUIRE_GPU=1 $(bin)/python -m pytest -m needs_gpu

test-gpu-program: install
	cmake --build build/extension --parallel $(cores) --target model_test

# Results go to benchmarks/GPU.md.
bench-gpu: benchmark-programs
	@set -e; for workload in ranking small rm2_10 dlrm_v2_100; do \
	  package=$$($(bin)/python -m benchmarks.workers.export "{\"workload\": \"$$workload\"}" | tail -1); \
	  plan=1x$(or $(DEVICE),cuda); \
	  [ -e $$package/plans/$$plan.json ] || $(bin)/embershard plan $$package --strategy table \
	    --devices $$plan$(if $(DEVICE),,:140GB) --name $$plan >/dev/null; \
	  build/benchmarks/programs/gpu $$package $$plan; \
	done

# In an environment of its own: build/torch-VERSION. Not part of CI.
test-torch:
	@scripts/install.sh torch '$(TORCH)'
	build/torch-$(TORCH)/venv/bin/python -c $(fetch_movielens)
	OMP_WAIT_POLICY=passive build/torch-$(TORCH)/venv/bin/python -m pytest \
	  -m "not needs_gpu and not attack" $(in_parallel) \
	  tests/export tests/serving tests/sharding

soak: install
	SOAK_SECONDS=$(or $(SOAK_SECONDS),600) $(bin)/python -m pytest -s tests/serving/test_soak.py

attack: install
	@scripts/install.sh proxy
	REQUIRE_PROXY=1 $(bin)/python -m pytest -s -m attack tests/attack

test-cpp: install
	cmake --build build/extension --parallel $(cores) --target cpp_tests
	ctest --test-dir build/extension --output-on-failure --parallel $(cores)

# Servers and ranks count, unless a signal ends them before they can write what they ran. The report
# comes after failed tests too, before the error.
untested = $(foreach each,$(filter tests/%,$(COVERAGE)),$(if $(wildcard \
  $(firstword $(subst ::, ,$(each)))),,$(each)))
coverage: data
	$(if $(strip $(untested)),$(error coverage: expected tests that exist, got $(strip $(untested))))
	$(bin)/pip install --quiet 'coverage>=7.10,<8'
	$(bin)/coverage erase
	@OMP_WAIT_POLICY=passive $(bin)/coverage run -m pytest -m "not needs_gpu and not attack" \
	  $(in_parallel) $(COVERAGE); tested=$$?; \
	$(bin)/coverage combine --quiet && \
	$(bin)/coverage report --skip-covered --show-missing && exit $$tested

# The C++ tests that need no torch. ThreadSanitizer needs address randomization off, if setarch may
# turn it off.
fixed_addresses = $(shell setarch -R true 2>/dev/null && echo setarch -R)
sanitize: install
	@for sanitizer in address thread; do \
	  set -ex; \
	  cmake -G Ninja -S . -B build/$$sanitizer -DCMAKE_BUILD_TYPE=Debug \
	    -DEMBERSHARD_TESTS=ON -DEMBERSHARD_SANITIZER=$$sanitizer >/dev/null; \
	  cmake --build build/$$sanitizer --parallel $(cores) --target cpp_tests; \
	  $(fixed_addresses) ctest --test-dir build/$$sanitizer --output-on-failure --parallel $(cores); \
	done

# Any bytes as requests and as packages, FUZZ_SECONDS each. The corpus stays in the build folder for
# the next run. A finding ends the run, and its input stays there too.
FUZZ_SECONDS := 600
FUZZ_CXX := clang++-14
fuzz:
	@scripts/install.sh fuzz
	cmake -G Ninja -S . -B build/fuzz -DCMAKE_CXX_COMPILER=$(FUZZ_CXX) -DCMAKE_BUILD_TYPE=Debug \
	  -DEMBERSHARD_SANITIZER=address -DEMBERSHARD_FUZZ=ON >/dev/null
	cmake --build build/fuzz --parallel $(cores) --target fuzz_programs
	@for name in request oip torchrec package; do \
	  set -ex; \
	  mkdir -p build/fuzz/corpus/$$name build/fuzz/findings; \
	  build/fuzz/tests/fuzz/$${name}_fuzz -max_total_time=$(FUZZ_SECONDS) -max_len=8192 -timeout=10 \
	    -print_final_stats=1 -artifact_prefix=build/fuzz/findings/$$name- \
	    build/fuzz/corpus/$$name build/fuzz/tests/fuzz/seeds/$$name; \
	done

# MovieLens-100K, into the cache folder, so that no test needs the network.
fetch_movielens = 'from embershard.data import movielens_folder; movielens_folder(None)'
data: install
	$(bin)/python -c $(fetch_movielens)

demo:
	@scripts/install.sh serving
	$(bin)/python examples/movielens/demo.py

wheel: install
	scripts/runtime.sh wheel

# BENCH='ROW...' runs those alone; BENCH='ROW... --against CHECKOUT' compares two checkouts.
bench: benchmark-programs tritonserver
	$(bin)/python -m benchmarks $(BENCH)

# Against TorchRec, in a virtual environment of its own.
bench-peers: benchmark-programs tritonserver
	scripts/bench_peers.sh
	REQUIRE_PEERS=1 $(bin)/python -m pytest -m needs_peers -q
	$(bin)/python -m benchmarks --peers $(BENCH)

# From a wheel that holds a whole Triton.
tritonserver: install
	@scripts/install.sh triton

benchmark-programs: install
	cmake -S . -B build/extension -DEMBERSHARD_BENCHMARKS=ON >/dev/null
	cmake --build build/extension --parallel $(cores) --target benchmark_programs

docs:
	@scripts/install.sh python
	$(bin)/python -m scripts.check_docs
