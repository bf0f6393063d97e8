#!/usr/bin/env bash
# Installs embershard into .venv, in stages. A stage that is up to date does nothing.
#
#   scripts/install.sh python     Python packages and the generated messages: enough for lint
#   scripts/install.sh browser    Chromium, for the tests of the status page (120 MB to download)
#   scripts/install.sh fuzz       Debian packages for C++, and clang with libFuzzer
#   scripts/install.sh proxy      HAProxy and Prometheus' promtool, for the tests of deployments
#   scripts/install.sh triton     tritonserver from a wheel, for the tests of the backend (55 MB to
#                                 download)
#   scripts/install.sh serving    the stage python, Debian packages for C++, and the extension
#                                 without tools: enough for the demo
#   scripts/install.sh            the same, with the load tool, the Triton backend and the C++ tests
#   scripts/install.sh torch VERSION
#                                 the same with another torch, all in build/torch-VERSION
#
# PYTHON       the Python to use (default: python3)
# TORCH_INDEX  package index for torch, such as PyTorch's CPU-only index (default: pip's)
# CUDA         1: torch and FBGEMM for GPUs, 0: for CPU (default: as installed, at first 0)
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
venv=.venv
stamps=$venv/stamps
build=build/extension
# Paths are hashed relative to the checkout, so that build folders share the compiler's cache.
export CCACHE_BASEDIR=$PWD
other_pins=()  # Lines to replace in constraints.txt, as commands of sed.
cpp_packages=(cmake g++ libgrpc++-dev libgtest-dev libprotobuf-dev libssl-dev libxxhash-dev
  make ninja-build nlohmann-json3-dev pkg-config protobuf-compiler protobuf-compiler-grpc)
browser_packages=(chromium chromium-driver)
proxy_packages=(haproxy prometheus)
fuzz_packages=(clang-14 libclang-rt-14-dev llvm-14)  # llvm: names of functions in findings.
triton_wheel=nvidia-pytriton==0.7.0

say() { printf 'install: %s\n' "$*" >&2; }
fail() { say "$@"; exit 1; }

# done_before STAGE KEY: succeeds if the stage last ran with the same inputs.
done_before() { [ "$(cat "$stamps/$1" 2>/dev/null)" = "$2" ]; }
done_now() { mkdir -p "$stamps" && printf '%s\n' "$2" > "$stamps/$1"; }
hash_of() { sha256sum "$@" | sha256sum | cut -d' ' -f1; }

# as_root COMMAND...: runs the command as root, or fails if this user may not.
as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

is_installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# Prints the Debian packages that a stage needs, one per line.
needed_packages() {
  if [ "$1" = browser ]; then
    printf '%s\n' "${browser_packages[@]}"
    return
  fi
  if [ "$1" = proxy ]; then
    printf '%s\n' "${proxy_packages[@]}"
    return
  fi
  if [ "$1" = fuzz ]; then
    printf '%s\n' "${cpp_packages[@]}" "${fuzz_packages[@]}"
    return
  fi
  if ! command -v "$python" >/dev/null; then
    printf '%s\n' python3 python3-venv
  elif ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    printf '%s\n' python3-venv
  fi
  [ "$1" != python ] || return 0
  printf '%s\n' "${cpp_packages[@]}"
  local headers='import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")'
  "$python" -c "$headers" 2>/dev/null || printf '%s\n' python3-dev
}

# Installs missing packages. Without permission it prints their names and fails.
system_stage() {
  local name missing=()
  for name in $(needed_packages "$1"); do
    is_installed "$name" || missing+=("$name")
  done
  if [ ${#missing[@]} != 0 ] && ! as_root true 2>/dev/null; then
    fail "expected Debian packages that are missing and that this user may not install; first run:
  sudo apt-get install ${missing[*]}"
  fi
  # ccache makes builds faster, but is optional.
  if [[ $1 =~ ^(all|serving)$ ]] && ! is_installed ccache && as_root true 2>/dev/null; then
    missing+=(ccache)
  fi
  [ ${#missing[@]} != 0 ] || return 0
  command -v apt-get >/dev/null || fail "expected Debian or Ubuntu; install: ${missing[*]}"
  say "Debian packages: ${missing[*]}"
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

python_stage() {
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "expected Python 3.11 or later, got $("$python" --version); set PYTHON to another"

  # A virtual environment contains its own path, and builds are for one Python. Both builds of
  # FBGEMM have the same files, so one cannot be installed over the other. Start anew if any differs.
  local key cuda fbgemm=cpu
  cuda=${CUDA:-$(cat "$stamps/cuda" 2>/dev/null || echo 0)}
  [[ $cuda =~ ^[01]$ ]] || fail "CUDA: expected 1 or 0, got '$cuda'"
  key="$PWD $("$python" --version)"
  if [ "$cuda" = 1 ]; then
    fbgemm=cuda
    key+=" CUDA"
    other_pins+=(--expression="s/^fbgemm-gpu-cpu==/fbgemm-gpu==/")
  fi
  if [ -e $venv ] && [ ! -e $stamps ]; then
    fail "$PWD/$venv: expected a folder that this script made, got another; move it away"
  fi
  if ! done_before venv "$key" || [ ! -x $venv/bin/pip ]; then
    rm -rf $venv $build
    done_now venv "$key"
    done_now cuda "$cuda"
    "$python" -m venv $venv
  fi

  key=$(hash_of constraints.txt pyproject.toml scripts/install.sh)
  if ! done_before python "$key"; then
    say "Python packages, including torch; takes minutes the first time"
    sed --expression='' "${other_pins[@]}" constraints.txt > $venv/constraints.txt
    local pip=($venv/bin/pip install --quiet --disable-pip-version-check -c $venv/constraints.txt)
    "${pip[@]}" ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch
    [ "$cuda" = 0 ] || $venv/bin/python -c 'import sys, torch; sys.exit(not torch.version.cuda)' ||
      fail "CUDA=1: expected torch built for CUDA, got one built for CPU; unset TORCH_INDEX and remove $venv"
    $venv/bin/python - $fbgemm > $venv/requirements.txt <<'PYTHON'
import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
extras = project["optional-dependencies"]
chosen = (sys.argv[1], "fetch", "mlflow", "parquet", "tensorboard", "dev")
print(*project["dependencies"], *(line for name in chosen for line in extras[name]), sep="\n")
PYTHON
    "${pip[@]}" -r $venv/requirements.txt
    done_now python "$key"
  fi

  key=$(hash_of proto/*/*.proto proto/embershard/v1/*.proto scripts/generate_proto.py constraints.txt)
  if ! done_before proto "$key" || [ ! -e embershard/_proto/protocols.binpb ]; then
    say "protocol messages"
    $venv/bin/python scripts/generate_proto.py
    done_now proto "$key"
  fi
}

# extension_stage PARTS: builds all parts of the extension, or those for serving, which are included
# in all.
extension_stage() {
  local sources key tools=ON
  mapfile -t sources < <(find embershard/serving/predictor embershard/kernels/cpp proto CMakeLists.txt -type f | sort)
  key=$(hash_of "${sources[@]}" pyproject.toml constraints.txt)
  [ "$1" = all ] || tools=OFF
  if ! done_before extension "$1 $key" && ! done_before extension "all $key"; then
    say "compiling the extension; takes minutes the first time"
    CMAKE_BUILD_PARALLEL_LEVEL=$(nproc) $venv/bin/pip install --quiet --disable-pip-version-check \
      --no-deps --no-build-isolation --config-settings=build-dir=$build \
      --config-settings=cmake.define.EMBERSHARD_TOOLS=$tools \
      --config-settings=cmake.define.EMBERSHARD_TESTS=$tools -e .
    done_now extension "$1 $key"
  fi
}

# use_torch VERSION: makes the stages install this torch and its FBGEMM into a folder of their own.
use_torch() {
  [[ $1 =~ ^2\.([0-9]+)\.[0-9]+$ ]] || fail "expected a version of torch such as 2.14.1, got '$1'"
  build=build/torch-$1
  venv=$build/venv
  stamps=$venv/stamps
  # FBGEMM 1.6 belongs to torch 2.11, 1.7 to 2.12, and so on. Torch 2.11 needs setuptools below 82.
  other_pins=(--expression="s/^torch==.*/torch==$1/" --expression="/^setuptools==/d"
    --expression="s/^fbgemm-gpu-cpu==.*/fbgemm-gpu-cpu==1.$((BASH_REMATCH[1] - 5)).*/")
}

# The wheel contains the program with its libraries. It does not need the wheel's requirements.
triton_stage() {
  if ! done_before triton "$triton_wheel"; then
    say "tritonserver, of $triton_wheel"
    $venv/bin/pip install --quiet --disable-pip-version-check --no-deps "$triton_wheel"
    ln -sfr $venv/lib/python3*/site-packages/pytriton/tritonserver/bin/tritonserver \
      $venv/bin/tritonserver
    done_now triton "$triton_wheel"
  fi
}

case ${1:-all} in
  python)
    system_stage python
    python_stage
    ;;
  browser | fuzz | proxy)
    system_stage "$1"
    ;;
  triton)
    system_stage python
    python_stage
    triton_stage
    ;;
  all | serving)
    system_stage "${1:-all}"
    python_stage
    extension_stage "${1:-all}"
    ;;
  torch)
    use_torch "${2:-}"
    system_stage all
    python_stage
    extension_stage all
    ;;
  *) fail "expected python, serving, browser, fuzz, proxy, triton, torch or all, got '$1'" ;;
esac
